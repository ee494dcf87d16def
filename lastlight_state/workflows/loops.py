"""Loops: where each loop of a run stands, and the text that one iteration hands to the next.

A loop begins at iteration 0, with or without a row. It moves on by compare-and-set, so that an iteration is neither
skipped nor counted twice, whoever crashes when. Every write here is an engine's and fenced, and none is accepted on a
run that has ended.

The statements of `loops`.
"""

from __future__ import annotations

from typing import Any, cast

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert

from lastlight_state.db import valid
from lastlight_state.db.base import later_of
from lastlight_state.db.listing import Listing
from lastlight_state.db.records import Page
from lastlight_state.db.repository import Repository
from lastlight_state.db.statements import Statement, prepared
from lastlight_state.db.unit import Unit
from lastlight_state.errors import Conflict, StaleVersion, StateError
from lastlight_state.workflows import checks as shared, words
from lastlight_state.workflows.arguments import Claim
from lastlight_state.workflows.executions import (
    checks as execution_checks,
    outputs as loop_outputs,
    statements as executions,
)
from lastlight_state.workflows.executions.changes import Change
from lastlight_state.workflows.executions.outputs import Output
from lastlight_state.workflows.kernel import fence as run_writes, rows as run_rows
from lastlight_state.workflows.kernel.fence import PERMITTED, PERMITTED_RUN
from lastlight_state.workflows.records import Loop
from lastlight_state.workflows.tables import LOOPS, RUNS

_c = LOOPS.c

_COLUMNS = tuple(_c)


_KEY = (_c.run_id, _c.loop_id)


def _param(name: str) -> sa.BindParameter[Any]:
    return sa.bindparam(name, type_=_c[name].type)


_at = sa.bindparam("at", type_=_c.updated_at.type)

_touched = {"updated_at": later_of(_c.updated_at, _at)}

_expected = sa.bindparam("expected", type_=_c.iteration.type)

_here = (_c.run_id == PERMITTED_RUN, _c.loop_id == _param("loop_id"))


def _upsert(row: dict[str, Any], *conditions: sa.ColumnElement[bool], **sets: Any) -> Statement:
    """Insert into a live run, or set where the conditions hold."""
    columns = {"run_id": RUNS.c.id, "loop_id": _param("loop_id"), **row, "updated_at": _at}
    permitted = sa.select(*columns.values()).where(PERMITTED).with_for_update(key_share=True)
    new = insert(LOOPS).from_select(list(columns), permitted, include_defaults=False)
    condition = sa.and_(*conditions) if conditions else None
    replaced = new.on_conflict_do_update(index_elements=_KEY, set_={**_touched, **sets}, where=condition)
    return prepared(replaced.returning(*_COLUMNS))


_given = {"iteration": _param("iteration"), "done": _param("done")}

PUT = _upsert(_given, **_given)

_advanceable = (_c.iteration == _expected, _c.done == sa.false())

#: From iteration 0, where a loop stands also that has no row yet.
ADVANCE_FIRST = _upsert(
    {"iteration": sa.literal_column("1"), "done": sa.false()}, *_advanceable, iteration=_c.iteration + 1
)

ADVANCE = prepared(
    sa.update(LOOPS).where(*_here, *_advanceable).values(iteration=_c.iteration + 1, **_touched).returning(*_COLUMNS)
)

FINISH = _upsert(
    {"iteration": sa.literal_column("0"), "done": sa.true()},
    done=sa.true(),
    updated_at=sa.case((_c.done == sa.true(), _c.updated_at), else_=_touched["updated_at"]),
)

FIND = prepared(sa.select(*_COLUMNS).where(_c.run_id == _param("run_id"), _c.loop_id == _param("loop_id")))

LIST = Listing(
    "loops", _COLUMNS, order=(_c.loop_id,), descending=False, filters={"run_id": _c.run_id == _param("run_id")}
)

#: The iteration after which there is no other.
_LAST = 2**63 - 1


class Loops(Repository):
    """``store.workflows.loops``"""

    def put(self, run_id: str, loop_id: str, *, iteration: int, done: bool = False, claim: Claim | None = None) -> Loop:
        """Set where a loop of a live run stands, whatever it was: also rewinds.

        Raises `NotFound`, `ClaimLost`, `Conflict` ``run_status``.
        """
        values = self._values(run_id, loop_id, claim) | {
            "iteration": valid.number("iteration", iteration),
            "done": valid.flag("done", done),
        }
        return run_writes.decide(self._scope, run_id, claim, lambda unit: unit.find(Loop, PUT, values), repeatable=True)

    def advance(self, run_id: str, loop_id: str, *, expected: int, claim: Claim | None = None) -> Loop:
        """Move a loop from iteration ``expected`` to the next; a loop without a row is at 0.

        A repeat, or another who was faster, is `StaleVersion` with the iteration ``found``; a loop that is done is
        `Conflict` ``loop_done``.
        """
        values = self._values(run_id, loop_id, claim) | {"expected": valid.number("expected", expected, most=_LAST - 1)}
        statement = ADVANCE if expected else ADVANCE_FIRST

        def refusal(unit: Unit) -> StateError:
            found = unit.find(Loop, FIND, values)
            if found is not None and found.done:
                return Conflict(f"loop {loop_id!r} is done", code="loop_done", found=found.iteration)
            at = 0 if found is None else found.iteration
            return StaleVersion("run_loop", (run_id, loop_id), expected=expected, found=at)

        return run_writes.decide(self._scope, run_id, claim, lambda unit: unit.find(Loop, statement, values), refusal)

    def finish(self, run_id: str, loop_id: str, *, claim: Claim | None = None) -> Loop:
        """Set a loop done, in the iteration where it stands. Repeat-safe.

        Raises `NotFound`, `ClaimLost`, `Conflict` ``run_status``.
        """
        values = self._values(run_id, loop_id, claim)
        return run_writes.decide(
            self._scope, run_id, claim, lambda unit: unit.find(Loop, FINISH, values), repeatable=True
        )

    def find(self, run_id: str, loop_id: str) -> Loop | None:
        """The loop, or None."""
        values = {"run_id": valid.sought("run_id", run_id), "loop_id": valid.sought("loop_id", loop_id)}
        return self._reading(lambda unit: unit.find(Loop, FIND, values))

    def list(self, run_id: str, *, limit: int = 50, page_token: str | None = None) -> Page[Loop]:
        """A page of a run's loops by id, ascending. Raises `NotFound` for an unknown run."""
        valid.page_limit(limit)
        return self._reading(lambda unit: run_rows.page_of(unit, LIST, Loop.of, limit, page_token, run_id=run_id))

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
        """Hand a text to the next iteration: stored as the output of ``execution_id``, with its pointer in scratch.

        ``scratch[key]`` of the live run gets ``lastOutputExecutionId`` and the members of ``state``, and keeps its
        others; text and pointer are one transaction. The execution must be one of the run (`InvalidValue`).
        Raises `NotFound`, `ClaimLost`, `Conflict` ``run_status``, `PayloadTooLarge`.
        """
        now, limits = self._now(), self._settings.limits
        values = execution_checks.output(limits, execution_id, text, claim)
        save = Change(executions.SAVE_OUTPUT, values, claim)
        output = Output(valid.identifier("key", key, words.ID), save, now, shared.scratch_patch(state) or {})
        self._writing(lambda unit: loop_outputs.carry(unit, run_id, output, limits), repeatable=True)

    def find_output(self, run_id: str, key: str) -> str | None:
        """The text that the last iteration handed on, in one round trip; None where there is none, or no such run.

        A run of another program may hold the text itself, as ``scratch[key].lastOutput``: that is returned where there
        is no pointer.
        """
        values = {"run_id": valid.sought("run_id", run_id), "key": valid.sought("key", key)}
        return cast("str | None", self._reading(lambda unit: unit.value(loop_outputs.FIND, values)))

    def _values(self, run_id: str, loop_id: str, claim: Claim | None) -> dict[str, Any]:
        return {
            "run_id": run_id,
            "loop_id": valid.identifier("loop_id", loop_id, words.ID),
            "at": self._now(),
            **shared.presented(claim),
        }
