"""Nodes are put, changed and read; a whole graph at once as well as one by one."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given as drawn, settings, strategies as st
from support.sent import recorded
from support.workflows.steps import TRIGGER, Raw, started, together

from lastlight_state.db.repository import UNSET
from lastlight_state.errors import ClaimLost, Conflict, InvalidValue, NotFound, StaleVersion
from lastlight_state.store import StateStore
from lastlight_state.testing import Database, FrozenClock
from lastlight_state.workflows import Node, NodePut, NodeRef, Wait
from lastlight_state.workflows.words import NODE_STATES

A, B = NodeRef("a"), NodeRef("b")


def test_a_node_is_pending_unless_told_otherwise(store: StateStore, frozen_clock: FrozenClock) -> None:
    """workflows W-70."""
    nodes, run = store.workflows.nodes, started(store)
    node = nodes.put(run.id, A)
    assert (node.run_id, node.node_id, node.iteration, node.state) == (run.id, "a", 0, "pending")
    assert (node.last_attempt, node.label, node.output_table, node.wake_at) == (0, None, None, None)
    assert node.updated_at == frozen_clock.now()
    assert nodes.get(run.id, A) == nodes.find(run.id, A) == node
    assert Node.model_validate_json(node.model_dump_json()) == node


def test_what_is_not_given_is_kept_and_none_clears(store: StateStore, frozen_clock: FrozenClock) -> None:
    """workflows W-70."""
    nodes, run = store.workflows.nodes, started(store)
    nodes.put(run.id, A, state="running", label="Build", output_table="builds")
    frozen_clock.advance(seconds=1)
    node = nodes.put(run.id, A, label="Build \u00e9 \U0001f4a1")
    assert (node.state, node.label, node.output_table) == ("running", "Build \u00e9 \U0001f4a1", "builds")
    assert node.updated_at == frozen_clock.now()
    node = nodes.put(run.id, A, label=None)
    assert (node.state, node.label, node.output_table) == ("running", None, "builds")
    node = nodes.put(run.id, A, state="pending", output_table=None)
    assert (node.state, node.output_table) == ("pending", None)


def test_every_field_of_every_node_of_a_graph_is_kept_or_set_by_itself(store: StateStore) -> None:
    """workflows W-70."""
    nodes, run = store.workflows.nodes, started(store)
    later = NodeRef("a", 1)
    nodes.put_many(run.id, [NodePut(node, "running", "old", "old") for node in (A, later, B)])
    put = nodes.put_many(
        run.id,
        [
            NodePut(B, output_table=None),
            NodePut(A, state="finished"),
            NodePut(NodeRef("c")),
            NodePut(later, label="new", output_table="new"),
        ],
    )
    assert [(node.ref, node.state, node.label, node.output_table) for node in put] == [
        (B, "running", "old", None),
        (A, "finished", "old", "old"),
        (NodeRef("c"), "pending", None, None),
        (later, "running", "new", "new"),
    ]
    assert set(nodes.list(run.id)) == set(put)


def test_a_graph_is_put_in_one_statement_whatever_its_size(database: Database) -> None:
    """workflows W-70, W-102."""
    with recorded(database) as (store, sent):
        run = started(store)
        for size in (1, 1000):
            sent.clear()
            store.workflows.nodes.put_many(run.id, [NodePut(NodeRef(f"n{i}"), label=f"Node {i}") for i in range(size)])
            assert len(sent) == 1
        store.workflows.nodes.put(run.id, NodeRef("n1"), state="running")
        assert store.workflows.nodes.counts(run.id) == {"pending": 999, "running": 1}


UNSAID = st.just(UNSET)
WAITS = st.builds(Wait, st.none() | st.just(datetime(2026, 3, 1, tzinfo=UTC)), st.none() | st.sampled_from("st"))
FIELDS: Any = {"label": UNSAID | st.none() | st.sampled_from("xy"), "output_table": UNSAID | st.none() | st.just("t")}
PUTS = st.one_of(
    st.fixed_dictionaries(
        {**FIELDS, "state": UNSAID | st.sampled_from(sorted(NODE_STATES)), "wait": UNSAID | st.none()}
    ),
    st.fixed_dictionaries({**FIELDS, "state": st.just("waiting_signal"), "wait": WAITS}),
)


@settings(max_examples=25)
@drawn(graphs=st.lists(st.dictionaries(st.sampled_from("abc"), PUTS, min_size=1), min_size=1, max_size=4))
def test_a_graph_put_at_once_stands_as_one_put_node_by_node(every_backend: StateStore, graphs: Any) -> None:
    """workflows W-70: and as the rule says, told once more in Python."""
    nodes, at_once, one_by_one = every_backend.workflows.nodes, started(every_backend), started(every_backend)
    expected: dict[str, dict[str, Any]] = {}
    for graph in graphs:
        nodes.put_many(at_once.id, [NodePut(NodeRef(name), **given) for name, given in graph.items()])
        for name, given in graph.items():
            nodes.put(one_by_one.id, NodeRef(name), **given)
            before = expected.get(name, {"state": "pending", "label": None, "output_table": None, "wait": None})
            stands = before | {field: value for field, value in given.items() if value is not UNSET}
            expected[name] = stands if stands["state"].startswith("waiting") else stands | {"wait": None}
    for run in (at_once, one_by_one):
        stored = {
            node.node_id: {
                "state": node.state,
                "label": node.label,
                "output_table": node.output_table,
                "wait": Wait(node.wake_at, node.waiting_for),
            }
            for node in nodes.list(run.id)
        }
        assert stored == {name: {**values, "wait": values["wait"] or Wait()} for name, values in expected.items()}


def test_a_wait_is_cleared_by_every_state_that_does_not_wait(store: StateStore, frozen_clock: FrozenClock) -> None:
    """workflows W-70."""
    nodes, run = store.workflows.nodes, started(store)
    until = frozen_clock.now() + timedelta(hours=1)
    wait = Wait(until, "merged", "pr-7")

    def waits(node: Node) -> tuple[Any, ...]:
        return node.wake_at, node.waiting_for, node.correlation_id

    assert waits(nodes.put(run.id, A, state="waiting_signal", wait=wait)) == (until, "merged", "pr-7")
    assert waits(nodes.put(run.id, A, label="still")) == (until, "merged", "pr-7")
    assert waits(nodes.put(run.id, A, wait=None)) == (None, None, None)
    moves: list[Any] = [
        lambda: nodes.put(run.id, A, state="running"),
        lambda: nodes.update(run.id, A, state="pending", expected="waiting_signal"),
    ]
    for move in moves:
        nodes.put(run.id, A, state="waiting_signal", wait=wait)
        assert waits(move()) == (None, None, None)


def test_a_wait_says_something_that_can_come_true(store: StateStore, frozen_clock: FrozenClock) -> None:
    """workflows W-70, W-1."""
    nodes, run = store.workflows.nodes, started(store)
    until = frozen_clock.now()
    each: list[dict[str, Any]] = [
        {"wait": Wait(until)},
        {"state": "running", "wait": Wait(until)},
        {"state": "waiting_timer", "wait": Wait(until, "merged")},
        {"state": "waiting_signal", "wait": Wait(until, correlation_id="pr-7")},
        {"state": "waiting_timer", "wait": Wait(until.replace(tzinfo=None))},
    ]
    for given in each:
        with pytest.raises(InvalidValue, match="wait"):
            nodes.put(run.id, A, **given)
    assert nodes.find(run.id, A) is None


def test_words_and_sizes_are_refused_before_anything_is_written(store: StateStore) -> None:
    """workflows W-1, W-2, W-4, case 64."""
    nodes, run = store.workflows.nodes, started(store)
    longest = "\U0001f4a1" * 64
    assert nodes.put(run.id, NodeRef(longest), state="waiting_signal", wait=Wait(None, longest, longest)).ref.node_id
    each: list[tuple[NodeRef, dict[str, Any]]] = [
        (A, {"state": "sleeping"}),
        (A, {"state": None}),
        (A, {"label": "x" * 1025}),
        (A, {"label": "a\0b"}),
        (A, {"output_table": "\ud800"}),
        (A, {"state": "waiting_signal", "wait": Wait(signal=longest + "x")}),
        (A, {"state": "waiting_signal", "wait": Wait(signal="s", correlation_id=longest + "x")}),
        (NodeRef(longest + "x"), {}),
        (NodeRef(" "), {}),
        (NodeRef("a", -1), {}),
    ]
    for node, given in each:
        with pytest.raises(InvalidValue):
            nodes.put(run.id, node, **given)
    for graph in ([NodePut(A), NodePut(A)], [NodePut(NodeRef("n", i)) for i in range(1001)]):
        with pytest.raises(InvalidValue, match="nodes"):
            nodes.put_many(run.id, graph)
    assert len(nodes.list(run.id)) == 1


def test_a_change_of_state_says_what_it_expects(store: StateStore) -> None:
    """workflows W-70."""
    nodes, run = store.workflows.nodes, started(store)
    nodes.put(run.id, A, state="running", label="Build")
    assert nodes.update(run.id, A, state="finished", expected="running").label == "Build"
    with pytest.raises(StaleVersion) as caught:
        nodes.update(run.id, A, state="failed", expected="running")
    assert (caught.value.expected, caught.value.found) == ("running", "finished")
    assert nodes.update(run.id, A, state="pending", expected="finished").state == "pending"
    with pytest.raises(NotFound, match="run_node"):
        nodes.update(run.id, B, state="failed", expected="running")


def test_of_several_who_change_a_state_one_does(every_backend: StateStore) -> None:
    """workflows W-70."""
    nodes, run = every_backend.workflows.nodes, started(every_backend)
    nodes.put(run.id, A)
    told = together([lambda: nodes.update(run.id, A, state="running", expected="pending")] * 6)
    assert sorted(type(each).__name__ for each in told) == ["Node", *["StaleVersion"] * 5]


def test_puts_at_once_keep_what_each_leaves_out(every_backend: StateStore) -> None:
    """workflows W-70: what is kept is what stands when the put is made, not what a look before found."""
    nodes, run = every_backend.workflows.nodes, started(every_backend)
    for n in range(10):
        node = NodeRef("n", n)
        works = [
            lambda node=node: nodes.put(run.id, node, state="running"),
            lambda node=node: nodes.put(run.id, node, label="Build"),
            lambda node=node: nodes.put(run.id, node, output_table="builds"),
        ]
        together(works)
        stored = nodes.get(run.id, node)
        assert (stored.state, stored.label, stored.output_table) == ("running", "Build", "builds")


def writes(store: StateStore, run_id: str, claim: Any = None) -> list[Any]:
    nodes = store.workflows.nodes
    return [
        lambda: nodes.put(run_id, A, state="running", claim=claim),
        lambda: nodes.put_many(run_id, [NodePut(A), NodePut(B)], claim=claim),
        lambda: nodes.put_many(run_id, [], claim=claim),
        lambda: nodes.update(run_id, A, state="finished", expected="pending", claim=claim),
    ]


def test_only_the_holder_of_a_run_writes_its_nodes(store: StateStore, raw: Raw) -> None:
    """workflows W-14, case 1."""
    run, other = started(store), started(store)
    nodes = store.workflows.nodes
    before = nodes.put(run.id, A)
    first = raw.hold(run.id)
    second = raw.hold(run.id, "worker-2")
    for claim in (None, first, raw.hold(other.id)):
        for write in writes(store, run.id, claim):
            with pytest.raises(ClaimLost):
                write()
    assert list(nodes.list(run.id)) == [before]
    for write in writes(store, run.id, second)[1:]:
        write()
    assert nodes.get(run.id, A).state == "finished"


def test_nodes_of_a_run_that_has_ended_stay_as_they_are(store: StateStore) -> None:
    """workflows W-18."""
    nodes, run = store.workflows.nodes, started(store)
    nodes.put(run.id, A)
    store.workflows.runs.finish(run.id, "succeeded")
    for write in writes(store, run.id):
        with pytest.raises(Conflict) as caught:
            write()
        assert (caught.value.code, caught.value.details["found"]) == ("run_status", "succeeded")
    assert nodes.counts(run.id) == {"pending": 1}


def test_a_graph_is_put_before_its_run_is_admitted(store: StateStore) -> None:
    """workflows W-70."""
    run = started(store, status="queued")
    assert store.workflows.nodes.put(run.id, A).state == "pending"


def test_nothing_is_put_into_a_run_that_is_not_there(store: StateStore) -> None:
    """workflows W-13."""
    nodes = store.workflows.nodes
    reads = [
        lambda: nodes.list("nobody"),
        lambda: nodes.counts("nobody"),
    ]
    for call in (*writes(store, "nobody"), *reads):
        with pytest.raises(NotFound) as caught:
            call()
        assert (caught.value.kind, caught.value.key) == ("workflow_run", "nobody")
    with pytest.raises(NotFound, match="run_node"):
        nodes.get("nobody", A)
    assert nodes.find("nobody", A) is None


@pytest.mark.parametrize("status", ["cancelled", "failed", "succeeded"])
def test_the_end_of_a_run_cancels_what_runs_or_waits(store: StateStore, frozen_clock: FrozenClock, status: Any) -> None:
    """workflows W-18: what never began stays pending, what is over stays as it ended."""
    nodes, run, sibling = store.workflows.nodes, started(store), started(store)
    over = ("finished", "failed", "skipped", "cancelled", "pending")
    open_states = ("running", "waiting_approval", "waiting_person", "waiting_timer", "waiting_signal")
    for run_id in (run.id, sibling.id):
        nodes.put_many(run_id, [NodePut(NodeRef(state), state) for state in (*over, *open_states)])  # type: ignore[arg-type]
    nodes.put(run.id, NodeRef("waiting_timer"), state="waiting_timer", wait=Wait(frozen_clock.now()))
    frozen_clock.advance(seconds=1)
    store.workflows.runs.finish(run.id, status)
    after = {node.node_id: node for node in nodes.list(run.id)}
    assert {state: after[state].state for state in over} == {state: state for state in over}
    assert {after[state].state for state in open_states} == {"cancelled"}
    assert after["waiting_timer"].wake_at is None
    assert after["waiting_timer"].updated_at == frozen_clock.now() > after["pending"].updated_at
    assert [node.state for node in nodes.list(sibling.id)] == [node.node_id for node in nodes.list(sibling.id)]


def test_a_restarted_run_finds_its_nodes(store: StateStore) -> None:
    """workflows W-30."""
    nodes, run = store.workflows.nodes, started(store)
    nodes.put_many(run.id, [NodePut(A, "finished"), NodePut(B, "running")])
    store.workflows.runs.finish(run.id, "failed")
    store.workflows.runs.restart(run.id, by="ana", reason="again")
    assert store.workflows.runs.get(run.id).node_statuses == {"a": "finished", "b": "cancelled"}
    assert nodes.update(run.id, B, state="pending", expected="cancelled").state == "pending"


def test_a_run_knows_the_states_of_its_nodes(store: StateStore, raw: Raw) -> None:
    """workflows W-107: the highest iteration counts, and the column is never written."""
    nodes, runs = store.workflows.nodes, store.workflows.runs
    run = runs.ensure("key", "deploy", trigger=TRIGGER, phase="plan").run
    assert run.node_statuses is None
    nodes.put_many(run.id, [NodePut(NodeRef("a", 2), "running"), NodePut(NodeRef("a", 10), "failed"), NodePut(B)])
    nodes.put(run.id, NodeRef("a", 9), state="finished")
    states = {"a": "failed", "b": "pending"}
    assert runs.get(run.id).node_statuses == states
    assert runs.ensure("key", "deploy", trigger=TRIGGER, phase="plan").run.node_statuses == states
    assert raw("SELECT node_statuses FROM workflow_runs WHERE id = ?", run.id) == [(None,)]


def test_the_map_of_another_program_counts_while_there_are_no_nodes(store: StateStore, raw: Raw) -> None:
    """workflows W-107."""
    run = started(store)
    raw('UPDATE workflow_runs SET node_statuses = \'{"old": "done"}\' WHERE id = ?', run.id)
    assert store.workflows.runs.get(run.id).node_statuses == {"old": "done"}
    store.workflows.nodes.put(run.id, A)
    assert store.workflows.runs.get(run.id).node_statuses == {"a": "pending"}
