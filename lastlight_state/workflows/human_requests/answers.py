"""How a request to a person is answered, once, and opened again when the answer is of no use."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from lastlight_state import codec
from lastlight_state.db.unit import Unit
from lastlight_state.errors import Conflict
from lastlight_state.workflows import words
from lastlight_state.workflows.arguments import Claim
from lastlight_state.workflows.human_requests import statements as sql
from lastlight_state.workflows.human_requests.records import AnsweredRequest, HumanRequest
from lastlight_state.workflows.kernel import fence, rows as run_rows
from lastlight_state.workflows.questions import endings as gates


@dataclass(frozen=True)
class Answer:
    """What somebody answers: JSON text that the request has been found to take."""

    request_id: str
    response: str
    by: str | None
    at: datetime


def record(unit: Unit, answer: Answer) -> AnsweredRequest:
    """Store the answer and let the run go on, unless this very answer is there already."""
    row, request = sql.QUESTIONS.locked(unit, answer.request_id)
    if not sql.QUESTIONS.takes(request, answer.at, repeated=lambda: _is_same(request, answer)):
        return AnsweredRequest.of({"request": request, "run": run_rows.get(unit, row["id"]), "repeated": True})
    run_rows.expect(row, words.LIVE)
    answered = sql.QUESTIONS.close(unit, request, "answered", at=answer.at, by=answer.by, response=answer.response)
    run = gates.go_on(unit, row, {"at": answer.at, "source": "responder", "actor": answer.by})
    return AnsweredRequest.of({"request": answered, "run": run, "repeated": False})


def reopen(unit: Unit, request_id: str, reason: str, at: datetime, claim: Claim | None) -> HumanRequest:
    """Ask again: the answer is cleared, and the node waits once more."""
    row, request = sql.QUESTIONS.locked(unit, request_id)
    fence.fence(row, claim)
    run_rows.expect(row, ("running", "paused"))
    if request.status != "answered":
        raise Conflict(
            f"human_request {request.id!r} is {request.status}",
            code=f"request_{request.status}",
            found=request.status,
            allowed=("answered",),
        )
    [reopened] = unit.all(HumanRequest, sql.REOPEN, {"request_id": request.id, "reason": reason})
    sql.QUESTIONS.hold_node(unit, reopened, at)
    return reopened


def _is_same(request: HumanRequest, answer: Answer) -> bool:
    """By value: numbers as JSON has them, and true is not 1."""
    if (request.status, request.answered_by) != ("answered", answer.by):
        return False
    return codec.canonical(request.response) == codec.canonical(codec.decode(answer.response))
