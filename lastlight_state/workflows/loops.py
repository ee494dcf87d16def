"""Loops: where each loop of a run stands, and the text that one iteration hands to the next.

A loop begins at iteration 0, with or without a row. It moves on by compare-and-set, so that an iteration is neither
skipped nor counted twice, whoever crashes when. Every write here is an engine's and fenced, and none is accepted on a
run that has ended.
"""

from __future__ import annotations

from typing import Any, cast

from lastlight_state.db import checks
from lastlight_state.db.pages import Page
from lastlight_state.db.repository import Repository
from lastlight_state.db.unit import Unit
from lastlight_state.errors import Conflict, StaleVersion, StateError
from lastlight_state.workflows import execution_checks, loop_outputs, run_checks, run_rows, run_writes, words
from lastlight_state.workflows import execution_statements as executions
from lastlight_state.workflows import loop_statements as sql
from lastlight_state.workflows.arguments import Claim
from lastlight_state.workflows.execution_writes import Change
from lastlight_state.workflows.loop_outputs import Output
from lastlight_state.workflows.node_records import Loop

_LAST = 2**63 - 1
"""The iteration after which there is no other."""


class Loops(Repository):
    """``store.workflows.loops``"""

    def put(self, run_id: str, loop_id: str, *, iteration: int, done: bool = False, claim: Claim | None = None) -> Loop:
        """Set where a loop of a live run stands, whatever it was: also rewinds.

        Raises `NotFound`, `ClaimLost`, `Conflict` ``run_status``.
        """
        values = self._values(run_id, loop_id, claim) | {
            "iteration": checks.number("iteration", iteration),
            "done": checks.flag("done", done),
        }
        return run_writes.decide(self._scope, run_id, claim, lambda unit: unit.find(Loop, sql.PUT, values), keyed=True)

    def advance(self, run_id: str, loop_id: str, *, expected: int, claim: Claim | None = None) -> Loop:
        """Move a loop from iteration ``expected`` to the next; a loop without a row is at 0.

        A repeat, or another who was faster, is `StaleVersion` with the iteration ``found``; a loop that is done is
        `Conflict` ``loop_done``.
        """
        values = self._values(run_id, loop_id, claim) | {
            "expected": checks.number("expected", expected, most=_LAST - 1)
        }
        statement = sql.ADVANCE if expected else sql.ADVANCE_FIRST

        def refusal(unit: Unit) -> StateError:
            found = unit.find(Loop, sql.FIND, values)
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
            self._scope, run_id, claim, lambda unit: unit.find(Loop, sql.FINISH, values), keyed=True
        )

    def find(self, run_id: str, loop_id: str) -> Loop | None:
        """The loop, or None."""
        values = {"run_id": checks.sought("run_id", run_id), "loop_id": checks.sought("loop_id", loop_id)}
        return self._reading(lambda unit: unit.find(Loop, sql.FIND, values))

    def list(self, run_id: str, *, limit: int = 50, page_token: str | None = None) -> Page[Loop]:
        """A page of a run's loops by id, ascending. Raises `NotFound` for an unknown run."""
        checks.page_limit(limit)
        return self._reading(lambda unit: run_rows.page_of(unit, sql.LIST, Loop.of, limit, page_token, run_id=run_id))

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
        output = Output(checks.identifier("key", key, words.ID), save, now, run_checks.scratch_patch(state) or {})
        self._writing(lambda unit: loop_outputs.carry(unit, run_id, output, limits), keyed=True)

    def find_output(self, run_id: str, key: str) -> str | None:
        """The text that the last iteration handed on, in one round trip; None where there is none, or no such run.

        A run of another program may hold the text itself, as ``scratch[key].lastOutput``: that is returned where there
        is no pointer.
        """
        values = {"run_id": checks.sought("run_id", run_id), "key": checks.sought("key", key)}
        return cast("str | None", self._reading(lambda unit: unit.value(loop_outputs.FIND, values)))

    def _values(self, run_id: str, loop_id: str, claim: Claim | None) -> dict[str, Any]:
        return {
            "run_id": run_id,
            "loop_id": checks.identifier("loop_id", loop_id, words.ID),
            "at": self._now(),
            **execution_checks.presented(claim),
        }
