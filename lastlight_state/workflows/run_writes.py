"""Writes to what hangs on a live run, as one statement that decides: the run's status and the fence are its conditions.

The condition locks the run's row, so that neither can change before the write. Where the statement changed nothing, it
is repeated under that lock, and what it finds then is the reason.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import sqlalchemy as sa

from lastlight_state.db.scope import Scope
from lastlight_state.db.statements import among
from lastlight_state.db.unit import Unit
from lastlight_state.errors import LostRace, StateError
from lastlight_state.workflows import run_rows
from lastlight_state.workflows.arguments import Claim
from lastlight_state.workflows.execution_rows import RUN_FENCE
from lastlight_state.workflows.run_rows import RUNS
from lastlight_state.workflows.words import LIVE

T = TypeVar("T")

PERMITTED = sa.and_(RUNS.c.id == sa.bindparam("run_id", type_=RUNS.c.id.type), among(RUNS.c.status, LIVE), RUN_FENCE)
"""Whether the run is live, and held by the claim presented or by nobody; for statements that select its row."""

PERMITTED_RUN = sa.select(RUNS.c.id).where(PERMITTED).with_for_update(key_share=True).scalar_subquery()
"""The id of that run, or NULL; for statements that do not."""


def decide(
    scope: Scope,
    run_id: str,
    claim: Claim | None,
    attempt: Callable[[Unit], T | None],
    refusal: Callable[[Unit], StateError] = lambda unit: LostRace("another write came in between"),  # noqa: ARG005
    *,
    keyed: bool = False,
) -> T:
    """What ``attempt``, a single statement, wrote.

    Where it wrote nothing: `NotFound`, `ClaimLost`, `Conflict` ``run_status``, or else the ``refusal``.
    """
    done = scope.once(attempt, keyed=keyed)
    return scope.writing(lambda unit: _again(unit, run_id, claim, attempt, refusal)) if done is None else done


def permit(unit: Unit, run_id: str, claim: Claim | None) -> None:
    """Lock the run, and raise unless a write to what hangs on it is permitted."""
    row = run_rows.lock(unit, run_id)
    run_rows.fence(row, claim)
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
