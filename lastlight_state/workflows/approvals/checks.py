"""Check the arguments of `approvals` before any statement; store the answers and uses of gates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from lastlight_state import codec
from lastlight_state.clock import aware_utc
from lastlight_state.db import valid
from lastlight_state.db.news.listeners import Listeners
from lastlight_state.db.rows.statements import Row
from lastlight_state.db.schema.declarations import limits_of
from lastlight_state.db.units.unit import Unit
from lastlight_state.errors import Conflict, InvalidValue, StaleVersion
from lastlight_state.ids import new_id
from lastlight_state.settings import Limits
from lastlight_state.workflows import checks as shared, words
from lastlight_state.workflows.approvals import statements as sql
from lastlight_state.workflows.approvals.records import Answered, Approval
from lastlight_state.workflows.approvals.statements import QUESTIONS, NewApproval
from lastlight_state.workflows.arguments import Claim, Gate
from lastlight_state.workflows.questions import repository
from lastlight_state.workflows.shared import progress, run_rows
from lastlight_state.workflows.shared.progress import Step
from lastlight_state.workflows.shared.transitions import TransitionParameters, first_line
from lastlight_state.workflows.tables import APPROVALS, RUNS

# How a gate is answered, once, and what the answer does to its run.

#: The kind of gate that each decision answers, by decision.
DECISIONS = {"approved": "approve", "rejected": "approve", "replied": "reply"}


@dataclass(frozen=True)
class ApprovalAnswer:
    """A person's answer to a gate. ``digest`` is the digest of the action that the person saw."""

    approval_id: str
    decision: str
    by: str
    response: str | None
    digest: str | None
    via: str
    at: datetime
    patch: dict[str, Any] | None

    @property
    def status(self) -> str:
        """Return the status of the gate after this answer: a reply is stored as approved, with its text."""
        return "rejected" if self.decision == "rejected" else "approved"


def record(unit: Unit, listeners: Listeners, limits: Limits, answer: ApprovalAnswer) -> Answered:
    """Store an answer to a gate and move its run. A repeated answer changes nothing and returns the stored gate."""
    row, approval = QUESTIONS.lock_run_of(unit, answer.approval_id)
    _check_kind(approval, answer)
    if not QUESTIONS.takes(approval, answer.at, repeated=lambda: _is_same(approval, answer)):
        return Answered.of({"approval": approval, "run": run_rows.get(unit, row.id), "repeated": True})
    run_rows.expect(row, words.LIVE)
    _check_digest(approval, answer)
    facts = {"by": answer.by, "response": answer.response, "via": answer.via}
    answered = QUESTIONS.close(unit, approval, answer.status, at=answer.at, **facts)
    if answer.patch is not None:
        progress.take_unfenced(unit, Step(row.id, answer.at, patch=answer.patch), limits)
    told = QUESTIONS.transition_detail(approval, "replied" if answer.decision == "replied" else answer.status)
    said: TransitionParameters = {"at": answer.at, "source": "responder", "actor": answer.by, "detail": told}
    if answer.status == "rejected" and approval.on_reject == "fail":
        error = f"Rejected: {answer.response or 'no reason given'}"
        if why := first_line(answer.response):
            said["detail"] = f"{told}: {why}"
        run = repository.fail(unit, listeners, row, error, reason="gate.rejected", said=said)
    else:
        run = repository.go_on(unit, row, said, reason=words.QUESTION_ANSWERED)
    return Answered.of({"approval": answered, "run": run, "repeated": False})


def _check_kind(approval: Approval, answer: ApprovalAnswer) -> None:
    if DECISIONS[answer.decision] != approval.kind:
        permitted = [decision for decision, kind in DECISIONS.items() if kind == approval.kind]
        problem = f"{answer.decision} does not answer a gate of kind {approval.kind}"
        raise InvalidValue("decision", problem, permitted=permitted)


def _check_digest(approval: Approval, answer: ApprovalAnswer) -> None:
    """Raise unless the answer has the digest of the stored action. A rejection needs no digest."""
    if answer.status == "rejected" or answer.digest == approval.action_digest:
        return
    if answer.digest is None:
        raise InvalidValue("digest", "missing: this gate has an action, so its digest must be given")
    raise StaleVersion("approval", approval.id, expected=answer.digest, found=approval.action_digest)


def _is_same(approval: Approval, answer: ApprovalAnswer) -> bool:
    same = (answer.status, answer.by, answer.response)
    if same != (approval.status, approval.answered_by, approval.response):
        return False
    return answer.status == "rejected" or answer.digest == approval.action_digest


# How an approved action is used: once, by one execution, and unchanged since it was approved.


@dataclass(frozen=True)
class Use:
    """The use of an approved gate by an execution that is about to do its action."""

    approval_id: str
    action_digest: str | None
    execution_id: str
    at: datetime


def consume(unit: Unit, use: Use, claim: Claim | None) -> Approval:
    """Mark an approved gate as used by an execution. Repeat-safe for the same execution."""
    row, approval = QUESTIONS.lock_run_of(unit, use.approval_id)
    run_rows.check(row, claim)
    run_rows.expect(row, words.LIVE)
    QUESTIONS.expect(approval, "approved")
    if approval.action_digest != use.action_digest:
        raise StaleVersion("approval", approval.id, expected=use.action_digest, found=approval.action_digest)
    if approval.consumed_by is not None:
        return _check_use(approval, use)
    _check_execution(unit, use, row.id)
    return unit.rows(sql.CONSUME, {"approval_id": approval.id, "execution_id": use.execution_id, "at": use.at})[0]


def _check_use(approval: Approval, use: Use) -> Approval:
    if approval.consumed_by == use.execution_id:
        return approval
    raise Conflict(
        f"approval {approval.id!r} was consumed by execution {approval.consumed_by!r}",
        code="approval_consumed",
        by=approval.consumed_by,
    )


def _check_execution(unit: Unit, use: Use, run_id: str) -> None:
    found = unit.row(sql.RUN_OF_EXECUTION, {"execution_id": use.execution_id})
    if found is None:
        raise valid.not_found("execution", use.execution_id)
    if found != (run_id,):
        raise InvalidValue("execution_id", "must be an execution of this run")


_LIMITS, _RUN = limits_of(APPROVALS), limits_of(RUNS)


def new_approval(run_id: str, gate: Gate, now: datetime, *, blocks_run: bool) -> NewApproval:
    """Check the arguments of a new gate and return its row."""
    valid.argument_group("gate", gate, Gate)
    action, digest = _action_columns("gate.action", gate.action)
    return {
        "id": new_id() if gate.id is None else valid.identifier("gate.id", gate.id, _LIMITS.id),
        "workflow_run_id": run_id,
        "gate": valid.identifier("gate.gate", gate.gate, _LIMITS.gate),
        "summary": valid.content("gate.summary", gate.summary, _LIMITS.summary),
        "kind": valid.word("gate.kind", gate.kind, words.APPROVAL_KINDS),
        "requested_by": valid.optional("gate.requested_by", gate.requested_by, _LIMITS.requested_by),
        "created_at": now,
        "artifact": valid.optional("gate.artifact", gate.artifact, _LIMITS.artifact),
        **shared.node_columns(gate.node, "gate.node"),
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
    """Check the arguments of `approvals.answer` that need no stored gate. Return them as an `ApprovalAnswer`."""
    valid.word("decision", decision, DECISIONS)
    text = valid.optional_content("response", response, _LIMITS.response)
    if decision == "replied" and not (text or "").strip():
        raise InvalidValue("response", "must not be blank: a reply is its text")
    return ApprovalAnswer(
        approval_id=approval_id,
        decision=decision,
        by=valid.identifier("by", by, _LIMITS.responded_by),
        response=text,
        digest=valid.optional("digest", digest, _LIMITS.action_digest),
        via=valid.word("via", via, words.ANSWERED_VIA),
        at=now,
        patch=shared.scratch_patch(scratch),
    )


def use(approval_id: str, action: Any, execution_id: str, now: datetime) -> Use:
    """Check the arguments of `approvals.consume`. Return them as a `Use`."""
    _, digest = _action_columns("action", action)
    return Use(approval_id, digest, valid.identifier("execution_id", execution_id, _LIMITS.consumed_by), now)


def list_filters(
    statuses: Sequence[str] | None,
    trigger_id: str | None,
    artifact: str | None,
    gate: str | None,
    kind: str | None,
) -> Row:
    """Check the filters of a list of gates. Return them by the names that the statement `LIST` gives them."""
    return {
        **_by_status(statuses),
        "trigger_id": valid.optional("trigger_id", trigger_id, _RUN.trigger_id),
        "artifact": valid.optional("artifact", artifact, _LIMITS.artifact),
        "gate": valid.optional("gate", gate, _LIMITS.gate),
        "kind": _kind(kind),
    }


def _by_status(statuses: Sequence[str] | None) -> Row:
    """Return the filter for statuses as shown to callers.

    An overdue gate is shown as expired even while its row is still pending.
    """
    if statuses is None:
        return {}
    wanted = [valid.word("statuses", status, words.APPROVAL_STATUSES) for status in valid.several("statuses", statuses)]
    if "expired" not in wanted:
        return {"statuses": wanted, "not_overdue": {}}
    if "pending" not in wanted:
        return {"statuses": [*wanted, "pending"], "overdue": {}}
    return {"statuses": wanted}


def history_filters(workflow_name: str, gate: str | None, node_id: str | None) -> Row:
    """Check the filters of the list of a workflow's answered gates and return them."""
    return {
        "statuses": ["approved", "rejected"],
        "workflow_name": valid.identifier("workflow_name", workflow_name, _RUN.workflow_name),
        "gate": valid.optional("gate", gate, _LIMITS.gate),
        "node_id": valid.optional("node_id", node_id, _LIMITS.node_id),
    }


def _kind(kind: str | None) -> str | None:
    return None if kind is None else valid.word("kind", kind, words.APPROVAL_KINDS)


def _action_columns(where: str, action: Any) -> tuple[str | None, str | None]:
    """Return an action as JSON text, and the digest of its canonical form. Both are None without an action."""
    if action is None:
        return None, None
    return codec.encode(where, action, max_bytes=_LIMITS.action), codec.digest(action)


def _request_key(gate: Gate) -> str:
    """Return the request key of a gate, unique among a run's pending gates; by default name, node and iteration."""
    if gate.request_key is not None:
        return valid.identifier("gate.request_key", gate.request_key, _LIMITS.request_key)
    node = gate.node
    return codec.canonical([gate.gate, node.node_id if node else None, node.iteration if node else 0]).decode()
