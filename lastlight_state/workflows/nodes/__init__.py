"""Nodes: the state of each node of a run's graph, a row for each iteration of its loop.

A node is made by `put`, or by the first attempt at it; its attempts are executions, counted in ``last_attempt``. What
starts, asks or ends something moves the nodes that are concerned by itself: an attempt makes its node ``running``, a
gate ``waiting_approval``, and the end of the run cancels every node that is running or waiting.

Nodes that wait say for what, over all live runs: `list_due` finds those whose time has come, `list_waiting` those
that a signal concerns. Every write here is an engine's and fenced, and none is accepted on a run that has ended.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from lastlight_state.clock import aware_utc
from lastlight_state.db import valid
from lastlight_state.db.records import Page
from lastlight_state.db.repository import UNSET, Repository, UnsetType
from lastlight_state.db.unit import Unit
from lastlight_state.errors import NotFound, StaleVersion, StateError
from lastlight_state.workflows import words
from lastlight_state.workflows.arguments import Claim, NodePut, NodeRef, Wait
from lastlight_state.workflows.kernel import fence as run_writes, rows as run_rows
from lastlight_state.workflows.nodes import checks as node_checks, statements as sql
from lastlight_state.workflows.nodes.records import Node
from lastlight_state.workflows.words import NodeState


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
        """Insert or change a node of a live run: what is not given keeps its value, None clears it.

        A new node is pending unless told otherwise. ``wait`` needs the waiting ``state`` that it belongs to; any other
        state clears what the node waited for. Raises `NotFound`, `ClaimLost`, `Conflict` ``run_status``.
        """
        [stored] = self.put_many(run_id, [NodePut(node, state, label, output_table, wait)], claim=claim)
        return stored

    def put_many(self, run_id: str, nodes: Sequence[NodePut], *, claim: Claim | None = None) -> tuple[Node, ...]:
        """Put a whole graph (at most 1,000 nodes, each named once) as `put` would, in one statement."""
        nodes = valid.several("nodes", nodes)
        values = node_checks.puts(run_id, nodes, self._now(), claim)

        def attempt(unit: Unit) -> dict[NodeRef, Node] | None:
            return {node.ref: node for node in unit.all(Node, sql.PUT, values)} or None

        if not nodes:
            self._writing(lambda unit: run_writes.permit(unit, run_id, claim))
            return ()
        stored = run_writes.decide(self._scope, run_id, claim, attempt, repeatable=True)
        return tuple(stored[put.node] for put in nodes)

    def update(
        self, run_id: str, node: NodeRef, *, state: NodeState, expected: NodeState, claim: Claim | None = None
    ) -> Node:
        """Change the state of a node from what it is expected to be; to ``pending`` for another attempt, too.

        Raises `StaleVersion` with what was found instead, `NotFound` where there is no such node or run.
        """
        values = node_checks.update(run_id, node, state, expected, self._now(), claim)

        def refusal(unit: Unit) -> StateError:
            found = unit.find(Node, sql.FIND, values)
            if found is None:
                return _not_found(values)
            return StaleVersion("run_node", _key(values), expected=expected, found=found.state)

        return run_writes.decide(self._scope, run_id, claim, lambda unit: unit.find(Node, sql.UPDATE, values), refusal)

    def get(self, run_id: str, node: NodeRef) -> Node:
        """The node. Raises `NotFound`."""
        found = self.find(run_id, node)
        if found is None:
            raise _not_found(node_checks.key(run_id, node))
        return found

    def find(self, run_id: str, node: NodeRef) -> Node | None:
        """The node, or None."""
        values = node_checks.key(run_id, node)
        return self._reading(lambda unit: unit.find(Node, sql.FIND, values))

    def list(
        self,
        run_id: str,
        *,
        states: Sequence[NodeState] | None = None,
        node_id: str | None = None,
        limit: int = 50,
        page_token: str | None = None,
    ) -> Page[Node]:
        """A page of a run's nodes by id and iteration, ascending; no states at all match nothing.

        Raises `NotFound` for an unknown run.
        """
        given = node_checks.list_filters(run_id, states, node_id)
        valid.page_limit(limit)
        if states is not None and not states:
            return Page(items=())
        return self._reading(lambda unit: run_rows.page_of(unit, sql.LIST, Node.of, limit, page_token, **given))

    def list_iterations(
        self, run_id: str, node_id: str, *, limit: int = 50, page_token: str | None = None
    ) -> Page[Node]:
        """The iterations of one node, the latest first. Raises `NotFound` for an unknown run."""
        given = {"run_id": run_id, "node_id": valid.identifier("node_id", node_id, words.NODE_ID)}
        valid.page_limit(limit)
        return self._reading(lambda unit: run_rows.page_of(unit, sql.ITERATIONS, Node.of, limit, page_token, **given))

    def counts(self, run_id: str) -> dict[str, int]:
        """How many of a run's nodes are in each state that occurs, every iteration counted. Raises `NotFound`."""

        def work(unit: Unit) -> dict[str, int]:
            found = {row["state"]: int(row["nodes"]) for row in unit.rows(sql.COUNTS, {"run_id": run_id})}
            if not found:
                run_rows.expect_one(unit, run_id)
            return found

        return self._reading(work)

    def list_due(self, now: datetime | None = None, *, limit: int = 50, page_token: str | None = None) -> Page[Node]:
        """A page of the waiting nodes of live runs whose time has come by ``now``, inclusive; longest overdue first."""
        at = self._now() if now is None else aware_utc("now", now)
        valid.page_limit(limit)
        given = {"states": [*words.WAITING_NODE]}
        return self._reading(
            lambda unit: sql.DUE.page(unit, Node.of, limit=limit, page_token=page_token, given=given, also={"now": at})
        )

    def list_waiting(
        self, signal: str, *, correlation_id: str | None = None, limit: int = 50, page_token: str | None = None
    ) -> Page[Node]:
        """A page of the nodes of live runs that wait for this signal, with any correlation unless one is given."""
        given = {
            "signal": valid.identifier("signal", signal, words.SIGNAL),
            "correlation_id": valid.optional("correlation_id", correlation_id, words.SIGNAL),
        }
        valid.page_limit(limit)
        return self._reading(
            lambda unit: sql.WAITING.page(unit, Node.of, limit=limit, page_token=page_token, given=given)
        )


def _not_found(values: dict[str, Any]) -> StateError:
    return NotFound("run_node", _key(values))


def _key(values: dict[str, Any]) -> tuple[Any, ...]:
    return values["run_id"], values["node_id"], values["iteration"]
