"""How a human request is answered, once, and opened again if the engine cannot use the answer."""

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
from lastlight_state.workflows.kernel import fence, rows, transitions
from lastlight_state.workflows.kernel.transitions import Said
from lastlight_state.workflows.questions import endings


@dataclass(frozen=True)
class RequestAnswer:
    """An answer as JSON text, checked against its request."""

    request_id: str
    response: str
    by: str | None
    at: datetime


def record(unit: Unit, answer: RequestAnswer) -> AnsweredRequest:
    """Store the answer and let the run go on. A repeated answer returns what is stored."""
    row, request = sql.QUESTIONS.locked(unit, answer.request_id)
    if not sql.QUESTIONS.takes(request, answer.at, repeated=lambda: _is_same(request, answer)):
        return AnsweredRequest.of({"request": request, "run": rows.get(unit, row["id"]), "repeated": True})
    rows.expect(row, words.LIVE)
    answered = sql.QUESTIONS.close(unit, request, "answered", at=answer.at, by=answer.by, response=answer.response)
    said: Said = {"at": answer.at, "source": "responder", "actor": answer.by, "detail": _told(request, "answered")}
    run = endings.go_on(unit, row, said, reason=words.QUESTION_ANSWERED)
    return AnsweredRequest.of({"request": answered, "run": run, "repeated": False})


def reopen(unit: Unit, request_id: str, reason: str, at: datetime, claim: Claim | None) -> HumanRequest:
    """Clear the answer of a request and let its node wait again."""
    row, request = sql.QUESTIONS.locked(unit, request_id)
    fence.check(row, claim)
    rows.expect(row, ("running", "paused"))
    if request.status != "answered":
        raise Conflict(
            f"human_request {request.id!r} is {request.status}",
            code=f"request_{request.status}",
            found=request.status,
            allowed=("answered",),
        )
    [reopened] = unit.all(HumanRequest.of, sql.REOPEN, {"request_id": request.id, "reason": reason})
    sql.QUESTIONS.hold_node(unit, reopened, at)
    transitions.move(
        unit, transitions.QUESTION, row, row["status"], reason=words.QUESTION_ASKED, at=at, source="engine",
        detail=_told(request, "asked again"), presented_epoch=claim.epoch if claim else None,
    )  # fmt: skip
    return reopened


def _told(request: HumanRequest, happened: str) -> str:
    return sql.QUESTIONS.told(request, happened)


def _is_same(request: HumanRequest, answer: RequestAnswer) -> bool:
    """By value: numbers as JSON has them, and true is not 1."""
    if (request.status, request.answered_by) != ("answered", answer.by):
        return False
    return codec.canonical(request.response) == codec.canonical(codec.decode(answer.response))
