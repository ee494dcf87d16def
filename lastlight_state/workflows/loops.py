"""Loops: the current iteration of each loop of a run, and the text that one iteration hands to the next.

A loop begins at iteration 0, whether it has a row or not. `advance` compares the iteration before it counts up, so
that a crash neither skips an iteration nor counts one twice. Every write takes the ``claim`` that holds the run, and
the run must not have ended.
"""

from __future__ import annotations

from typing import Any, cast

import sqlalchemy as sa

from lastlight_state.db import valid
from lastlight_state.db.lists.listing import Listing
from lastlight_state.db.repository import Repository
from lastlight_state.db.rows.records import Page
from lastlight_state.db.rows.statements import bind, number
from lastlight_state.db.units.unit import Unit
from lastlight_state.errors import StateError
from lastlight_state.workflows import checks as shared
from lastlight_state.workflows.arguments import Claim
from lastlight_state.workflows.executions.changes import Change
from lastlight_state.workflows.executions.checks import output_text
from lastlight_state.workflows.executions.lists import FIND_CARRIED, LoopOutput, carry
from lastlight_state.workflows.executions.statements import SAVE_OUTPUT
from lastlight_state.workflows.records import Loop
from lastlight_state.workflows.shared import loops, run_rows
from lastlight_state.workflows.shared.loops import COLUMNS, FIND, THIS_RUN, TOUCHED, upsert
from lastlight_state.workflows.tables import LOOPS

_c = LOOPS.c

_given = {"iteration": bind("iteration", _c.iteration), "done": bind("done", _c.done)}
PUT = upsert(_given, **_given)

FINISH = upsert(
    {"iteration": number(0), "done": sa.true()},
    done=sa.true(),
    updated_at=sa.case((_c.done == sa.true(), _c.updated_at), else_=TOUCHED["updated_at"]),
)
LIST = Listing("loops", COLUMNS, order=(_c.loop_id,), descending=False, filters={"run_id": THIS_RUN}, row=Loop)


class Loops(Repository):
    """``store.workflows.loops``: set, advance and finish loops, and hand texts to the next iteration."""

    def put(self, run_id: str, loop_id: str, *, iteration: int, done: bool = False, claim: Claim | None = None) -> Loop:
        """Set the iteration of a loop of a live run, forwards or backwards.

        Raises `NotFound`, `ClaimLost`, `Conflict` ``run_status``.
        """
        values = {
            **loops.parameters(run_id, loop_id, self._now(), claim),
            "iteration": valid.number("iteration", iteration),
            "done": valid.flag("done", done),
        }
        return run_rows.decide(self._scope, run_id, claim, lambda unit: unit.row(PUT, values), repeatable=True)

    def advance(self, run_id: str, loop_id: str, *, expected: int, claim: Claim | None = None) -> Loop:
        """Move a loop from iteration ``expected`` to the next. A loop without a row is at iteration 0.

        A loop at another iteration raises `StaleVersion` with that iteration as ``found``; so does a repeated call. A
        loop that is done raises `Conflict` ``loop_done``.
        """
        values = loops.advance_parameters(run_id, loop_id, expected, self._now(), claim)

        def refusal(unit: Unit) -> StateError:
            return loops.advance_refusal(unit, values)

        return run_rows.decide(self._scope, run_id, claim, lambda unit: loops.advance(unit, values), refusal)

    def finish(self, run_id: str, loop_id: str, *, claim: Claim | None = None) -> Loop:
        """Mark a loop as done in its current iteration. Repeat-safe.

        Raises `NotFound`, `ClaimLost`, `Conflict` ``run_status``.
        """
        values = loops.parameters(run_id, loop_id, self._now(), claim)
        return run_rows.decide(self._scope, run_id, claim, lambda unit: unit.row(FINISH, values), repeatable=True)

    def find(self, run_id: str, loop_id: str) -> Loop | None:
        """Return a loop of a run, or None if the loop has no row."""
        values = {"run_id": valid.lookup_text("run_id", run_id), "loop_id": valid.lookup_text("loop_id", loop_id)}
        return self._find(FIND, values)

    def list(self, run_id: str, *, limit: int = 50, page_token: str | None = None) -> Page[Loop]:
        """Return a page of a run's loops by id, ascending. Raises `NotFound` for an unknown run."""
        return self._reading(run_rows.page_of(LIST, limit, page_token, run_id=run_id))

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
        """Pass a text to the next iteration of a loop.

        The text is stored as the output of an execution, and the execution's id in scratch. ``scratch[key]`` of the
        live run gets ``lastOutputExecutionId`` and the members of ``state``, and keeps its other members. Text and id
        are stored in one transaction. The execution must belong to the run (`InvalidValue`). Raises `NotFound`,
        `ClaimLost`, `Conflict` ``run_status``, `PayloadTooLarge`.
        """
        now, limits = self._now(), self._settings.limits
        save = Change(SAVE_OUTPUT, output_text(limits, execution_id, text, claim), claim)
        output = LoopOutput(valid.identifier("key", key), save, now, shared.scratch_patch(state) or {})
        self._writing(lambda unit: carry(unit, run_id, output, limits), repeatable=True)

    def find_output(self, run_id: str, key: str) -> str | None:
        """Return the text that the last `carry` with this key stored, read in one round trip.

        Returns None without a text, or for an unknown run.

        A run of another program may hold the text itself, as ``scratch[key].lastOutput``. That text is returned if
        scratch has no execution id.
        """
        values = {"run_id": valid.lookup_text("run_id", run_id), "key": valid.lookup_text("key", key)}
        return cast("str | None", self._value(FIND_CARRIED, values))
