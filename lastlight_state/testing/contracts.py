"""What every store must do, whatever database carries it: behaviours as test classes over a fixture ``store``.

For backends of third parties, and for whoever wants to know that an installed library works on a database as it is::

    from lastlight_state.testing.contracts import RunsContract


    class TestRuns(RunsContract):
        pass

``store`` is a `lastlight_state.StateStore` (the plugin's own unless a test module has another), ``frozen_clock`` its
clock. The database need not be empty, and need not be emptied: each test uses ids of its own.
"""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta
from decimal import Decimal
from typing import Any
from uuid import uuid4

import pytest

from lastlight_state import (
    AlreadyAnswered,
    AlreadyExists,
    Conflict,
    LostRace,
    NotFound,
    StaleVersion,
    StateStore,
)
from lastlight_state.messaging import ConversationKey, MessageDraft
from lastlight_state.testing.clock import FrozenClock
from lastlight_state.workflows import Approval, Failure, Gate, PhaseEntry, RunOptions, Trigger, Usage, WorkflowRun


def fresh(word: str) -> str:
    """A name that nobody has used."""
    return f"{word}-{uuid4().hex}"


def started(store: StateStore, **given: Any) -> WorkflowRun:
    """A new run, triggered by itself."""
    name = given.pop("workflow_name", "contract")
    return store.workflows.runs.create(name, trigger=Trigger(fresh("t"), type="api"), phase="plan", **given)


def paused(store: StateStore, **gate: Any) -> Approval:
    """A new run's gate, at which it waits."""
    return store.workflows.approvals.pause(started(store).id, Gate("review", "Go ahead?", **gate))


class RunsContract:
    """``store.workflows.runs``"""

    def test_a_run_reads_back_as_it_was_created(self, store: StateStore) -> None:
        run = started(store, context={"issue": 7, "text": "ünï"}, scratch={"a": [1, None, 2.5]})
        assert store.workflows.runs.get(run.id) == run
        assert (run.status, run.context["text"], run.scratch) == ("running", "ünï", {"a": [1, None, 2.5]})

    def test_an_unknown_run_is_not_found(self, store: StateStore) -> None:
        with pytest.raises(NotFound):
            store.workflows.runs.get(fresh("run"))

    def test_an_id_in_use_is_refused(self, store: StateStore) -> None:
        run = started(store)
        with pytest.raises(AlreadyExists):
            started(store, options=RunOptions(id=run.id))

    def test_a_key_makes_one_run(self, store: StateStore) -> None:
        key, trigger = fresh("key"), Trigger(fresh("t"))
        first = store.workflows.runs.ensure(key, "contract", trigger=trigger, phase="plan")
        again = store.workflows.runs.ensure(key, "contract", trigger=trigger, phase="plan")
        assert (first.created, again.created, again.run.id) == (True, False, first.run.id)

    def test_phases_grow_the_history_and_merge_the_scratch(self, store: StateStore) -> None:
        run = started(store, scratch={"kept": 1})
        store.workflows.runs.append_phase(run.id, PhaseEntry("plan", success=True), scratch={"files": 2})
        progress = store.workflows.runs.append_phase(run.id, PhaseEntry("build", success=False))
        stored = store.workflows.runs.get(run.id)
        assert (progress.phase, progress.phase_count, stored.current_phase) == ("build", 2, "build")
        assert [entry["phase"] for entry in stored.phase_history] == ["plan", "build"]
        assert stored.scratch == {"kept": 1, "files": 2}

    def test_an_end_is_final(self, store: StateStore) -> None:
        run = started(store)
        ended = store.workflows.runs.finish(run.id, "succeeded")
        assert (ended.status, ended.finished_at is not None) == ("succeeded", True)
        with pytest.raises(Conflict):
            store.workflows.runs.finish(run.id, "failed", failure=Failure("too late"))
        assert store.workflows.runs.get(run.id) == ended

    def test_restarts_end_at_the_limit(self, store: StateStore) -> None:
        run = started(store, options=RunOptions(max_restarts=1))
        store.workflows.runs.finish(run.id, "failed", failure=Failure("no"))
        assert store.workflows.runs.restart(run.id, by="ana", reason="again").restart_count == 1
        store.workflows.runs.finish(run.id, "failed", failure=Failure("no"))
        with pytest.raises(Conflict) as caught:
            store.workflows.runs.restart(run.id, by="ana", reason="again")
        assert caught.value.code == "restart_limit"

    def test_pages_show_each_run_once_newest_first(self, store: StateStore, frozen_clock: FrozenClock) -> None:
        name, ids = fresh("workflow"), []
        for _ in range(5):
            ids.append(started(store, workflow_name=name).id)
            frozen_clock.advance(seconds=1)
        seen: list[str] = []
        token: str | None = None
        for _ in range(3):
            page = store.workflows.runs.list(workflow_names=[name], limit=2, page_token=token)
            seen += [summary.id for summary in page.items]
            token = page.next_page_token
        assert (seen, token) == (ids[::-1], None)

    def test_what_fails_together_leaves_nothing(self, store: StateStore) -> None:
        run_id = fresh("run")
        with suppress(Conflict), store.transaction() as tx:
            tx.workflows.runs.create("contract", trigger=Trigger("t"), phase="plan", options=RunOptions(id=run_id))
            raise Conflict("the caller's own code failed")
        with pytest.raises(NotFound):
            store.workflows.runs.get(run_id)


class ExecutionsContract:
    """``store.workflows.executions``"""

    def test_an_execution_ends_once_with_what_it_used(self, store: StateStore) -> None:
        executions, run = store.workflows.executions, started(store)
        execution = executions.start("contract:plan", run_id=run.id, session_id=fresh("s"))
        usage = Usage(turns=3, input_tokens=812, output_tokens=96, cost_usd=Decimal("0.012345"))
        ended = executions.finish(execution.id, "succeeded", usage=usage)
        assert (ended.outcome, ended.success, ended.turns, ended.cost_usd) == (
            "succeeded",
            True,
            3,
            Decimal("0.012345"),
        )
        assert executions.get(execution.id) == ended
        with pytest.raises(LostRace):
            executions.finish(execution.id, "failed", failure=Failure("too late"))

    def test_a_phase_is_run_until_it_succeeded(self, store: StateStore) -> None:
        executions, run = store.workflows.executions, started(store)
        assert executions.phase_state("contract:plan", run_id=run.id) == "run"
        failing = executions.start("contract:plan", run_id=run.id)
        assert executions.phase_state("contract:plan", run_id=run.id) == "running"
        executions.finish(failing.id, "failed", failure=Failure("no"))
        executions.finish(executions.start("contract:plan", run_id=run.id).id, "succeeded")
        assert executions.phase_state("contract:plan", run_id=run.id) == "done"

    def test_the_scratch_points_to_an_output(self, store: StateStore) -> None:
        executions, run = store.workflows.executions, started(store)
        execution = executions.start("contract:explore", run_id=run.id)
        executions.save_output(execution.id, "what was found ✓", loop="explore")
        scratch = store.workflows.runs.get(run.id).scratch
        assert executions.find_output(scratch["explore"]["lastOutputExecutionId"]) == "what was found ✓"

    def test_a_session_leads_to_its_execution(self, store: StateStore) -> None:
        session = fresh("session")
        execution = store.workflows.executions.start("contract:plan", run_id=started(store).id, session_id=session)
        assert store.workflows.executions.find_by_session(session) == execution


class ApprovalsContract:
    """``store.workflows.approvals``"""

    def test_a_gate_pauses_its_run_and_an_approval_lets_it_go_on(self, store: StateStore) -> None:
        approval = paused(store)
        assert store.workflows.runs.get(approval.workflow_run_id).status == "paused"
        answered = store.workflows.approvals.answer(approval.id, "approved", by="ana", response="fine")
        assert (answered.approval.status, answered.approval.responded_by) == ("approved", "ana")
        assert store.workflows.runs.get(approval.workflow_run_id).status == "running"

    def test_a_rejection_fails_the_run(self, store: StateStore) -> None:
        approval = paused(store)
        store.workflows.approvals.answer(approval.id, "rejected", by="ana")
        assert store.workflows.runs.get(approval.workflow_run_id).status == "failed"

    def test_there_is_one_answer_and_the_loser_learns_it(self, store: StateStore) -> None:
        approval = paused(store)
        store.workflows.approvals.answer(approval.id, "approved", by="ana")
        with pytest.raises(AlreadyAnswered) as caught:
            store.workflows.approvals.answer(approval.id, "rejected", by="bo")
        assert (caught.value.winner.status, caught.value.winner.responded_by) == ("approved", "ana")

    def test_a_gate_whose_time_has_come_expires(self, store: StateStore, frozen_clock: FrozenClock) -> None:
        approval = paused(store, expires_at=frozen_clock.now() + timedelta(minutes=5))
        frozen_clock.advance(timedelta(minutes=6))
        assert approval.id in store.workflows.approvals.expire_due()
        assert store.workflows.approvals.get(approval.id).status == "expired"


class MessagingContract:
    """``store.messaging``"""

    def test_a_key_has_one_active_session_with_or_without_a_thread(self, store: StateStore) -> None:
        for thread in (None, "T1"):
            key = ConversationKey("slack", fresh("C"), "U1", thread)
            first, again = store.messaging.sessions.resume(key), store.messaging.sessions.resume(key)
            assert (first.created, again.created, again.session) == (True, False, first.session)

    def test_silence_starts_a_new_session(self, store: StateStore, frozen_clock: FrozenClock) -> None:
        key = ConversationKey("slack", fresh("C"), "U1")
        first = store.messaging.sessions.resume(key, idle_timeout=timedelta(minutes=30))
        frozen_clock.advance(timedelta(minutes=31))
        second = store.messaging.sessions.resume(key, idle_timeout=timedelta(minutes=30))
        assert (second.created, second.replaced) == (True, first.session.id)
        assert store.messaging.sessions.get(first.session.id).deactivated_reason == "timeout"

    def test_messages_are_counted_in_their_order_and_a_redelivery_is_not_stored(self, store: StateStore) -> None:
        session = store.messaging.sessions.resume(ConversationKey("slack", fresh("C"), "U1")).session
        drafts = [
            MessageDraft("user", "hello", "m1"),
            MessageDraft("assistant", "hi\n✓"),
            MessageDraft("user", "x", "m1"),
        ]
        stored = store.messaging.messages.append_many(session.id, drafts)
        assert [appended.created for appended in stored] == [True, True, False]
        assert [message.content for message in store.messaging.messages.history(session.id)] == ["hello", "hi\n✓"]
        assert store.messaging.sessions.get(session.id).message_count == 2

    def test_an_update_of_what_has_changed_is_refused(self, store: StateStore) -> None:
        session = store.messaging.sessions.resume(ConversationKey("slack", fresh("C"), "U1")).session
        updated = store.messaging.sessions.update(session.id, version=session.version, title="Deploys")
        assert (updated.title, updated.version) == ("Deploys", session.version + 1)
        with pytest.raises(StaleVersion):
            store.messaging.sessions.update(session.id, version=session.version, title="Other")
