"""What `approvals` accepts, checked before any statement."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from lastlight_state import codec
from lastlight_state.clock import aware_utc
from lastlight_state.db import valid
from lastlight_state.db.declarations import limits_of
from lastlight_state.db.statements import Row
from lastlight_state.errors import InvalidValue
from lastlight_state.ids import new_id
from lastlight_state.workflows import checks as shared, words
from lastlight_state.workflows.approvals.answers import DECISIONS, ApprovalAnswer
from lastlight_state.workflows.approvals.use import Use
from lastlight_state.workflows.arguments import Gate, NodeRef
from lastlight_state.workflows.checks import NodeColumns
from lastlight_state.workflows.tables import APPROVALS, RUNS

_MOST, _RUN = limits_of(APPROVALS), limits_of(RUNS)


class NewApproval(NodeColumns):
    """The row of a new gate."""

    id: str
    workflow_run_id: str
    gate: str
    summary: str
    kind: str
    requested_by: str | None
    created_at: datetime
    artifact: str | None
    request_key: str
    on_reject: str
    blocks_run: bool
    expires_at: datetime | None
    action_digest: str | None
    action: str | None


def new_approval(run_id: str, gate: Gate, now: datetime, *, blocks_run: bool) -> NewApproval:
    """Return the row of a new gate."""
    valid.group("gate", gate, Gate)
    action, digest = _action_columns("gate.action", gate.action)
    return {
        "id": new_id() if gate.id is None else valid.identifier("gate.id", gate.id, _MOST.id),
        "workflow_run_id": run_id,
        "gate": valid.identifier("gate.gate", gate.gate, _MOST.gate),
        "summary": valid.content("gate.summary", gate.summary, _MOST.summary),
        "kind": valid.word("gate.kind", gate.kind, words.APPROVAL_KINDS),
        "requested_by": valid.optional("gate.requested_by", gate.requested_by, _MOST.requested_by),
        "created_at": now,
        "artifact": valid.optional("gate.artifact", gate.artifact, _MOST.artifact),
        **_node_columns(gate.node),
        "request_key": _request_key(gate),
        "on_reject": valid.word("gate.on_reject", gate.on_reject, words.ON_REJECT),
        "blocks_run": blocks_run,
        "expires_at": None if gate.expires_at is None else aware_utc("gate.expires_at", gate.expires_at),
        "action_digest": digest,
        "action": action,
    }


def answer(
    approval_id: str,
    decision: str,
    by: str,
    response: str | None,
    digest: str | None,
    scratch: dict[str, Any] | None,
    via: str,
    now: datetime,
) -> ApprovalAnswer:
    """An answer, checked as far as that is possible without its gate."""
    valid.word("decision", decision, DECISIONS)
    text = valid.optional_content("response", response, _MOST.response)
    if decision == "replied" and not (text or "").strip():
        raise InvalidValue("response", "must not be blank: a reply is its text")
    return ApprovalAnswer(
        approval_id=approval_id,
        decision=decision,
        by=valid.identifier("by", by, _MOST.responded_by),
        response=text,
        digest=valid.optional("digest", digest, _MOST.action_digest),
        via=valid.word("via", via, words.ANSWERED_VIA),
        at=now,
        patch=shared.scratch_patch(scratch),
    )


def use(approval_id: str, action: Any, execution_id: str, now: datetime) -> Use:
    """The use of an approved gate by an execution."""
    _, digest = _action_columns("action", action)
    return Use(approval_id, digest, valid.identifier("execution_id", execution_id, _MOST.consumed_by), now)


def list_filters(
    statuses: Sequence[str] | None,
    trigger_id: str | None,
    artifact: str | None,
    gate: str | None,
    kind: str | None,
) -> Row:
    """Return the filters of a list of gates, as its statement names them."""
    return {
        **_by_status(statuses),
        "trigger_id": valid.optional("trigger_id", trigger_id, _RUN.trigger_id),
        "artifact": valid.optional("artifact", artifact, _MOST.artifact),
        "gate": valid.optional("gate", gate, _MOST.gate),
        "kind": _kind(kind),
    }


def _by_status(statuses: Sequence[str] | None) -> Row:
    """Return the filter by the status that gates read as: an overdue one is expired, but may be stored as pending."""
    if statuses is None:
        return {}
    wanted = [valid.word("statuses", status, words.APPROVAL_STATUSES) for status in valid.several("statuses", statuses)]
    if "expired" not in wanted:
        return {"statuses": wanted, "not_overdue": {}}
    if "pending" not in wanted:
        return {"statuses": [*wanted, "pending"], "overdue": {}}
    return {"statuses": wanted}


def inbox_filters(run_id: str | None, kind: str | None) -> Row:
    """Return the filters of the inbox."""
    return {"run_id": valid.optional("run_id", run_id, _MOST.workflow_run_id), "kind": _kind(kind)}


def history_filters(workflow_name: str, gate: str | None, node_id: str | None) -> Row:
    """Return the filters of the history of a workflow's gates."""
    return {
        "statuses": ["approved", "rejected"],
        "workflow_name": valid.identifier("workflow_name", workflow_name, _RUN.workflow_name),
        "gate": valid.optional("gate", gate, _MOST.gate),
        "node_id": valid.optional("node_id", node_id, _MOST.node_id),
    }


def _kind(kind: str | None) -> str | None:
    return None if kind is None else valid.word("kind", kind, words.APPROVAL_KINDS)


def _action_columns(where: str, action: Any) -> tuple[str | None, str | None]:
    """An action as text, and the digest of its canonical form. Both are None without an action."""
    if action is None:
        return None, None
    return codec.encode(where, action, max_bytes=_MOST.action), codec.digest(action)


def _node_columns(node: NodeRef | None) -> NodeColumns:
    if node is None:
        return {"node_id": None, "iteration": 0}
    valid.group("gate.node", node, NodeRef)
    return {
        "node_id": valid.identifier("gate.node.node_id", node.node_id, _MOST.node_id),
        "iteration": valid.number("gate.node.iteration", node.iteration),
    }


def _request_key(gate: Gate) -> str:
    """The key that only one pending gate of a run may have: by default its name, node and iteration."""
    if gate.request_key is not None:
        return valid.identifier("gate.request_key", gate.request_key, _MOST.request_key)
    node = gate.node
    return codec.canonical([gate.gate, node.node_id if node else None, node.iteration if node else 0]).decode()
