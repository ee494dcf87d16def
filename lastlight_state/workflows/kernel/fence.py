"""Writes to what hangs on a live run, as one statement that decides: the run's status and the fence are its conditions.

The condition locks the run's row, so that neither can change before the write. Where the statement changed nothing, it
is repeated under that lock, and what it finds then is the reason.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import sqlalchemy as sa

from lastlight_state.db import valid
from lastlight_state.db.scope import Scope
from lastlight_state.db.statements import among, bind
from lastlight_state.db.unit import Unit
from lastlight_state.errors import ClaimLost, LostRace, StateError
from lastlight_state.workflows.arguments import Claim
from lastlight_state.workflows.kernel import rows as run_rows
from lastlight_state.workflows.tables import EXECUTIONS, RUNS
from lastlight_state.workflows.words import LIVE

_presented_run = bind("presented_run", EXECUTIONS.c.workflow_run_id)
_presented_epoch = bind("presented_epoch", EXECUTIONS.c.claim_epoch)
_epoch_in_force = sa.case((RUNS.c.claim_owner.is_not(None), RUNS.c.claim_epoch))

_ALIKE = EXECUTIONS.alias("fenced")

_run_here = sa.select(_ALIKE.c.workflow_run_id).where(_ALIKE.c.id == sa.bindparam("execution_id")).scalar_subquery()
_holder = sa.select(_epoch_in_force).where(RUNS.c.id == _run_here).with_for_update(key_share=True).scalar_subquery()

#: Whether the claim presented holds the run of this execution, or nobody does and none is presented.
FENCE = sa.and_(
    sa.or_(_presented_run.is_(None), EXECUTIONS.c.workflow_run_id == _presented_run),
    _holder.is_not_distinct_from(_presented_epoch),
)

#: The same for a statement that selects the run's row itself.
RUN_FENCE = sa.and_(
    sa.or_(_presented_run.is_(None), RUNS.c.id == _presented_run),
    _epoch_in_force.is_not_distinct_from(_presented_epoch),
)


def fence(row: dict[str, Any], claim: Claim | None) -> None:
    """Let a write pass only with the claim that holds the run, or without one if nobody does. Raises `ClaimLost`."""
    presented = None if claim is None else valid.group("claim", claim, Claim).epoch
    current = None if row["claim_owner"] is None else row["claim_epoch"]
    foreign = claim is not None and claim.run_id != row["id"]
    if presented != current or foreign:
        raise claim_lost(row, presented)


def claim_lost(row: dict[str, Any], presented: int | None) -> ClaimLost:
    """The error for a claim, or none, that does not hold the run."""
    return ClaimLost(
        row["id"],
        presented=presented,
        current_epoch=row["claim_epoch"],
        held_by=row["claim_owner"],
        status=row["status"],
    )


T = TypeVar("T")

#: Whether the run is live, and held by the claim presented or by nobody; for statements that select its row.
PERMITTED = sa.and_(RUNS.c.id == sa.bindparam("run_id", type_=RUNS.c.id.type), among(RUNS.c.status, LIVE), RUN_FENCE)

#: The id of that run, or NULL; for statements that do not.
PERMITTED_RUN = sa.select(RUNS.c.id).where(PERMITTED).with_for_update(key_share=True).scalar_subquery()


def decide(
    scope: Scope,
    run_id: str,
    claim: Claim | None,
    attempt: Callable[[Unit], T | None],
    refusal: Callable[[Unit], StateError] = lambda unit: LostRace("another write came in between"),  # noqa: ARG005
    *,
    repeatable: bool = False,
) -> T:
    """What ``attempt``, a single statement, wrote.

    Where it wrote nothing: `NotFound`, `ClaimLost`, `Conflict` ``run_status``, or else the ``refusal``.
    """
    done = scope.once(attempt, repeatable=repeatable)
    return scope.writing(lambda unit: _again(unit, run_id, claim, attempt, refusal)) if done is None else done


def permit(unit: Unit, run_id: str, claim: Claim | None) -> None:
    """Lock the run, and raise unless a write to what hangs on it is permitted."""
    row = run_rows.lock(unit, run_id)
    fence(row, claim)
    run_rows.expect(row, LIVE)


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
