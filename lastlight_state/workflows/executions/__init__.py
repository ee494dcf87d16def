"""Executions: one row per phase execution, chat turn or node attempt; the bridge from a run to its line files.

An execution is *in flight* until it has ended, and it ends once: a late finish never overwrites an earlier one. What
it used only grows, and is recorded from anybody at any time. Everything else that is written here is written by
whoever holds the run, and is refused with `ClaimLost` otherwise.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from functools import partial
from typing import Any, Literal, cast

from lastlight_state.db import valid
from lastlight_state.db.records import Page
from lastlight_state.db.repository import Repository
from lastlight_state.db.scope import TransactionScope
from lastlight_state.db.unit import Unit
from lastlight_state.errors import AlreadyExists, Conflict, InvalidValue, LostRace, MisuseError
from lastlight_state.workflows import words
from lastlight_state.workflows.arguments import Claim, ExecutionOptions, Failure, NodeRef, Trigger, Usage
from lastlight_state.workflows.executions import (
    changes as execution_writes,
    checks as execution_checks,
    lists as execution_list,
    outputs as loop_outputs,
    running as execution_block,
    statements as sql,
)
from lastlight_state.workflows.executions.changes import Change
from lastlight_state.workflows.executions.outputs import Output
from lastlight_state.workflows.executions.records import Execution, ExecutionSummary
from lastlight_state.workflows.executions.running import Ended, RunningExecution, Steps
from lastlight_state.workflows.words import NodeState

PhaseState = Literal["run", "running", "done"]

NO_OPTIONS = ExecutionOptions()
SPENT = ("turns", "input_tokens", "output_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")

_log = logging.getLogger("lastlight_state.workflows")


class Executions(Repository):
    """``store.workflows.executions``"""

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
        """Store a new execution, in flight, of a running run or (chat turns) of a ``trigger`` alone.

        One of a run has the run's trigger, repository, issue and actor. With a ``node`` that node becomes running and
        counts an attempt, whose number (from 1) this one gets; concurrent starts get different ones. Raises `NotFound`
        for an unknown run, `Conflict` ``run_status`` for one that does not run, `AlreadyExists` for a used id.
        """
        row = execution_checks.new_execution(self._now(), skill, run_id, node, options, claim)
        row["session_id"] = valid.optional("session_id", session_id, words.SESSION_ID)
        if run_id is not None:
            execution_checks.in_a_run(trigger)
            return self._insert(row, lambda: self._insert_into_run(row, claim))
        row |= execution_checks.alone(skill, trigger, node, claim)
        return self._insert(row, lambda: self._once(lambda unit: unit.find(Execution, sql.START_ALONE, row)))

    def skip(
        self, skill: str, *, run_id: str, reason: str, node: NodeRef | None = None, claim: Claim | None = None
    ) -> Execution:
        """Store that a running run passes over something, ended as it begins; ``reason`` stands where an error would.

        A ``node`` becomes skipped, and counts it as an attempt. Raises as `start` does.
        """
        row = execution_checks.skipped(self._now(), skill, run_id, node, reason, claim)
        return self._insert(row, lambda: self._insert_into_run(row, claim))

    def update(
        self,
        execution_id: str,
        *,
        session_id: str | None = None,
        checkpoint: Any = None,
        usage: Usage | None = None,
        claim: Claim | None = None,
    ) -> Execution:
        """Set what is given of an execution in flight, and its heartbeat. ``checkpoint`` is JSON of at most 256 KiB.

        ``usage`` is running totals: each only grows, so a report that arrives twice counts once. Usage alone is
        accepted from anybody at any time, from a fenced owner and after the end too, because money spent is a fact.
        All else on an ended execution is `Conflict` ``execution_finished``.
        """
        values = execution_checks.update(execution_id, self._now(), session_id, checkpoint, usage, claim)
        if usage is not None and session_id is None and checkpoint is None:
            return self._report(values)
        given = (session_id is not None, checkpoint is not None, usage is not None)
        return self._change(Change(sql.UPDATES[given], values, claim, _judge_update))

    def finish(
        self,
        execution_id: str,
        outcome: Ended,
        *,
        usage: Usage | None = None,
        failure: Failure | None = None,
        session_id: str | None = None,
        node_state: NodeState | None = None,
        claim: Claim | None = None,
    ) -> Execution:
        """End an execution; what is not given keeps the value that `update` stored.

        ``node_state`` moves the node that it was an attempt at, in the same transaction.
        The holder of the run may end what an earlier holder began. Repeat-safe for an equal outcome and failure;
        otherwise `LostRace`, whose ``found`` is the outcome that stands. One that used something and has no session id,
        so that its log cannot be found, is accepted, logged and counted in ``metrics.executions_without_session``.
        """
        now = self._now()
        values = execution_checks.finish(execution_id, now, outcome, usage, failure, session_id, claim)
        if node_state is not None:
            valid.word("node_state", node_state, words.NODE_STATES)

        def judge(stored: Execution) -> Execution | None:
            if execution_writes.in_flight(stored):
                return None
            if execution_writes.ended_alike(stored, values):
                return stored
            raise LostRace(f"execution {execution_id!r} has ended: {stored.outcome}", found=stored.outcome)

        if node_state is None:
            return self._change(Change(sql.FINISH, values, claim, judge, then=self._note_lost_log))

        def then(unit: Unit, ended: Execution) -> None:
            execution_writes.move_node(unit, ended, node_state, now)
            self._note_lost_log(unit, ended)

        change = Change(sql.FINISH, values, claim, judge, then)
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
        """A block around the work of an execution, which is started before it and ended after it.

        ``with executions.running(…) as execution``: the block sets ``execution.usage``, ``.output``, ``.session_id``,
        ``.node_state``, and ``.outcome`` with ``.failure`` where it did not succeed; or it ends the execution itself.
        When the block raises, the execution is ``failed`` with that error (``interrupted`` by a `KeyboardInterrupt` or
        a cancelled task), which is raised on unchanged, with a note where that could not be stored. Usage is kept even
        where the claim was lost. Raises as `start` and `finish` do. Not in a transaction (`MisuseError`).
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
        return execution_block.running(steps, self._settings.limits.output_text)

    def interrupt(self, run_id: str, *, reason: str, skill: str | None = None, claim: Claim | None = None) -> int:
        """End what is in flight in this run (of this skill) as interrupted; the number of executions ended.

        A new holder's first step. Executions of other runs with the same trigger are never touched.
        """
        facts = execution_checks.interrupting(self._now(), reason, skill)
        return self._writing(lambda unit: execution_writes.interrupt(unit, run_id, facts, claim))

    def overrule(self, execution_id: str, *, failure: Failure, claim: Claim | None = None) -> Execution:
        """Turn a success into a failure (``stop_reason`` ``overruled``), so that its phase runs again.

        Also ends one in flight. Repeat-safe for an equal failure; any other end is `Conflict` ``execution_finished``.
        """
        values = execution_checks.overrule(execution_id, self._now(), failure, claim)

        def judge(stored: Execution) -> Execution | None:
            if execution_writes.in_flight(stored) or stored.outcome == "succeeded":
                return None
            if execution_writes.ended_alike(stored, values):
                return stored
            raise execution_writes.finished(stored, "succeeded", "running")

        return self._change(Change(sql.OVERRULE, values, claim, judge))

    def phase_state(self, skill: str, *, run_id: str | None = None, trigger_id: str | None = None) -> PhaseState:
        """Whether a phase is to ``run``, is ``running``, or is ``done``, in a run or (without one) for a trigger.

        In flight beats done; skipped and failed are not done. The skill is compared exactly. Raises `NotFound` for an
        unknown run.
        """
        if run_id is None and trigger_id is None:
            raise InvalidValue("run_id", "a run or a trigger is needed")
        statement = sql.STATE_OF_TRIGGER if run_id is None else sql.STATE_IN_RUN
        values = {"skill": valid.sought("skill", skill), "run_id": run_id}
        if trigger_id is not None:
            values["trigger_id"] = valid.sought("trigger_id", trigger_id)
        state = self._reading(lambda unit: unit.value(statement, values))
        if state is None:
            raise valid.not_found("workflow_run", run_id)
        return cast(PhaseState, state)

    def get(self, execution_id: str) -> Execution:
        """The execution, without its output text. Raises `NotFound`, or `CorruptData` where its JSON cannot be read."""
        return self._reading(lambda unit: execution_writes.get(unit, execution_id))

    def find_by_session(self, session_id: str) -> Execution | None:
        """The newest execution with this session id, which is the key of its line file."""
        values = {"session_id": valid.sought("session_id", session_id)}
        return self._reading(lambda unit: unit.find(Execution, sql.FIND_SESSION, values))

    def list(
        self,
        *,
        run_id: str | None = None,
        trigger_id: str | None = None,
        skill: str | None = None,
        node: NodeRef | None = None,
        outcomes: Sequence[words.Outcome] | None = None,
        since: datetime | None = None,
        limit: int = 50,
        page_token: str | None = None,
    ) -> Page[ExecutionSummary]:
        """A page of executions, newest first; of one run and ``node``, attempt after attempt.

        ``since`` is inclusive. No outcomes at all match nothing.
        """
        given = execution_checks.list_filters(run_id, trigger_id, skill, node, outcomes or None, since)
        valid.page_limit(limit)
        if outcomes is not None and not outcomes:
            return Page(items=())
        listing = execution_list.listing_of(given)
        return self._reading(
            lambda unit: listing.page(unit, ExecutionSummary.of, limit=limit, page_token=page_token, given=given)
        )

    def save_output(self, execution_id: str, text: str, *, loop: str | None = None, claim: Claim | None = None) -> None:
        """Store the text that later steps read, at most 1 MiB; it is in no record.

        With ``loop`` the run's scratch points to it in the same transaction (``scratch[loop].lastOutputExecutionId``;
        other members stay), so a pointer never leads nowhere. Raises `NotFound` for an unknown execution.
        """
        now = self._now()
        values = execution_checks.output(self._settings.limits, execution_id, text, claim)
        change = Change(sql.SAVE_OUTPUT, values, claim)
        if loop is None:
            self._change(change)
            return
        key = valid.identifier("loop", loop, words.ID)
        output = Output(key, change, now)
        self._writing(lambda unit: loop_outputs.save(unit, output, self._settings.limits))

    def find_output(self, execution_id: str) -> str | None:
        """The text of an execution; None where none was ever stored, or there is no such execution."""
        values = {"execution_id": valid.sought("execution_id", execution_id)}
        return cast("str | None", self._reading(lambda unit: unit.value(sql.FIND_OUTPUT, values)))

    def _insert(self, row: dict[str, Any], insert: Callable[[], Execution | None]) -> Execution:
        try:
            made = insert()
        except Conflict as error:
            if error.code in ("unique", "refused_by_database"):  # the id, by its index or by the guard before it
                raise AlreadyExists("execution", row["id"]) from error
            raise
        if made is None:
            raise LostRace(f"run {row['workflow_run_id']!r} is being changed by another")
        return made

    def _insert_into_run(self, row: dict[str, Any], claim: Claim | None) -> Execution | None:
        """One statement, two for an attempt; where the first writes nothing, again under the run's lock."""
        if row["node_id"] is not None:
            return self._writing(lambda unit: execution_writes.insert_attempt(unit, row, claim))
        made = self._once(lambda unit: unit.find(Execution, sql.START, row))
        return made or self._writing(lambda unit: execution_writes.insert(unit, row, claim))

    def _change(self, change: Change) -> Execution:
        return self._once(change.attempt, repeatable=True) or self._writing(change.look_again, repeatable=True)

    def _report(self, values: dict[str, Any]) -> Execution:
        reported = self._once(lambda unit: unit.find(Execution, sql.REPORT, values), repeatable=True)
        if reported is None:
            raise valid.not_found("execution", values["execution_id"])
        return reported

    def _note_lost_log(self, unit: Unit, ended: Execution) -> None:
        if ended.session_id is not None or not any(getattr(ended, name) for name in SPENT):
            return

        def note() -> None:
            self._metrics.count("executions_without_session")
            _log.info("execution %s used tokens but has no session id: its log cannot be found", ended.id)

        unit.after_commit(note)


def _judge_update(stored: Execution) -> Execution | None:
    if not execution_writes.in_flight(stored):
        raise execution_writes.finished(stored, "running")
    return None
