"""What moves nodes by itself: attempts at them, and gates that they wait for."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from support.workflows.steps import Raw, started, together

from lastlight_state.errors import AlreadyExists, ClaimLost, Conflict, InvalidValue, LostRace
from lastlight_state.store import StateStore
from lastlight_state.testing import Database, FrozenClock
from lastlight_state.workflows import ExecutionOptions, Failure, Gate, NodeRef, Wait

A = NodeRef("a", 1)


def state_of(store: StateStore, run_id: str, node: NodeRef = A) -> tuple[str, int]:
    found = store.workflows.nodes.get(run_id, node)
    return found.state, found.last_attempt


def test_an_attempt_makes_its_node_and_counts_itself(store: StateStore, frozen_clock: FrozenClock) -> None:
    """workflows W-50."""
    run, executions = started(store), store.workflows.executions
    long_ago = ExecutionOptions(started_at=frozen_clock.now() - timedelta(days=1))
    assert executions.start("deploy:a", run_id=run.id, node=A, options=long_ago).attempt == 1
    node = store.workflows.nodes.get(run.id, A)
    assert (node.state, node.last_attempt, node.label, node.updated_at) == ("running", 1, None, frozen_clock.now())
    assert store.workflows.nodes.find(run.id, NodeRef("a")) is None


def test_an_attempt_takes_a_node_from_any_state_and_ends_its_wait(store: StateStore, frozen_clock: FrozenClock) -> None:
    """workflows W-50, W-70."""
    run, nodes = started(store), store.workflows.nodes
    nodes.put(
        run.id, A, state="waiting_signal", label="Build", output_table="builds", wait=Wait(frozen_clock.now(), "merged")
    )
    for attempt in (1, 2):
        assert store.workflows.executions.start("deploy:a", run_id=run.id, node=A).attempt == attempt
        node = nodes.get(run.id, A)
        assert (node.state, node.last_attempt, node.label, node.output_table) == ("running", attempt, "Build", "builds")
        assert (node.wake_at, node.waiting_for) == (None, None)
        nodes.put(run.id, A, state="failed")


def test_starts_at_once_count_every_attempt_once(every_backend: StateStore) -> None:
    """workflows W-50: attempts 1, 2, 3, 4, no error; by the node's row and by the executions."""
    run, executions = started(every_backend), every_backend.workflows.executions
    told = together([lambda: executions.start("deploy:a", run_id=run.id, node=A).attempt] * 4)
    assert sorted(told, key=str) == [1, 2, 3, 4]
    assert state_of(every_backend, run.id) == ("running", 4)
    assert [execution.attempt for execution in executions.list(run_id=run.id, node=A)] == [1, 2, 3, 4]


def test_attempts_that_another_program_wrote_are_counted(store: StateStore, raw: Raw) -> None:
    """workflows W-50: before there is a row of the node, and beside one."""
    run, executions = started(store), store.workflows.executions

    def another(attempt: int) -> None:
        raw(
            "UPDATE executions SET node_id = 'a', iteration = 1, attempt = ? WHERE id = ?",
            attempt,
            raw.execution(run.id),
        )

    another(1)
    another(2)
    assert executions.start("deploy:a", run_id=run.id, node=A).attempt == 3
    another(4)
    assert executions.start("deploy:a", run_id=run.id, node=A).attempt == 5
    assert state_of(store, run.id) == ("running", 5)


def test_an_attempt_that_is_refused_leaves_its_node_alone(store: StateStore, raw: Raw) -> None:
    """workflows W-14, W-50."""
    run, executions = started(store), store.workflows.executions
    executions.start("deploy:a", run_id=run.id, node=A, options=ExecutionOptions(id="e-1"))
    store.workflows.nodes.put(run.id, A, state="finished")
    with pytest.raises(AlreadyExists):
        executions.start("deploy:a", run_id=run.id, node=A, options=ExecutionOptions(id="e-1"))
    old = raw.hold(run.id)
    raw.hold(run.id, "worker-2")
    for call in (executions.start, lambda *args, **given: executions.skip(*args, **given, reason="off")):
        for claim in (None, old):
            with pytest.raises(ClaimLost):
                call("deploy:a", run_id=run.id, node=A, claim=claim)
    raw("UPDATE workflow_runs SET claim_owner = NULL")
    store.workflows.waits.pause(run.id)
    with pytest.raises(Conflict, match="paused"):
        executions.start("deploy:a", run_id=run.id, node=NodeRef("b"))
    assert state_of(store, run.id) == ("finished", 1)
    assert store.workflows.nodes.find(run.id, NodeRef("b")) is None


def test_a_node_that_is_passed_over_is_skipped(store: StateStore) -> None:
    """workflows W-112: one attempt, ended as it began."""
    run = started(store)
    assert store.workflows.executions.skip("deploy:a", run_id=run.id, node=A, reason="off").attempt == 1
    assert state_of(store, run.id) == ("skipped", 1)


def test_the_end_of_an_attempt_moves_its_node_in_the_same_transaction(store: StateStore, raw: Raw) -> None:
    """workflows W-52."""
    run, executions = started(store), store.workflows.executions
    first = executions.start("deploy:a", run_id=run.id, node=A)
    executions.finish(first.id, "failed", failure=Failure("boom"), node_state="pending")
    assert state_of(store, run.id) == ("pending", 1)
    second = executions.start("deploy:a", run_id=run.id, node=A)
    claim = raw.hold(run.id)
    with pytest.raises(ClaimLost):
        executions.finish(second.id, "succeeded", node_state="finished")
    assert state_of(store, run.id) == ("running", 2)
    executions.finish(second.id, "succeeded", node_state="finished", claim=claim)
    assert state_of(store, run.id) == ("finished", 2)


def test_an_end_that_comes_late_moves_no_node(store: StateStore) -> None:
    """workflows W-52: repeated or refused, the node has gone on."""
    run, executions = started(store), store.workflows.executions
    first = executions.start("deploy:a", run_id=run.id, node=A)
    ended = executions.finish(first.id, "failed", failure=Failure("boom"), node_state="pending")
    executions.start("deploy:a", run_id=run.id, node=A)
    assert executions.finish(first.id, "failed", failure=Failure("boom"), node_state="pending") == ended
    with pytest.raises(LostRace):
        executions.finish(first.id, "succeeded", node_state="finished")
    assert state_of(store, run.id) == ("running", 2)


def test_only_an_attempt_at_a_node_moves_one(store: StateStore) -> None:
    """workflows W-52, W-1."""
    run, executions = started(store), store.workflows.executions
    phase, attempt = (executions.start("deploy:a", run_id=run.id, node=node) for node in (None, A))
    for execution, state in ((phase, "finished"), (attempt, "done")):
        with pytest.raises(InvalidValue, match="node_state"):
            executions.finish(execution.id, "succeeded", node_state=state)  # type: ignore[arg-type]
        assert executions.get(execution.id).outcome == "running"


def asked(store: StateStore, **given: Any) -> tuple[str, str]:
    """A run that goes on beside a gate of its node; the ids of both."""
    run = started(store)
    store.workflows.nodes.put(run.id, A, state="running", label="Build")
    return run.id, store.workflows.approvals.create(run.id, Gate("plan", "Go?", node=A, **given)).id


def test_a_node_waits_for_its_gate(store: StateStore) -> None:
    """workflows W-114: created beside the run or with its pause; a node that nobody put is made."""
    run_id, _ = asked(store)
    assert state_of(store, run_id) == ("waiting_approval", 0)
    run = started(store)
    store.workflows.approvals.pause(run.id, Gate("plan", "Go?", node=A))
    assert state_of(store, run.id) == ("waiting_approval", 0)


def test_the_inbox_names_the_node_by_its_label(store: StateStore) -> None:
    """workflows W-88: None where the node has none, or the gate no node."""
    approvals = store.workflows.approvals
    asked(store)
    approvals.create(started(store).id, Gate("plan", "Go?", node=A))
    approvals.create(started(store).id, Gate("plan", "Go?"))
    assert sorted(str(gate.label) for gate in approvals.list_pending()) == ["Build", "None", "None"]


@pytest.mark.parametrize(
    ("decision", "on_reject", "state"),
    [("approved", "fail", "pending"), ("rejected", "resume", "failed"), ("rejected", "fail", "failed")],
)
def test_an_answer_moves_the_node_on(store: StateStore, decision: Any, on_reject: Any, state: str) -> None:
    """workflows W-82."""
    run_id, gate_id = asked(store, on_reject=on_reject)
    store.workflows.nodes.put(run_id, NodeRef("b"), state="running")
    store.workflows.approvals.answer(gate_id, decision, by="ana")
    assert state_of(store, run_id) == (state, 0)
    failed = store.workflows.runs.get(run_id).status == "failed"
    assert state_of(store, run_id, NodeRef("b")) == ("cancelled" if failed else "running", 0)


def test_a_gate_that_ends_unanswered_moves_the_node_on(store: StateStore, frozen_clock: FrozenClock) -> None:
    """workflows W-87, W-18: cancelled it may go on, expired it counts as rejected, with its run it is cancelled."""
    approvals = store.workflows.approvals
    cancelled, gate_id = asked(store)
    approvals.cancel(gate_id, by="ana", reason="no need")
    expired, _ = asked(store, on_reject="resume", expires_at=frozen_clock.now() + timedelta(seconds=1))
    closed, _ = asked(store)
    store.workflows.runs.cancel(closed, by="ana", reason="no need")
    frozen_clock.advance(seconds=1)
    approvals.expire_due()
    assert [state_of(store, run_id)[0] for run_id in (cancelled, expired, closed)] == ["pending", "failed", "cancelled"]


def test_an_answer_leaves_a_node_that_has_gone_on(store: StateStore) -> None:
    """workflows W-82."""
    run_id, gate_id = asked(store)
    store.workflows.nodes.put(run_id, A, state="skipped")
    store.workflows.approvals.answer(gate_id, "approved", by="ana")
    assert state_of(store, run_id) == ("skipped", 0)


def test_an_answer_that_fails_moves_no_node(store: StateStore) -> None:
    """workflows W-82: all of it or nothing."""
    run_id, gate_id = asked(store)
    with pytest.raises(InvalidValue):
        store.workflows.approvals.answer(gate_id, "approved", by="ana", scratch={"a": "x" * 70_000})
    assert state_of(store, run_id) == ("waiting_approval", 0)


def test_a_graph_lives_in_the_schema_of_its_store(postgres_database: Database) -> None:
    """backends B-35: every statement about nodes and loops finds its tables in ``schema=``, and no other."""
    raw = Raw(postgres_database)
    raw('CREATE SCHEMA "Graphs 1"')
    store = postgres_database.open(schema="Graphs 1", migrate=True)
    run_id, gate_id = asked(store)
    nodes, loops, executions = store.workflows.nodes, store.workflows.loops, store.workflows.executions
    assert [gate.label for gate in store.workflows.approvals.list_pending()] == ["Build"]
    store.workflows.approvals.answer(gate_id, "approved", by="ana")
    nodes.update(run_id, A, state="waiting_signal", expected="pending")
    assert (list(nodes.list_waiting("merged")), list(nodes.list_due())) == ([], [])
    attempts = [executions.start("deploy:a", run_id=run_id, node=A) for _ in range(2)]
    executions.finish(attempts[1].id, "succeeded", node_state="finished")
    assert state_of(store, run_id) == ("finished", 2)
    assert [loops.advance(run_id, "fix", expected=n).iteration for n in range(2)] == [1, 2]
    assert loops.finish(run_id, "fix") == loops.find(run_id, "fix")
    loops.carry(run_id, "fix", execution_id=attempts[1].id, text="text")
    assert loops.find_output(run_id, "fix") == "text"
    store.workflows.runs.finish(run_id, "succeeded")
    assert store.workflows.runs.get(run_id).node_statuses == {"a": "finished"}
    assert raw("SELECT count(*) FROM run_nodes") == [(0,)]
