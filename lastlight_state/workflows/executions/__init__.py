"""Executions: each is one run of a phase, one chat turn or one attempt at a node. Its session id names its agent log.

An execution is *in flight* until it ends, and it ends once: a late finish never overwrites an earlier one. Its usage
only grows, and anybody may report it at any time. All other writes need the claim that holds the run, or raise
`ClaimLost`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Any, Literal, cast

from lastlight_state.db import valid
from lastlight_state.db.repository import Repository
from lastlight_state.db.rows.records import Page
from lastlight_state.db.schema.declarations import limits_of
from lastlight_state.db.units.scope import TransactionScope
from lastlight_state.db.units.unit import Unit
from lastlight_state.errors import AlreadyExists, Conflict, InvalidValue, LostRace, MisuseError
from lastlight_state.workflows import checks as shared, words
from lastlight_state.workflows.arguments import Claim, ExecutionOptions, Failure, LoopStep, NodeRef, Trigger, Usage
from lastlight_state.workflows.executions import changes, checks, lists, running, statements as sql
from lastlight_state.workflows.executions.changes import AloneExecution, Change, NewExecution, Update
from lastlight_state.workflows.executions.lists import LoopOutput
from lastlight_state.workflows.executions.records import Execution, ExecutionSummary
from lastlight_state.workflows.executions.running import Ended, RunningExecution, Steps
from lastlight_state.workflows.shared import loops, progress
from lastlight_state.workflows.tables import LOOPS
from lastlight_state.workflows.words import NodeState

_LOOP = limits_of(LOOPS)

PhaseState = Literal["run", "running", "done"]

NO_OPTIONS = ExecutionOptions()

#: The error codes for an id that is used already: of the unique index, or of the guard that fires before it.
_ID_IS_USED = ("unique", "refused_by_database")


class Executions(Repository):
    """``store.workflows.executions``: start, update, end and list executions."""

    def start(
        self,
        skill: str,
        *,
        run_id: str | None = None,
        trigger: Trigger | None = None,
        node: NodeRef | None = None,
        session_id: str | None = None,
        options: ExecutionOptions = NO_OPTIONS,
        claim: Claim | None = None,
    ) -> Execution:
        """Start an execution of a running run, or (for chat turns) of a ``trigger`` without a run.

        An execution of a run copies the run's trigger, repository, issue and actor. With a ``node``, the node becomes
        running and the execution is its next attempt, numbered from 1; concurrent starts get different numbers. Raises
        `NotFound` for an unknown run, `Conflict` ``run_status`` unless it is running, `AlreadyExists` for a used id.
        """
        row = checks.new_execution(self._now(), skill, run_id, node, options, claim)
        row["session_id"] = None if session_id is None else valid.session_id("session_id", session_id)
        if run_id is not None:
            checks.in_a_run(trigger)
            return self._insert(row, lambda: self._insert_into_run(run_id, row, claim))
        alone: AloneExecution = {**row, **checks.alone(skill, trigger, node, claim)}
        return self._insert(alone, lambda: self._change_row(sql.START_ALONE, alone))

    def skip(
        self, skill: str, *, run_id: str, reason: str, node: NodeRef | None = None, claim: Claim | None = None
    ) -> Execution:
        """Store an execution that a running run skipped: it starts and ends at once, with ``reason`` as its error.

        A ``node`` becomes skipped, and the execution counts as its next attempt. Raises as `start` does.
        """
        row = checks.skipped_execution(self._now(), skill, run_id, node, reason, claim)
        return self._insert(row, lambda: self._insert_into_run(run_id, row, claim))

    def update(
        self,
        execution_id: str,
        *,
        session_id: str | None = None,
        checkpoint: Any = None,
        usage: Usage | None = None,
        claim: Claim | None = None,
    ) -> Execution:
        """Set the given fields of an execution in flight, and its heartbeat. ``checkpoint`` is JSON, at most 256 KiB.

        ``usage`` holds running totals, which only grow, so a report that arrives twice counts once. Usage alone is
        accepted from anybody at any time, also without a claim and after the end, because money spent is a fact. Any
        other field of an ended execution raises `Conflict` ``execution_finished``.
        """
        values = checks.update(execution_id, self._now(), session_id, checkpoint, usage, claim)
        if usage is not None and session_id is None and checkpoint is None:
            return self._report(values)
        given = (session_id is not None, checkpoint is not None, usage is not None)
        return self._change(Change(sql.UPDATES[given], values, claim, _judge_update))

    def finish_phase(
        self,
        execution_id: str,
        outcome: Ended = "succeeded",
        *,
        summary: str | None = None,
        scratch: dict[str, Any] | None = None,
        usage: Usage | None = None,
        failure: Failure | None = None,
        stop_reason: str | None = None,
        session_id: str | None = None,
        output: str | None = None,
        pointer: str | None = None,
        details: Any = None,
        loop: LoopStep | None = None,
        claim: Claim | None = None,
    ) -> Execution:
        """End an execution of a run and append its phase to the run's history, in one transaction.

        The phase's name is the part of the execution's ``skill`` after the last colon. A failure without a ``summary``
        gets the first line of its error as summary. ``scratch`` is merged into the run's scratch. ``output`` is stored
        as by `finish`; with ``pointer``, ``scratch[pointer].lastOutputExecutionId`` names this execution. ``loop``
        moves that loop from its iteration to the next. All is stored, or nothing.
        Repeat-safe as `finish`: a second call with the same end changes nothing. Raises as `finish`,
        `Runs.append_phase` and `Loops.advance` do.
        """
        now, limits = self._now(), self._settings.limits
        values = checks.finish(execution_id, now, outcome, usage, failure, stop_reason, session_id, claim)
        results = checks.results(limits, output, details)
        patch, members = shared.scratch_patch(scratch), checks.pointer_members(pointer, output, execution_id)
        said = valid.optional_content("summary", summary, words.SUMMARY)
        moved = None if loop is None else loops.of_step(loop, now, claim)

        def then(unit: Unit, ended: Execution) -> None:
            phase = changes.phase_of(ended, said, now)
            progress.take(unit, replace(phase, patch=patch, members=members), limits, claim)
            if moved is not None:
                loops.advance_held(unit, {**moved, "run_id": phase.run_id})
            self._note_lost_log(unit, ended)

        change = changes.end_change(values, results, claim, then)
        return self._writing(lambda unit: change.attempt(unit) or change.look_again(unit), repeatable=True)

    def finish(
        self,
        execution_id: str,
        outcome: Ended,
        *,
        usage: Usage | None = None,
        failure: Failure | None = None,
        stop_reason: str | None = None,
        session_id: str | None = None,
        output: str | None = None,
        details: Any = None,
        node_state: NodeState | None = None,
        claim: Claim | None = None,
    ) -> Execution:
        """End an execution. Fields that are not given keep the values of `start`, `update` and `save_output`.

        A success has no ``failure``; ``stop_reason`` says why the work stopped, after any outcome. ``output`` is a text
        for later steps, at most 1 MiB; ``details`` is JSON of at most 64 KiB. ``node_state`` sets the state of the
        execution's node in the same transaction. The holder of the run may end an execution of an earlier holder.
        Repeat-safe for an equal outcome, failure and reason; another end raises `LostRace` with the stored outcome as
        ``found``. An execution that used tokens but has no session id is accepted, logged, and counted in
        ``metrics.executions_without_session``: its log cannot be found. ``list(lost_log=True)`` lists such executions.
        """
        now = self._now()
        values = checks.finish(execution_id, now, outcome, usage, failure, stop_reason, session_id, claim)
        results = checks.results(self._settings.limits, output, details)
        if node_state is not None:
            valid.word("node_state", node_state, words.NODE_STATES)

        if node_state is None:
            return self._change(changes.end_change(values, results, claim, self._note_lost_log))

        def then(unit: Unit, ended: Execution) -> None:
            changes.move_node(unit, ended, node_state, now)
            self._note_lost_log(unit, ended)

        change = changes.end_change(values, results, claim, then)
        return self._writing(lambda unit: change.attempt(unit) or change.look_again(unit), repeatable=True)

    def running(
        self,
        skill: str,
        *,
        run_id: str | None = None,
        trigger: Trigger | None = None,
        node: NodeRef | None = None,
        session_id: str | None = None,
        options: ExecutionOptions = NO_OPTIONS,
        claim: Claim | None = None,
    ) -> AbstractContextManager[RunningExecution]:
        """Return a block around the work of an execution: it starts the execution first and ends it afterwards.

        In ``with executions.running(…) as execution`` the block sets ``execution.usage``, ``.output``, ``.session_id``,
        ``.details``, ``.stop_reason``, ``.node_state``, and if it did not succeed ``.outcome`` with ``.failure``; or it
        ends the execution itself.
        If the block raises, the execution is ``failed`` with that error, or ``interrupted`` after a `KeyboardInterrupt`
        or a cancelled task. The error goes on unchanged, with a note if it could not be stored. Usage is kept even if
        the claim was lost. Raises as `start` and `finish` do; `MisuseError` in a transaction.
        """
        if isinstance(self._scope, TransactionScope):
            raise MisuseError("an execution runs longer than a transaction should: call running() on the store")
        start = partial(
            self.start, skill, run_id=run_id, trigger=trigger, node=node, session_id=session_id, options=options
        )
        steps = Steps(
            partial(start, claim=claim),
            partial(self.save_output, claim=claim),
            self.update,
            partial(self.finish, claim=claim),
        )
        return running.execution_block(steps, self._settings.limits)

    def interrupt(self, run_id: str, *, reason: str, skill: str | None = None, claim: Claim | None = None) -> int:
        """End a run's executions in flight, all or those of one skill, as interrupted. Returns their number.

        A new holder of a run calls this first. Executions of other runs with the same trigger are never touched.
        """
        facts = checks.interruption(self._now(), reason, skill)
        return self._writing(lambda unit: changes.interrupt(unit, run_id, facts, claim))

    def overrule(self, execution_id: str, *, failure: Failure, claim: Claim | None = None) -> Execution:
        """Turn a success into a failure (``stop_reason`` ``overruled``), so that its phase runs again.

        Also ends an execution in flight. Repeat-safe for an equal failure. An execution that ended otherwise raises
        `Conflict` ``execution_finished``.
        """
        values = checks.overrule(execution_id, self._now(), failure, claim)

        def judge(stored: Execution) -> Execution | None:
            if changes.in_flight(stored) or stored.outcome == "succeeded":
                return None
            if changes.ended_alike(stored, values):
                return stored
            raise changes.finished_error(stored, "succeeded", "running")

        return self._change(Change(sql.OVERRULE, values, claim, judge))

    def phase_state(self, skill: str, *, run_id: str | None = None, trigger_id: str | None = None) -> PhaseState:
        """Return the state of a phase in a run, or else for a trigger: ``run`` (it must run), ``running`` or ``done``.

        A phase with an execution in flight is running, even after a success. Skipped and failed executions do not make
        it done. The skill is compared exactly. Raises `NotFound` for an unknown run.
        """
        if run_id is None and trigger_id is None:
            raise InvalidValue("run_id", "missing: expected run_id or trigger_id")
        statement = sql.STATE_OF_TRIGGER if run_id is None else sql.STATE_IN_RUN
        values = {"skill": valid.lookup_text("skill", skill), "run_id": run_id}
        if trigger_id is not None:
            values["trigger_id"] = valid.lookup_text("trigger_id", trigger_id)
        state = self._value(statement, values)
        if state is None:
            raise valid.not_found("workflow_run", run_id)
        return cast(PhaseState, state)

    def get(self, execution_id: str) -> Execution:
        """Return the execution without its output text.

        Raises `NotFound`, or `CorruptData` if its JSON cannot be read.
        """
        values = {"execution_id": execution_id}
        return self._get_row(sql.GET, values, kind="execution", key=execution_id)

    def find_by_session(self, session_id: str) -> Execution | None:
        """Return the newest execution with this session id, which names its agent log, or None."""
        values = {"session_id": valid.lookup_text("session_id", session_id)}
        return self._find(sql.FIND_SESSION, values)

    def list(
        self,
        *,
        run_id: str | None = None,
        trigger_id: str | None = None,
        skill: str | None = None,
        node: NodeRef | None = None,
        outcomes: Sequence[words.Outcome] | None = None,
        since: datetime | None = None,
        lost_log: bool = False,
        limit: int = 50,
        page_token: str | None = None,
    ) -> Page[ExecutionSummary]:
        """Return a page of executions, newest first.

        With ``run_id`` and ``node``, return the node's attempts in order of their numbers. ``since`` is inclusive. An
        empty sequence of outcomes matches nothing. ``lost_log`` lists only ended executions that used tokens but have
        no session id.

        All executions of a run or trigger are read and sorted. Without run and trigger, a search for rare ``outcomes``
        may read every execution, unless ``since`` limits it.
        """
        given = checks.list_filters(run_id, trigger_id, skill, node, outcomes or None, since, lost_log)
        if outcomes is not None and not outcomes:
            return Page(items=())
        listing = lists.listing_of(given)
        return self._page(listing, given, limit, page_token)

    def save_output(self, execution_id: str, text: str, *, loop: str | None = None, claim: Claim | None = None) -> None:
        """Store a text of at most 1 MiB for later steps. Records do not hold it; `find_output` returns it.

        With ``loop``, ``scratch[loop].lastOutputExecutionId`` of the run is set in the same transaction, so that it
        never names an execution without a text. Raises `NotFound` for an unknown execution.
        """
        now = self._now()
        values = checks.output_text(self._settings.limits, execution_id, text, claim)
        change = Change(sql.SAVE_OUTPUT, values, claim)
        if loop is None:
            self._change(change)
            return
        key = valid.identifier("loop", loop, _LOOP.loop_id)
        output = LoopOutput(key, change, now)
        self._writing(lambda unit: lists.save(unit, output, self._settings.limits))

    def find_output(self, execution_id: str) -> str | None:
        """Return the output text of an execution, or None if it has none or does not exist."""
        values = {"execution_id": valid.lookup_text("execution_id", execution_id)}
        return cast("str | None", self._value(sql.FIND_OUTPUT, values))

    def _insert(self, row: NewExecution, insert: Callable[[], Execution | None]) -> Execution:
        try:
            made = insert()
        except Conflict as error:
            if error.code in _ID_IS_USED:
                raise AlreadyExists("execution", row["id"]) from error
            raise
        if made is None:
            raise LostRace(f"run {row['workflow_run_id']!r} is being changed by another process")
        return made

    def _insert_into_run(self, run_id: str, row: NewExecution, claim: Claim | None) -> Execution | None:
        """Insert an execution with one statement, or two for a node's attempt. Retry once under the run's lock."""
        if row["node_id"] is not None:
            return self._writing(lambda unit: changes.insert_attempt(unit, run_id, row, claim))
        made = self._change_row(sql.START, row)
        return made or self._writing(lambda unit: changes.insert(unit, run_id, row, claim))

    def _change(self, change: Change) -> Execution:
        return self._once(change.attempt, repeatable=True) or self._writing(change.look_again, repeatable=True)

    def _report(self, values: Update) -> Execution:
        reported = self._change_row(sql.REPORT, values, repeatable=True)
        if reported is None:
            raise valid.not_found("execution", values["execution_id"])
        return reported

    def _note_lost_log(self, unit: Unit, ended: Execution) -> None:
        lists.note(unit, ended, self._metrics)


def _judge_update(stored: Execution) -> Execution | None:
    if not changes.in_flight(stored):
        raise changes.finished_error(stored, "running")
    return None
