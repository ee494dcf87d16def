"""Nodes: the state of each node of a run's graph, a row for each iteration of its loop.

A node is inserted by `put`, or by the first attempt at it; its attempts are executions, counted in ``last_attempt``.
Other calls change nodes as well: an attempt makes its node ``running``, a gate ``waiting_approval``, and the end of the
run cancels all nodes that are running or waiting.

`list_due` finds waiting nodes of live runs whose time has come, `list_waiting` nodes that wait for a signal. Every
write takes the ``claim`` that holds the run, and the run must not have ended.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, TypedDict

from lastlight_state import codec
from lastlight_state.clock import aware_utc, iso_text
from lastlight_state.db import valid
from lastlight_state.db.repository import UNSET, Repository, UnsetType
from lastlight_state.db.rows.records import Page
from lastlight_state.db.rows.statements import Row
from lastlight_state.db.schema.declarations import limits_of
from lastlight_state.db.units.unit import Unit
from lastlight_state.errors import InvalidValue, NotFound, StaleVersion, StateError
from lastlight_state.workflows import words
from lastlight_state.workflows.arguments import Claim, NodePut, NodeRef, Wait
from lastlight_state.workflows.checks import FenceParameters, NodeColumns, fence_parameters, node_columns
from lastlight_state.workflows.nodes import statements as sql
from lastlight_state.workflows.nodes.statements import ANY_STATE, FIELDS
from lastlight_state.workflows.records import Node
from lastlight_state.workflows.shared import run_rows
from lastlight_state.workflows.tables import NODES
from lastlight_state.workflows.words import NodeState

# Checks of the arguments of `nodes`, before any statement.

_LIMITS = limits_of(NODES)

#: The most nodes that one call puts.
MOST_NODES = 1_000
_ANY_SIZE = 2**40


class NodeKey(NodeColumns):
    """The key of a node."""

    run_id: str


class NodeUpdate(NodeKey, FenceParameters):
    """The parameters of a change of state."""

    state: str
    expected: str
    at: datetime


class _Wait(TypedDict):
    wake_at: str | None
    waiting_for: str | None
    correlation_id: str | None


class PutNode(NodeColumns, _Wait):
    """A node to put, as the statement reads it from JSON."""

    state: str | None
    label: str | None
    output_table: str | None


_NO_WAIT: _Wait = {"wake_at": None, "waiting_for": None, "correlation_id": None}


def puts(run_id: str, nodes: Sequence[NodePut], now: datetime, claim: Claim | None) -> Row:
    """Check several nodes to put and return their parameters. Raises `InvalidValue` for a node named twice."""
    valid.at_most("nodes", nodes, MOST_NODES)
    rows = [_row(put) for put in nodes]
    keys = {(row["node_id"], row["iteration"]) for row in rows}
    if len(keys) < len(rows):
        raise InvalidValue("nodes", "must name each node once")
    kept = {
        f"kept_{field}": _text([node_columns(put.node) for put in nodes if getattr(put, field) is UNSET])
        for field in FIELDS
    }
    return {"run_id": run_id, "at": now, "nodes": _text(rows), **kept, **fence_parameters(claim)}


def update(run_id: str, node: NodeRef, state: str, expected: str, now: datetime, claim: Claim | None) -> NodeUpdate:
    """Check the arguments of a change of a node's state and return its parameters."""
    return {
        **key(run_id, node),
        "state": valid.word("state", state, words.NODE_STATES),
        "expected": valid.word("expected", expected, words.NODE_STATES),
        "at": now,
        **fence_parameters(claim),
    }


def key(run_id: str, node: NodeRef) -> NodeKey:
    """Check the key of a node (run, node id and iteration) and return it."""
    return {"run_id": valid.lookup_text("run_id", run_id), **node_columns(node)}


def list_filters(run_id: str, states: Sequence[str] | None, node_id: str | None) -> Row:
    """Check the filters of a list of nodes. Return them by the names that the statement `LIST` gives them."""
    given: Row = {"run_id": run_id, "node_id": valid.optional("node_id", node_id, _LIMITS.node_id)}
    if not states:
        return given
    wanted = sorted({valid.word("states", state, words.NODE_STATES) for state in valid.several("states", states)})
    return given | {"states": ANY_STATE.of(wanted)}


def _row(put: NodePut) -> PutNode:
    valid.argument_group("nodes", put, NodePut)
    return {
        **node_columns(put.node),
        "state": None if put.state is UNSET else valid.word("state", put.state, words.NODE_STATES),
        "label": valid.optional_content("label", _value_or_none(put.label), _LIMITS.label),
        "output_table": valid.optional("output_table", _value_or_none(put.output_table), _LIMITS.output_table),
        **_wait_columns(put),
    }


def _value_or_none(value: Any) -> Any:
    return None if value is UNSET else value


def _wait_columns(put: NodePut) -> _Wait:
    wait: Wait | UnsetType | None = put.wait
    if wait is None or wait is UNSET:
        return _NO_WAIT
    valid.argument_group("wait", wait, Wait)
    if put.state is UNSET or put.state not in words.WAITING_NODE:
        raise InvalidValue(
            "wait", "must be None unless the state is a waiting one", permitted=sorted(words.WAITING_NODE)
        )
    if wait.signal is not None and put.state != "waiting_signal":
        raise InvalidValue("wait.signal", f"must be None for a node that is {put.state}")
    if wait.correlation_id is not None and wait.signal is None:
        raise InvalidValue("wait.correlation_id", "must not be given without a signal")
    return {
        "wake_at": None if wait.until is None else iso_text(aware_utc("wait.until", wait.until)),
        "waiting_for": valid.optional("wait.signal", wait.signal, _LIMITS.waiting_for),
        "correlation_id": valid.optional("wait.correlation_id", wait.correlation_id, _LIMITS.correlation_id),
    }


def _text(rows: Sequence[Mapping[str, Any]]) -> str:
    return codec.encode("nodes", rows, max_bytes=_ANY_SIZE)


class Nodes(Repository):
    """``store.workflows.nodes``: put, change and list the nodes of runs."""

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
        other state clears the node's wait. Raises `NotFound`, `ClaimLost`, `Conflict` ``run_status``.
        """
        [stored] = self.put_many(run_id, [NodePut(node, state, label, output_table, wait)], claim=claim)
        return stored

    def put_many(self, run_id: str, nodes: Sequence[NodePut], *, claim: Claim | None = None) -> tuple[Node, ...]:
        """Insert or change up to 1,000 nodes, each named once, in one statement; each as `put` does."""
        nodes = valid.several("nodes", nodes)
        values = puts(run_id, nodes, self._now(), claim)

        def attempt(unit: Unit) -> dict[NodeRef, Node] | None:
            return {node.ref: node for node in unit.rows(sql.PUT, values)} or None

        if not nodes:
            self._writing(lambda unit: run_rows.permit(unit, run_id, claim))
            return ()
        stored = run_rows.decide(self._scope, run_id, claim, attempt, repeatable=True)
        return tuple(stored[put.node] for put in nodes)

    def update(
        self, run_id: str, node: NodeRef, *, state: NodeState, expected: NodeState, claim: Claim | None = None
    ) -> Node:
        """Change the state of a node if it has the ``expected`` state. ``pending`` permits another attempt.

        Raises `StaleVersion` with the stored state as ``found``, `NotFound` for an unknown node or run.
        """
        values = update(run_id, node, state, expected, self._now(), claim)

        def refusal(unit: Unit) -> StateError:
            found = unit.row(sql.FIND, values)
            if found is None:
                return _not_found(values)
            return StaleVersion("run_node", _key(values), expected=expected, found=found.state)

        return run_rows.decide(self._scope, run_id, claim, lambda unit: unit.row(sql.UPDATE, values), refusal)

    def get(self, run_id: str, node: NodeRef) -> Node:
        """Return a node of a run. Raises `NotFound`."""
        found = self.find(run_id, node)
        if found is None:
            raise _not_found(key(run_id, node))
        return found

    def find(self, run_id: str, node: NodeRef) -> Node | None:
        """Return a node of a run, or None if it has no row."""
        values = key(run_id, node)
        return self._find(sql.FIND, values)

    def list(
        self,
        run_id: str,
        *,
        states: Sequence[NodeState] | None = None,
        node_id: str | None = None,
        limit: int = 50,
        page_token: str | None = None,
    ) -> Page[Node]:
        """Return a page of a run's nodes by id and iteration, ascending. An empty sequence of states matches nothing.

        Raises `NotFound` for an unknown run.
        """
        given = list_filters(run_id, states, node_id)
        if states is not None and not states:
            return Page(items=())
        return self._reading(run_rows.page_of(sql.LIST, limit, page_token, **given))

    def counts(self, run_id: str) -> dict[str, int]:
        """Return by state the number of a run's nodes, counting each iteration. Raises `NotFound`."""

        def work(unit: Unit) -> dict[str, int]:
            found = dict(unit.rows(sql.COUNTS, {"run_id": run_id}))
            if not found:
                run_rows.expect_one(unit, run_id)
            return found

        return self._reading(work)

    def list_due(self, now: datetime | None = None, *, limit: int = 50, page_token: str | None = None) -> Page[Node]:
        """Return a page of the waiting nodes of live runs due at ``now``, inclusive, longest overdue first."""
        at = self._now() if now is None else aware_utc("now", now)
        given = {"states": [*words.WAITING_NODE]}
        return self._page(sql.DUE, given, limit, page_token, also={"now": at})

    def list_waiting(
        self, signal: str, *, correlation_id: str | None = None, limit: int = 50, page_token: str | None = None
    ) -> Page[Node]:
        """Return a page of nodes of live runs that wait for this signal, and for ``correlation_id`` if it is given."""
        given = {
            "signal": valid.identifier("signal", signal, _LIMITS.waiting_for),
            "correlation_id": valid.optional("correlation_id", correlation_id, _LIMITS.correlation_id),
        }
        return self._page(sql.WAITING, given, limit, page_token)


def _not_found(values: NodeKey) -> StateError:
    return NotFound("run_node", _key(values))


def _key(values: NodeKey) -> tuple[str, str | None, int]:
    return values["run_id"], values["node_id"], values["iteration"]
