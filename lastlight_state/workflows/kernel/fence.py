"""The fence: a write passes with the claim that holds the run, or without one while nobody holds it.

Where a single statement writes, the fence is one of its conditions. That condition locks the run's row, so that the
claim cannot change hands before the write; a run's row is always locked before the rows of its executions. Where the
statement changed nothing, it is repeated under the run's lock, and what is found there is the reason for the error.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import sqlalchemy as sa

from lastlight_state.db import valid
from lastlight_state.db.scope import Scope
from lastlight_state.db.statements import among, bind
from lastlight_state.db.unit import Unit
from lastlight_state.errors import ClaimLost, LostRace, StateError
from lastlight_state.workflows.arguments import Claim
from lastlight_state.workflows.kernel import rows
from lastlight_state.workflows.kernel.rows import HeldRow
from lastlight_state.workflows.tables import EXECUTIONS, RUNS
from lastlight_state.workflows.words import LIVE

T = TypeVar("T")

_FENCED = EXECUTIONS.alias("fenced")

_presented_run = bind("presented_run", EXECUTIONS.c.workflow_run_id)
_presented_epoch = bind("presented_epoch", EXECUTIONS.c.claim_epoch)
_epoch_in_force = sa.case((RUNS.c.claim_owner.is_not(None), RUNS.c.claim_epoch))
_run_here = sa.select(_FENCED.c.workflow_run_id).where(_FENCED.c.id == sa.bindparam("execution_id")).scalar_subquery()
_holder = sa.select(_epoch_in_force).where(RUNS.c.id == _run_here).with_for_update(key_share=True).scalar_subquery()

#: The fence of a statement that changes the execution ``:execution_id``.
FENCE = sa.and_(
    sa.or_(_presented_run.is_(None), EXECUTIONS.c.workflow_run_id == _presented_run),
    _holder.is_not_distinct_from(_presented_epoch),
)

#: The fence of a statement that selects the run's row itself.
RUN_FENCE = sa.and_(
    sa.or_(_presented_run.is_(None), RUNS.c.id == _presented_run),
    _epoch_in_force.is_not_distinct_from(_presented_epoch),
)

#: Whether ``:run_id`` is live and the fence open; for statements that select the run's row.
PERMITTED = sa.and_(RUNS.c.id == bind("run_id", RUNS.c.id), among(RUNS.c.status, LIVE), RUN_FENCE)

#: The id of that run, or NULL; for statements that do not select it.
PERMITTED_RUN = sa.select(RUNS.c.id).where(PERMITTED).with_for_update(key_share=True).scalar_subquery()


def check(row: HeldRow, claim: Claim | None) -> None:
    """Raise `ClaimLost` unless the claim holds the locked run ``row``, or nobody holds it and there is no claim."""
    presented = None if claim is None else valid.group("claim", claim, Claim).epoch
    current = None if row["claim_owner"] is None else row["claim_epoch"]
    of_another_run = claim is not None and claim.run_id != row["id"]
    if presented != current or of_another_run:
        raise claim_lost(row, presented)


def claim_lost(row: HeldRow, presented: int | None) -> ClaimLost:
    """Return the error for a claim that does not hold the run, or for a missing one."""
    return ClaimLost(
        row["id"],
        presented=presented,
        current_epoch=row["claim_epoch"],
        held_by=row["claim_owner"],
        status=row["status"],
    )


def permit(unit: Unit, run_id: str, claim: Claim | None) -> None:
    """Lock the run, and raise unless the claim may write to what belongs to it."""
    row = rows.lock(unit, run_id)
    check(row, claim)
    rows.expect(row, LIVE)


def _lost_race(_: Unit) -> StateError:
    return LostRace("another write came in between")


def decide(
    scope: Scope,
    run_id: str,
    claim: Claim | None,
    attempt: Callable[[Unit], T | None],
    refusal: Callable[[Unit], StateError] = _lost_race,
    *,
    repeatable: bool = False,
) -> T:
    """Return what ``attempt``, a single fenced statement, wrote.

    If it wrote nothing, raise `NotFound`, `ClaimLost` or `Conflict` ``run_status``, or else the ``refusal``.
    """
    done = scope.once(attempt, repeatable=repeatable)
    return scope.writing(lambda unit: _again(unit, run_id, claim, attempt, refusal)) if done is None else done


def _again(
    unit: Unit,
    run_id: str,
    claim: Claim | None,
    attempt: Callable[[Unit], T | None],
    refusal: Callable[[Unit], StateError],
) -> T:
    permit(unit, run_id, claim)
    done = attempt(unit)
    if done is None:
        raise refusal(unit)
    return done
