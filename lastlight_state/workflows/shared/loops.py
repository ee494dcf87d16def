"""The statements on rows of loops, and the move of a loop to its next iteration."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert

from lastlight_state.db import valid
from lastlight_state.db.rows.statements import Statement, bind, every_column_of, number, statement_of
from lastlight_state.db.schema.base import later_of
from lastlight_state.db.schema.declarations import limits_of
from lastlight_state.db.units.unit import Unit
from lastlight_state.errors import Conflict, StaleVersion, StateError
from lastlight_state.workflows import checks
from lastlight_state.workflows.arguments import Claim, LoopStep
from lastlight_state.workflows.checks import FenceParameters
from lastlight_state.workflows.records import Loop
from lastlight_state.workflows.shared.run_rows import PERMITTED, PERMITTED_RUN
from lastlight_state.workflows.tables import LOOPS, RUNS

_LIMITS = limits_of(LOOPS)

#: The last iteration, the greatest number that a database can hold.
_LAST = 2**63 - 1

_c = LOOPS.c
COLUMNS = every_column_of(Loop, LOOPS)
_KEY = (_c.run_id, _c.loop_id)

_at = bind("at", _c.updated_at)
_loop_id = bind("loop_id", _c.loop_id)
TOUCHED = {"updated_at": later_of(_c.updated_at, _at)}
THIS_RUN = _c.run_id == bind("run_id", _c.run_id)
_this_loop = (THIS_RUN, _c.loop_id == _loop_id)


def upsert(row: Mapping[str, Any], *conditions: sa.ColumnElement[bool], **sets: Any) -> Statement[Loop]:
    """Insert a loop of a live run, or set these columns of it where the conditions hold."""
    columns = {"run_id": RUNS.c.id, "loop_id": _loop_id, **row, "updated_at": _at}
    permitted = sa.select(*columns.values()).where(PERMITTED).with_for_update(key_share=True)
    new = insert(LOOPS).from_select(list(columns), permitted)
    condition = sa.and_(*conditions) if conditions else None
    replaced = new.on_conflict_do_update(index_elements=_KEY, set_={**TOUCHED, **sets}, where=condition)
    return statement_of(replaced.returning(*COLUMNS), Loop)


_advanceable = (_c.iteration == bind("expected", _c.iteration), _c.done == sa.false())
#: Advances a loop from iteration 0, where it may have no row yet.
ADVANCE_FIRST = upsert({"iteration": number(1), "done": sa.false()}, *_advanceable, iteration=_c.iteration + 1)
ADVANCE = statement_of(
    sa.update(LOOPS)
    .where(_c.run_id == PERMITTED_RUN, _c.loop_id == _loop_id, *_advanceable)
    .values(iteration=_c.iteration + 1, **TOUCHED)
    .returning(*COLUMNS),
    Loop,
)
FIND = statement_of(sa.select(*COLUMNS).where(*_this_loop), Loop)


class LoopParameters(FenceParameters):
    """The parameters of every change of one loop."""

    run_id: str
    loop_id: str
    at: datetime


class Advance(LoopParameters):
    """The parameters of a move to the next iteration."""

    expected: int


def parameters(run_id: str, loop_id: str, at: datetime, claim: Claim | None) -> LoopParameters:
    """Check the arguments of a change of a loop and return its parameters."""
    key = valid.identifier("loop_id", loop_id, _LIMITS.loop_id)
    return {"run_id": run_id, "loop_id": key, "at": at, **checks.fence_parameters(claim)}


def advance_parameters(run_id: str, loop_id: str, expected: int, at: datetime, claim: Claim | None) -> Advance:
    """Check the arguments of a loop's move from iteration ``expected`` to the next. Return its parameters."""
    iteration = valid.number("expected", expected, most=_LAST - 1)
    return {**parameters(run_id, loop_id, at, claim), "expected": iteration}


def of_step(step: LoopStep, at: datetime, claim: Claim | None) -> Advance:
    """Check the arguments of a loop's move to the next iteration.

    Return its parameters; the caller fills in the run id.
    """
    valid.argument_group("loop", step, LoopStep)
    return advance_parameters("", step.loop_id, step.iteration, at, claim)


def advance(unit: Unit, values: Advance) -> Loop | None:
    """Move a loop to its next iteration, or return None if a condition does not hold."""
    return unit.row(ADVANCE if values["expected"] else ADVANCE_FIRST, values)


def advance_refusal(unit: Unit, values: Advance) -> StateError:
    """Return why a loop of a live run did not move to its next iteration."""
    found = unit.row(FIND, values)
    run_id, loop_id, expected = values["run_id"], values["loop_id"], values["expected"]
    if found is not None and found.done:
        return Conflict(f"loop {loop_id!r} is done", code="loop_done", found=found.iteration)
    at = 0 if found is None else found.iteration
    return StaleVersion("run_loop", (run_id, loop_id), expected=expected, found=at)


def advance_held(unit: Unit, values: Advance) -> None:
    """Move a loop to its next iteration, or raise the error from `advance_refusal`.

    The run must be live and its row locked by the caller.
    """
    if advance(unit, values) is None:
        raise advance_refusal(unit, values)
