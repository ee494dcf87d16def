"""Contract tests of graphs' nodes and loops, approvals, and requests to people."""

from __future__ import annotations

from datetime import timedelta

import pytest

from lastlight_state import AlreadyAnswered, Conflict, InvalidValue, StaleVersion, StateStore
from lastlight_state.testing.clock import FrozenClock
from lastlight_state.testing.contracts.steps import pause_at_gate, start_run
from lastlight_state.workflows import HumanRequest, NodePut, NodeRef, Question

# Gates


class ApprovalsContract:
    """Tests of ``store.workflows.approvals``."""

    def test_a_gate_pauses_its_run_and_an_approval_lets_it_go_on(self, store: StateStore) -> None:
        approval = pause_at_gate(store)
        assert store.workflows.runs.get(approval.run_id).status == "paused"
        answered = store.workflows.approvals.answer(approval.id, "approved", by="ana", response="fine")
        assert (answered.approval.status, answered.approval.answered_by) == ("approved", "ana")
        assert store.workflows.runs.get(approval.run_id).status == "running"

    def test_a_rejection_fails_the_run(self, store: StateStore) -> None:
        approval = pause_at_gate(store)
        store.workflows.approvals.answer(approval.id, "rejected", by="ana")
        assert store.workflows.runs.get(approval.run_id).status == "failed"

    def test_there_is_one_answer_and_the_loser_learns_it(self, store: StateStore) -> None:
        approval = pause_at_gate(store)
        store.workflows.approvals.answer(approval.id, "approved", by="ana")
        with pytest.raises(AlreadyAnswered) as caught:
            store.workflows.approvals.answer(approval.id, "rejected", by="bo")
        assert (caught.value.winner.status, caught.value.winner.answered_by) == ("approved", "ana")

    def test_a_gate_whose_time_has_come_expires(self, store: StateStore, frozen_clock: FrozenClock) -> None:
        approval = pause_at_gate(store, expires_at=frozen_clock.now() + timedelta(minutes=5))
        frozen_clock.advance(timedelta(minutes=6))
        assert approval.id in store.workflows.approvals.expire_due()
        assert store.workflows.approvals.get(approval.id).status == "expired"


# Requests to people

ASK = NodeRef("ask")


class HumanRequestsContract:
    """Tests of ``store.workflows.human_requests``."""

    def test_a_request_pauses_its_run_and_an_answer_lets_it_go_on(self, store: StateStore) -> None:
        request = self._ask_question(store, Question(ASK, "select", "Where to?", options=["north", "süd"]))
        assert store.workflows.runs.get(request.run_id).status == "paused"
        answered = store.workflows.human_requests.answer(request.id, "süd", by="ana")
        assert (answered.request.status, answered.request.response) == ("answered", "süd")
        assert store.workflows.runs.get(request.run_id).status == "running"

    def test_an_answer_that_does_not_fit_is_refused(self, store: StateStore) -> None:
        request = self._ask_question(store, Question(ASK, "confirm", "Sure?"))
        with pytest.raises(InvalidValue):
            store.workflows.human_requests.answer(request.id, 1, by="ana")
        assert store.workflows.human_requests.get(request.id).status == "pending"

    def test_there_is_one_answer_until_it_is_sent_back(self, store: StateStore) -> None:
        requests = store.workflows.human_requests
        request = self._ask_question(store, Question(ASK, "text", "Why?"))
        requests.answer(request.id, "because", by="ana")
        with pytest.raises(AlreadyAnswered):
            requests.answer(request.id, "no idea", by="bo")
        assert requests.reopen(request.id, reason="too short").reopened == 1
        assert requests.answer(request.id, "because of the lock", by="bo").request.answered_by == "bo"

    def test_a_request_whose_time_has_come_takes_no_answer(self, store: StateStore, frozen_clock: FrozenClock) -> None:
        until = frozen_clock.now() + timedelta(minutes=5)
        request = self._ask_question(store, Question(ASK, "text", "Why?", expires_at=until))
        frozen_clock.advance(seconds=300)
        with pytest.raises(Conflict) as caught:
            store.workflows.human_requests.answer(request.id, "late", by="ana")
        assert caught.value.code == "request_expired"
        store.workflows.human_requests.expire_due()
        assert store.workflows.runs.get(request.run_id).status == "running"

    def _ask_question(self, store: StateStore, question: Question) -> HumanRequest:
        return store.workflows.human_requests.pause(start_run(store).id, question)


class GraphsContract:
    """Tests of ``store.workflows.nodes`` and ``store.workflows.loops``."""

    def test_a_graph_is_put_at_once_and_a_field_not_given_stays(self, store: StateStore) -> None:
        run, nodes = start_run(store), store.workflows.nodes
        nodes.put_many(run.id, [NodePut(NodeRef(name), label=name.upper()) for name in ("a", "b")])
        nodes.put(run.id, NodeRef("a"), state="finished")
        assert [(node.node_id, node.state, node.label) for node in nodes.list(run.id).items] == [
            ("a", "finished", "A"),
            ("b", "pending", "B"),
        ]
        assert nodes.counts(run.id) == {"finished": 1, "pending": 1}

    def test_attempts_of_a_node_are_numbered(self, store: StateStore) -> None:
        run, executions = start_run(store), store.workflows.executions
        for attempt in (1, 2):
            execution = executions.start("contract:build", run_id=run.id, node=NodeRef("build"))
            assert execution.attempt == attempt
            executions.finish(execution.id, "succeeded", node_state="finished")
        node = store.workflows.nodes.get(run.id, NodeRef("build"))
        assert (node.state, node.last_attempt) == ("finished", 2)
        assert store.workflows.runs.get(run.id).node_statuses == {"build": "finished"}

    def test_a_node_changes_from_what_it_was_expected_to_be(self, store: StateStore) -> None:
        run = start_run(store)
        store.workflows.nodes.put(run.id, NodeRef("a"), state="running")
        with pytest.raises(StaleVersion):
            store.workflows.nodes.update(run.id, NodeRef("a"), state="finished", expected="pending")

    def test_an_iteration_is_gone_through_once(self, store: StateStore) -> None:
        run, loops = start_run(store), store.workflows.loops
        loops.put(run.id, "review", iteration=2)
        assert loops.advance(run.id, "review", expected=2).iteration == 3
        with pytest.raises(StaleVersion):
            loops.advance(run.id, "review", expected=2)
        loops.finish(run.id, "review")
        with pytest.raises(Conflict):
            loops.advance(run.id, "review", expected=3)

    def test_a_loop_carries_its_text_on(self, store: StateStore) -> None:
        run = start_run(store)
        execution = store.workflows.executions.start("contract:explore", run_id=run.id)
        store.workflows.loops.carry(run.id, "explore", execution_id=execution.id, text="so far ✓", state={"round": 1})
        assert store.workflows.loops.find_output(run.id, "explore") == "so far ✓"
