"""How a gate is answered, once, and what the answer does to its run."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from lastlight_state.db.listeners import Listeners
from lastlight_state.db.unit import Unit
from lastlight_state.errors import InvalidValue, StaleVersion
from lastlight_state.settings import Limits
from lastlight_state.workflows import words
from lastlight_state.workflows.approvals.records import Answered, Approval
from lastlight_state.workflows.approvals.statements import QUESTIONS
from lastlight_state.workflows.kernel import progress, rows
from lastlight_state.workflows.kernel.progress import Step
from lastlight_state.workflows.kernel.transitions import Said
from lastlight_state.workflows.questions import endings

#: The decisions, and the kind of gate that each of them answers.
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
        """The status of the gate after this answer: a reply is stored as approved, with its text."""
        return "rejected" if self.decision == "rejected" else "approved"


def record(unit: Unit, listeners: Listeners, limits: Limits, answer: ApprovalAnswer) -> Answered:
    """Store the answer and move the run. A repeated answer returns what is stored."""
    row, approval = QUESTIONS.locked(unit, answer.approval_id)
    _check_kind(approval, answer)
    if not QUESTIONS.takes(approval, answer.at, repeated=lambda: _is_same(approval, answer)):
        return Answered.of({"approval": approval, "run": rows.get(unit, row["id"]), "repeated": True})
    rows.expect(row, words.LIVE)
    _check_digest(approval, answer)
    facts = {"by": answer.by, "response": answer.response, "via": answer.via}
    answered = QUESTIONS.close(unit, approval, answer.status, at=answer.at, **facts)
    if answer.patch is not None:
        progress.take_unfenced(unit, Step(row["id"], answer.at, patch=answer.patch), limits)
    told = QUESTIONS.told(approval, "replied" if answer.decision == "replied" else answer.status)
    said: Said = {"at": answer.at, "source": "responder", "actor": answer.by, "detail": told}
    if answer.status == "rejected" and approval.on_reject == "fail":
        error = f"Rejected: {answer.response or 'no reason given'}"
        run = endings.fail(unit, listeners, row, error, reason="gate.rejected", said=said)
    else:
        run = endings.go_on(unit, row, said, reason=words.QUESTION_ANSWERED)
    return Answered.of({"approval": answered, "run": run, "repeated": False})


def _check_kind(approval: Approval, answer: ApprovalAnswer) -> None:
    if DECISIONS[answer.decision] != approval.kind:
        permitted = [decision for decision, kind in DECISIONS.items() if kind == approval.kind]
        problem = f"{answer.decision} does not answer a gate of kind {approval.kind}"
        raise InvalidValue("decision", problem, permitted=permitted)


def _check_digest(approval: Approval, answer: ApprovalAnswer) -> None:
    """Raise unless the digest is that of the stored action. A rejection needs none."""
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
