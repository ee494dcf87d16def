"""Loops: which iteration each loop of a run is in, and the text that one iteration hands to the next.

A loop begins at iteration 0, whether it has a row or not. `advance` compares the iteration before it counts up, so
that a crash neither skips an iteration nor counts one twice. Every write takes the ``claim`` that holds the run, and
the run must not have ended.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, cast

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert

from lastlight_state.db import valid
from lastlight_state.db.lists.listing import Listing
from lastlight_state.db.repository import Repository
from lastlight_state.db.rows.records import Page
from lastlight_state.db.rows.statements import Statement, bind, number, prepared
from lastlight_state.db.schema.base import later_of
from lastlight_state.db.schema.declarations import limits_of
from lastlight_state.db.units.unit import Unit
from lastlight_state.errors import Conflict, StaleVersion, StateError
from lastlight_state.workflows import checks as shared
from lastlight_state.workflows.arguments import Claim
from lastlight_state.workflows.checks import FenceParameters
from lastlight_state.workflows.executions.changes import Change
from lastlight_state.workflows.executions.checks import output_text
from lastlight_state.workflows.executions.lists import FIND_CARRIED, LoopOutput, carry
from lastlight_state.workflows.executions.statements import SAVE_OUTPUT
from lastlight_state.workflows.kernel import rows
from lastlight_state.workflows.kernel.rows import PERMITTED, PERMITTED_RUN
from lastlight_state.workflows.records import Loop
from lastlight_state.workflows.rows import RunLoopRow
from lastlight_state.workflows.tables import LOOPS, RUNS

_MOST = limits_of(LOOPS)

#: The iteration after which there is no other.
_LAST = 2**63 - 1

_c = LOOPS.c
_COLUMNS = tuple(_c)
_KEY = (_c.run_id, _c.loop_id)

_at = bind("at", _c.updated_at)
_loop_id = bind("loop_id", _c.loop_id)
_touched = {"updated_at": later_of(_c.updated_at, _at)}
_this_run = _c.run_id == bind("run_id", _c.run_id)
_this_loop = (_this_run, _c.loop_id == _loop_id)


def _upsert(row: Mapping[str, Any], *conditions: sa.ColumnElement[bool], **sets: Any) -> Statement[RunLoopRow]:
    """Insert a loop of a live run, or set these columns of it where the conditions hold."""
    columns = {"run_id": RUNS.c.id, "loop_id": _loop_id, **row, "updated_at": _at}
    permitted = sa.select(*columns.values()).where(PERMITTED).with_for_update(key_share=True)
    new = insert(LOOPS).from_select(list(columns), permitted)
    condition = sa.and_(*conditions) if conditions else None
    replaced = new.on_conflict_do_update(index_elements=_KEY, set_={**_touched, **sets}, where=condition)
    return prepared(replaced.returning(*_COLUMNS), RunLoopRow)


_given = {"iteration": bind("iteration", _c.iteration), "done": bind("done", _c.done)}
PUT = _upsert(_given, **_given)

_advanceable = (_c.iteration == bind("expected", _c.iteration), _c.done == sa.false())
#: Advances a loop from iteration 0, where it may have no row yet.
ADVANCE_FIRST = _upsert({"iteration": number(1), "done": sa.false()}, *_advanceable, iteration=_c.iteration + 1)
ADVANCE = prepared(
    sa.update(LOOPS)
    .where(_c.run_id == PERMITTED_RUN, _c.loop_id == _loop_id, *_advanceable)
    .values(iteration=_c.iteration + 1, **_touched)
    .returning(*_COLUMNS),
    RunLoopRow,
)
FINISH = _upsert(
    {"iteration": number(0), "done": sa.true()},
    done=sa.true(),
    updated_at=sa.case((_c.done == sa.true(), _c.updated_at), else_=_touched["updated_at"]),
)
FIND = prepared(sa.select(*_COLUMNS).where(*_this_loop), RunLoopRow)
LIST = Listing("loops", _COLUMNS, order=(_c.loop_id,), descending=False, filters={"run_id": _this_run}, row=RunLoopRow)


class _OneLoop(FenceParameters):
    run_id: str
    loop_id: str
    at: datetime


class Loops(Repository):
    """``store.workflows.loops``"""

    def put(self, run_id: str, loop_id: str, *, iteration: int, done: bool = False, claim: Claim | None = None) -> Loop:
        """Set the iteration of a loop of a live run, whatever it was: this also rewinds.

        Raises `NotFound`, `ClaimLost`, `Conflict` ``run_status``.
        """
        values = {
            **self._values(run_id, loop_id, claim),
            "iteration": valid.number("iteration", iteration),
            "done": valid.flag("done", done),
        }
        return rows.decide(self._scope, run_id, claim, lambda unit: unit.find(Loop.of, PUT, values), repeatable=True)

    def advance(self, run_id: str, loop_id: str, *, expected: int, claim: Claim | None = None) -> Loop:
        """Move a loop from iteration ``expected`` to the next. A loop without a row is at 0.

        A loop at another iteration is `StaleVersion` with that iteration as ``found``, also when this call is repeated.
        A loop that is done is `Conflict` ``loop_done``.
        """
        values = {
            **self._values(run_id, loop_id, claim),
            "expected": valid.number("expected", expected, most=_LAST - 1),
        }
        statement = ADVANCE if expected else ADVANCE_FIRST

        def refusal(unit: Unit) -> StateError:
            found = unit.find(Loop.of, FIND, values)
            if found is not None and found.done:
                return Conflict(f"loop {loop_id!r} is done", code="loop_done", found=found.iteration)
            at = 0 if found is None else found.iteration
            return StaleVersion("run_loop", (run_id, loop_id), expected=expected, found=at)

        return rows.decide(self._scope, run_id, claim, lambda unit: unit.find(Loop.of, statement, values), refusal)

    def finish(self, run_id: str, loop_id: str, *, claim: Claim | None = None) -> Loop:
        """Mark a loop as done, in its present iteration. Repeat-safe.

        Raises `NotFound`, `ClaimLost`, `Conflict` ``run_status``.
        """
        values = self._values(run_id, loop_id, claim)
        return rows.decide(self._scope, run_id, claim, lambda unit: unit.find(Loop.of, FINISH, values), repeatable=True)

    def find(self, run_id: str, loop_id: str) -> Loop | None:
        """Return the loop, or None."""
        values = {"run_id": valid.sought("run_id", run_id), "loop_id": valid.sought("loop_id", loop_id)}
        return self._find(Loop.of, FIND, values)

    def list(self, run_id: str, *, limit: int = 50, page_token: str | None = None) -> Page[Loop]:
        """Return a page of a run's loops by id, ascending. Raises `NotFound` for an unknown run."""
        return self._reading(rows.page_of(LIST, Loop.of, limit, page_token, run_id=run_id))

    def carry(
        self,
        run_id: str,
        key: str,
        *,
        execution_id: str,
        text: str,
        state: dict[str, Any] | None = None,
        claim: Claim | None = None,
    ) -> None:
        """Hand a text to the next iteration: store it as the output of an execution, and point to that from scratch.

        ``scratch[key]`` of the live run gets ``lastOutputExecutionId`` and the members of ``state``, and keeps its
        others. Text and pointer are stored in one transaction. The execution must belong to the run (`InvalidValue`).
        Raises `NotFound`, `ClaimLost`, `Conflict` ``run_status``, `PayloadTooLarge`.
        """
        now, limits = self._now(), self._settings.limits
        save = Change(SAVE_OUTPUT, output_text(limits, execution_id, text, claim), claim)
        output = LoopOutput(valid.identifier("key", key), save, now, shared.scratch_patch(state) or {})
        self._writing(lambda unit: carry(unit, run_id, output, limits), repeatable=True)

    def find_output(self, run_id: str, key: str) -> str | None:
        """Return the text that the last iteration handed on, read in one round trip.

        None for no text, or an unknown run.

        A foreign run may hold the text itself, as ``scratch[key].lastOutput``. It is returned if there is no pointer.
        """
        values = {"run_id": valid.sought("run_id", run_id), "key": valid.sought("key", key)}
        return cast("str | None", self._value(FIND_CARRIED, values))

    def _values(self, run_id: str, loop_id: str, claim: Claim | None) -> _OneLoop:
        return {
            "run_id": run_id,
            "loop_id": valid.identifier("loop_id", loop_id, _MOST.loop_id),
            "at": self._now(),
            **shared.presented(claim),
        }
