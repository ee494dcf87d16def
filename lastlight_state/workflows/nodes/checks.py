"""What `nodes` accepts, checked before any statement."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, TypedDict

from lastlight_state import codec
from lastlight_state.clock import aware_utc, iso_text
from lastlight_state.db import valid
from lastlight_state.db.declarations import limits_of
from lastlight_state.db.repository import UNSET, UnsetType
from lastlight_state.db.statements import Row
from lastlight_state.errors import InvalidValue
from lastlight_state.workflows import words
from lastlight_state.workflows.arguments import Claim, NodePut, NodeRef, Wait
from lastlight_state.workflows.checks import FenceParameters, NodeColumns, node_columns, presented
from lastlight_state.workflows.nodes.statements import ANY_STATE, FIELDS
from lastlight_state.workflows.tables import NODES

_MOST = limits_of(NODES)

#: The most nodes of one put.
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
    """Return the parameters of a put of any number of nodes, each named once."""
    valid.at_most("nodes", nodes, MOST_NODES)
    rows = [_row(put) for put in nodes]
    keys = {(row["node_id"], row["iteration"]) for row in rows}
    if len(keys) < len(rows):
        raise InvalidValue("nodes", "must name each node once")
    kept = {
        f"kept_{field}": _text([node_columns(put.node) for put in nodes if getattr(put, field) is UNSET])
        for field in FIELDS
    }
    return {"run_id": run_id, "at": now, "nodes": _text(rows), **kept, **presented(claim)}


def update(run_id: str, node: NodeRef, state: str, expected: str, now: datetime, claim: Claim | None) -> NodeUpdate:
    """Return the parameters of a change of state."""
    return {
        **key(run_id, node),
        "state": valid.word("state", state, words.NODE_STATES),
        "expected": valid.word("expected", expected, words.NODE_STATES),
        "at": now,
        **presented(claim),
    }


def key(run_id: str, node: NodeRef) -> NodeKey:
    """Return the key of a node."""
    return {"run_id": valid.sought("run_id", run_id), **node_columns(node)}


def list_filters(run_id: str, states: Sequence[str] | None, node_id: str | None) -> Row:
    """Return the filters of a list of nodes, as its statement names them."""
    given: Row = {"run_id": run_id, "node_id": valid.optional("node_id", node_id, _MOST.node_id)}
    if not states:
        return given
    wanted = sorted({valid.word("states", state, words.NODE_STATES) for state in valid.several("states", states)})
    return given | {"states": ANY_STATE.of(wanted)}


def _row(put: NodePut) -> PutNode:
    valid.group("nodes", put, NodePut)
    return {
        **node_columns(put.node),
        "state": None if put.state is UNSET else valid.word("state", put.state, words.NODE_STATES),
        "label": valid.optional_content("label", _given(put.label), _MOST.label),
        "output_table": valid.optional("output_table", _given(put.output_table), _MOST.output_table),
        **_wait_columns(put),
    }


def _given(value: Any) -> Any:
    return None if value is UNSET else value


def _wait_columns(put: NodePut) -> _Wait:
    wait: Wait | UnsetType | None = put.wait
    if wait is None or wait is UNSET:
        return _NO_WAIT
    valid.group("wait", wait, Wait)
    if put.state is UNSET or put.state not in words.WAITING_NODE:
        raise InvalidValue("wait", "needs a waiting state", permitted=sorted(words.WAITING_NODE))
    if wait.signal is not None and put.state != "waiting_signal":
        raise InvalidValue("wait.signal", f"must be None for a node that is {put.state}")
    if wait.correlation_id is not None and wait.signal is None:
        raise InvalidValue("wait.correlation_id", "needs a signal")
    return {
        "wake_at": None if wait.until is None else iso_text(aware_utc("wait.until", wait.until)),
        "waiting_for": valid.optional("wait.signal", wait.signal, _MOST.waiting_for),
        "correlation_id": valid.optional("wait.correlation_id", wait.correlation_id, _MOST.correlation_id),
    }


def _text(rows: Sequence[Mapping[str, Any]]) -> str:
    return codec.encode("nodes", rows, max_bytes=_ANY_SIZE)
