"""The contract of nodes and loops."""

from __future__ import annotations

import pytest

from lastlight_state import Conflict, StaleVersion, StateStore
from lastlight_state.testing.contracts.steps import started
from lastlight_state.workflows import NodePut, NodeRef


class GraphsContract:
    """``store.workflows.nodes`` and ``store.workflows.loops``"""

    def test_a_graph_is_put_at_once_and_a_field_not_given_stays(self, store: StateStore) -> None:
        run, nodes = started(store), store.workflows.nodes
        nodes.put_many(run.id, [NodePut(NodeRef(name), label=name.upper()) for name in ("a", "b")])
        nodes.put(run.id, NodeRef("a"), state="finished")
        assert [(node.node_id, node.state, node.label) for node in nodes.list(run.id).items] == [
            ("a", "finished", "A"),
            ("b", "pending", "B"),
        ]
        assert nodes.counts(run.id) == {"finished": 1, "pending": 1}

    def test_attempts_of_a_node_are_numbered(self, store: StateStore) -> None:
        run, executions = started(store), store.workflows.executions
        for attempt in (1, 2):
            execution = executions.start("contract:build", run_id=run.id, node=NodeRef("build"))
            assert execution.attempt == attempt
            executions.finish(execution.id, "succeeded", node_state="finished")
        node = store.workflows.nodes.get(run.id, NodeRef("build"))
        assert (node.state, node.last_attempt) == ("finished", 2)
        assert store.workflows.runs.get(run.id).node_statuses == {"build": "finished"}

    def test_a_node_changes_from_what_it_was_expected_to_be(self, store: StateStore) -> None:
        run = started(store)
        store.workflows.nodes.put(run.id, NodeRef("a"), state="running")
        with pytest.raises(StaleVersion):
            store.workflows.nodes.update(run.id, NodeRef("a"), state="finished", expected="pending")

    def test_an_iteration_is_gone_through_once(self, store: StateStore) -> None:
        run, loops = started(store), store.workflows.loops
        loops.put(run.id, "review", iteration=2)
        assert loops.advance(run.id, "review", expected=2).iteration == 3
        with pytest.raises(StaleVersion):
            loops.advance(run.id, "review", expected=2)
        loops.finish(run.id, "review")
        with pytest.raises(Conflict):
            loops.advance(run.id, "review", expected=3)

    def test_a_loop_carries_its_text_on(self, store: StateStore) -> None:
        run = started(store)
        execution = store.workflows.executions.start("contract:explore", run_id=run.id)
        store.workflows.loops.carry(run.id, "explore", execution_id=execution.id, text="so far ✓", state={"round": 1})
        assert store.workflows.loops.find_output(run.id, "explore") == "so far ✓"
