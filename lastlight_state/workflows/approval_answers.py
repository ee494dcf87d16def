"""How a gate ends by somebody's doing: answered once, or cancelled; and what that means for its run.

The run's row is locked before the gate is looked at, so of any number of responders one wins and all others find
the answer.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from lastlight_state.db import checks
from lastlight_state.db.listeners import Listeners
from lastlight_state.db.unit import Unit
from lastlight_state.errors import AlreadyAnswered, Conflict, InvalidValue, LostRace, NotFound, StaleVersion
from lastlight_state.settings import Limits
from lastlight_state.workflows import approval_statements as sql
from lastlight_state.workflows import gates, run_progress, run_rows, words
from lastlight_state.workflows.approval_records import Answered, Approval
from lastlight_state.workflows.gates import Said
from lastlight_state.workflows.run_progress import Step

DECISIONS = {"approved": "approve", "rejected": "approve", "replied": "reply"}
"""What can be answered, and the kind of gate that takes it."""


@dataclass(frozen=True)
class Answer:
    """What a responder says to a gate. ``digest`` is that of the action that the responder saw."""

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
        """The status that the gate gets: a reply is stored as approved, with its text."""
        return "rejected" if self.decision == "rejected" else "approved"


def locked(unit: Unit, approval_id: str) -> tuple[dict[str, Any], Approval]:
    """A gate, looked at after its run's row was locked, and that row. Raises `NotFound`."""
    row = unit.row(sql.LOCK_RUN, {"approval_id": approval_id})
    approval = get(unit, approval_id)
    if row is None:
        raise NotFound("workflow_run", approval.workflow_run_id)
    return row, approval


def get(unit: Unit, approval_id: str) -> Approval:
    """The whole gate. Raises `NotFound`."""
    approval = unit.find(Approval, sql.GET, {"approval_id": approval_id})
    if approval is None:
        raise checks.not_found("approval", approval_id)
    return approval


def record(unit: Unit, listeners: Listeners, limits: Limits, answer: Answer) -> Answered:
    """Store the answer and move the run, unless this very answer is there already."""
    row, approval = locked(unit, answer.approval_id)
    _check_kind(approval, answer)
    if approval.status != "pending":
        if not _is_same(approval, answer):
            raise closed(approval)
        return Answered.of({"approval": approval, "run": run_rows.get(unit, row["id"]), "repeated": True})
    if approval.expires_at is not None and approval.expires_at <= answer.at:
        raise _closed_as(approval, "expired")
    run_rows.expect(row, words.LIVE)
    _check_digest(approval, answer)
    answered = close(
        unit, approval, answer.status, by=answer.by, at=answer.at, response=answer.response, via=answer.via
    )
    if answer.patch is not None:
        run_progress.take_unfenced(unit, Step(row["id"], answer.at, patch=answer.patch), limits)
    said: Said = {"at": answer.at, "source": "responder", "actor": answer.by}
    if answer.status == "rejected" and approval.on_reject == "fail":
        error = f"Rejected: {answer.response or 'no reason given'}"
        run = gates.fail(unit, listeners, row, error, reason="gate.rejected", said=said)
    else:
        run = gates.go_on(unit, row, said)
    return Answered.of({"approval": answered, "run": run, "repeated": False})


def close(
    unit: Unit,
    approval: Approval,
    status: str,
    *,
    by: str,
    at: datetime,
    response: str | None = None,
    via: str | None = None,
    closed_reason: str | None = None,
) -> Approval:
    """Give a pending gate, whose run is locked, its end."""
    facts = {"status": status, "by": by, "at": at, "response": response, "via": via, "closed_reason": closed_reason}
    found = unit.find(Approval, sql.CLOSE, {"approval_id": approval.id, **facts})
    if found is None:
        raise LostRace(f"approval {approval.id!r} is not pending any more", expected="pending")
    return found


def cancel(unit: Unit, approval_id: str, *, by: str, reason: str, at: datetime) -> Approval:
    """End a gate without an answer; the run goes on as after one."""
    row, approval = locked(unit, approval_id)
    if approval.status == "cancelled":
        return approval
    if approval.status != "pending":
        raise closed(approval)
    run_rows.expect(row, words.LIVE)
    cancelled = close(unit, approval, "cancelled", by=by, at=at, closed_reason=reason)
    gates.go_on(unit, row, {"at": at, "source": "operator", "actor": by})
    return cancelled


def closed(approval: Approval) -> Conflict:
    """The error for a gate that takes no answer any more; `AlreadyAnswered` carries it if it has one."""
    if approval.status in ("approved", "rejected"):
        return AlreadyAnswered("approval", approval.id, winner=approval)
    return _closed_as(approval, approval.status)


def _closed_as(approval: Approval, status: str) -> Conflict:
    return Conflict(f"approval {approval.id!r} is {status}", code=f"approval_{status}", found=status)


def _check_kind(approval: Approval, answer: Answer) -> None:
    if DECISIONS[answer.decision] != approval.kind:
        permitted = [decision for decision, kind in DECISIONS.items() if kind == approval.kind]
        raise InvalidValue("decision", f"{answer.decision} is no answer to kind {approval.kind}", permitted=permitted)


def _check_digest(approval: Approval, answer: Answer) -> None:
    """Only who states the digest of the stored action has seen it. A no needs none."""
    if answer.status == "rejected" or answer.digest == approval.action_digest:
        return
    if answer.digest is None:
        raise InvalidValue("digest", "missing: this gate asks leave for an action, and its digest says which was seen")
    raise StaleVersion("approval", approval.id, expected=answer.digest, found=approval.action_digest)


def _is_same(approval: Approval, answer: Answer) -> bool:
    same = (answer.status, answer.by, answer.response)
    if same != (approval.status, approval.responded_by, approval.response):
        return False
    return answer.status == "rejected" or answer.digest == approval.action_digest
