"""Nodes: the state of each node of a run's graph, a row for each iteration of its loop.

A node is inserted by `put`, or by the first attempt at it; its attempts are executions, counted in ``last_attempt``.
Other calls change nodes as well: an attempt makes its node ``running``, a gate ``waiting_approval``, and the end of the
run cancels all nodes that are running or waiting.

`list_due` finds the waiting nodes of all live runs whose time has come, `list_waiting` those that wait for a signal.
Every write takes the ``claim`` that holds the run, and the run must not have ended.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from lastlight_state.clock import aware_utc
from lastlight_state.db import valid
from lastlight_state.db.declarations import limits_of
from lastlight_state.db.records import Page
from lastlight_state.db.repository import UNSET, Repository, UnsetType
from lastlight_state.db.unit import Unit
from lastlight_state.errors import NotFound, StaleVersion, StateError
from lastlight_state.workflows import words
from lastlight_state.workflows.arguments import Claim, NodePut, NodeRef, Wait
from lastlight_state.workflows.kernel import fence, rows
from lastlight_state.workflows.nodes import checks, statements as sql
from lastlight_state.workflows.nodes.checks import NodeKey
from lastlight_state.workflows.nodes.records import Node
from lastlight_state.workflows.tables import NODES
from lastlight_state.workflows.words import NodeState

_MOST = limits_of(NODES)


class Nodes(Repository):
    """``store.workflows.nodes``"""

    def put(
        self,
        run_id: str,
        node: NodeRef,
        *,
        state: NodeState | UnsetType = UNSET,
        label: str | UnsetType | None = UNSET,
        output_table: str | UnsetType | None = UNSET,
        wait: Wait | UnsetType | None = UNSET,
        claim: Claim | None = None,
    ) -> Node:
        """Insert or change a node of a live run. Fields that are not given keep their values; None clears a field.

        A new node is pending unless ``state`` is given. ``wait`` needs the waiting ``state`` that it belongs to; any
        other state clears what the node waited for. Raises `NotFound`, `ClaimLost`, `Conflict` ``run_status``.
        """
        [stored] = self.put_many(run_id, [NodePut(node, state, label, output_table, wait)], claim=claim)
        return stored

    def put_many(self, run_id: str, nodes: Sequence[NodePut], *, claim: Claim | None = None) -> tuple[Node, ...]:
        """Put many nodes (at most 1,000, each once) in one statement, each as `put` does."""
        nodes = valid.several("nodes", nodes)
        values = checks.puts(run_id, nodes, self._now(), claim)

        def attempt(unit: Unit) -> dict[NodeRef, Node] | None:
            return {node.ref: node for node in unit.all(Node.of, sql.PUT, values)} or None

        if not nodes:
            self._writing(lambda unit: fence.permit(unit, run_id, claim))
            return ()
        stored = fence.decide(self._scope, run_id, claim, attempt, repeatable=True)
        return tuple(stored[put.node] for put in nodes)

    def update(
        self, run_id: str, node: NodeRef, *, state: NodeState, expected: NodeState, claim: Claim | None = None
    ) -> Node:
        """Change the state of a node if it has the ``expected`` state. ``pending`` permits another attempt.

        Raises `StaleVersion` with the state ``found``, `NotFound` for an unknown node or run.
        """
        values = checks.update(run_id, node, state, expected, self._now(), claim)

        def refusal(unit: Unit) -> StateError:
            found = unit.find(Node.of, sql.FIND, values)
            if found is None:
                return _not_found(values)
            return StaleVersion("run_node", _key(values), expected=expected, found=found.state)

        return fence.decide(self._scope, run_id, claim, lambda unit: unit.find(Node.of, sql.UPDATE, values), refusal)

    def get(self, run_id: str, node: NodeRef) -> Node:
        """The node. Raises `NotFound`."""
        found = self.find(run_id, node)
        if found is None:
            raise _not_found(checks.key(run_id, node))
        return found

    def find(self, run_id: str, node: NodeRef) -> Node | None:
        """The node, or None."""
        values = checks.key(run_id, node)
        return self._find(Node.of, sql.FIND, values)

    def list(
        self,
        run_id: str,
        *,
        states: Sequence[NodeState] | None = None,
        node_id: str | None = None,
        limit: int = 50,
        page_token: str | None = None,
    ) -> Page[Node]:
        """A page of a run's nodes by id and iteration, ascending. An empty sequence of states matches nothing.

        Raises `NotFound` for an unknown run.
        """
        given = checks.list_filters(run_id, states, node_id)
        if states is not None and not states:
            return Page(items=())
        return self._reading(rows.page_of(sql.LIST, Node.of, limit, page_token, **given))

    def list_iterations(
        self, run_id: str, node_id: str, *, limit: int = 50, page_token: str | None = None
    ) -> Page[Node]:
        """The iterations of one node, the latest first. Raises `NotFound` for an unknown run."""
        given = {"run_id": run_id, "node_id": valid.identifier("node_id", node_id, _MOST.node_id)}
        return self._reading(rows.page_of(sql.ITERATIONS, Node.of, limit, page_token, **given))

    def counts(self, run_id: str) -> dict[str, int]:
        """The number of a run's nodes in each state, all iterations counted. Raises `NotFound`."""

        def work(unit: Unit) -> dict[str, int]:
            found = {row["state"]: int(row["nodes"]) for row in unit.rows(sql.COUNTS, {"run_id": run_id})}
            if not found:
                rows.expect_one(unit, run_id)
            return found

        return self._reading(work)

    def list_due(self, now: datetime | None = None, *, limit: int = 50, page_token: str | None = None) -> Page[Node]:
        """A page of the waiting nodes of live runs that are due at ``now``, inclusive; the longest overdue first."""
        at = self._now() if now is None else aware_utc("now", now)
        given = {"states": [*words.WAITING_NODE]}
        return self._page(sql.DUE, Node.of, given, limit, page_token, also={"now": at})

    def list_waiting(
        self, signal: str, *, correlation_id: str | None = None, limit: int = 50, page_token: str | None = None
    ) -> Page[Node]:
        """A page of the nodes of live runs that wait for this signal; with ``correlation_id``, for that one only."""
        given = {
            "signal": valid.identifier("signal", signal, _MOST.waiting_for),
            "correlation_id": valid.optional("correlation_id", correlation_id, _MOST.correlation_id),
        }
        return self._page(sql.WAITING, Node.of, given, limit, page_token)


def _not_found(values: NodeKey) -> StateError:
    return NotFound("run_node", _key(values))


def _key(values: NodeKey) -> tuple[str, str | None, int]:
    return values["run_id"], values["node_id"], values["iteration"]
