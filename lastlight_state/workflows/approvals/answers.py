"""How a gate is answered, once; and what that means for its run.

What `question_opening` needs to know of a gate: while one is pending, no other of its request key is opened.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from lastlight_state.db.listeners import Listeners
from lastlight_state.db.unit import Unit
from lastlight_state.errors import AlreadyExists, InvalidValue, StaleVersion
from lastlight_state.settings import Limits
from lastlight_state.workflows import words
from lastlight_state.workflows.approvals import statements as sql
from lastlight_state.workflows.approvals.records import Answered, Approval
from lastlight_state.workflows.approvals.statements import QUESTIONS
from lastlight_state.workflows.kernel import progress as run_progress, rows as run_rows
from lastlight_state.workflows.kernel.progress import Step
from lastlight_state.workflows.questions import endings as gates
from lastlight_state.workflows.questions.endings import Said
from lastlight_state.workflows.questions.opening import Opening

#: What can be answered, and the kind of gate that takes it.
DECISIONS = {"approved": "approve", "rejected": "approve", "replied": "reply"}


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


def record(unit: Unit, listeners: Listeners, limits: Limits, answer: Answer) -> Answered:
    """Store the answer and move the run, unless this very answer is there already."""
    row, approval = QUESTIONS.locked(unit, answer.approval_id)
    _check_kind(approval, answer)
    if not QUESTIONS.takes(approval, answer.at, repeated=lambda: _is_same(approval, answer)):
        return Answered.of({"approval": approval, "run": run_rows.get(unit, row["id"]), "repeated": True})
    run_rows.expect(row, words.LIVE)
    _check_digest(approval, answer)
    facts = {"by": answer.by, "response": answer.response, "via": answer.via}
    answered = QUESTIONS.close(unit, approval, answer.status, at=answer.at, **facts)
    if answer.patch is not None:
        run_progress.take_unfenced(unit, Step(row["id"], answer.at, patch=answer.patch), limits)
    said: Said = {"at": answer.at, "source": "responder", "actor": answer.by}
    if answer.status == "rejected" and approval.on_reject == "fail":
        error = f"Rejected: {answer.response or 'no reason given'}"
        run = gates.fail(unit, listeners, row, error, reason="gate.rejected", said=said)
    else:
        run = gates.go_on(unit, row, said)
    return Answered.of({"approval": answered, "run": run, "repeated": False})


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


def opening(gate: dict[str, Any]) -> Opening[Approval]:
    """A gate about to be asked."""
    return Opening(
        sql.QUESTIONS, gate, gate["workflow_run_id"], gate["created_at"], refuse=lambda unit: _refuse_key(unit, gate)
    )


def _refuse_key(unit: Unit, gate: dict[str, Any]) -> None:
    pending = unit.find(Approval, sql.FIND_PENDING_KEY, gate)
    if pending is not None:
        raise AlreadyExists(
            "approval", pending.id, problem="is pending with the same request key in this run", approval=pending
        )
