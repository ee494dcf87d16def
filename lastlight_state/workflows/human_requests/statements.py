"""The SQL statements of `human_requests`."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TypedDict

import sqlalchemy as sa

from lastlight_state import codec
from lastlight_state.db.lists.covering import NarrowIndex
from lastlight_state.db.lists.listing import Listing
from lastlight_state.db.rows.statements import bind, statement_of
from lastlight_state.db.units.unit import Unit
from lastlight_state.workflows import words
from lastlight_state.workflows.arguments import Claim
from lastlight_state.workflows.human_requests.records import (
    AnsweredRequest,
    HumanRequest,
    HumanRequestSummary,
    PendingRequest,
)
from lastlight_state.workflows.questions import repository
from lastlight_state.workflows.questions.inbox import Inbox, InboxIndexes
from lastlight_state.workflows.questions.question_rows import QuestionRows, Shape
from lastlight_state.workflows.repos import preview, short
from lastlight_state.workflows.shared import run_rows, transitions
from lastlight_state.workflows.shared.transitions import TransitionParameters
from lastlight_state.workflows.tables import REQUESTS, columns_for, every_column_for

_SUMMARY = "ix_human_requests_summary"

_ANSWER = ("answered_at", "answered_by", "response")


class NewRequest(TypedDict):
    """The row of a new request. Its answer sets the other columns."""

    id: str
    run_id: str
    node_id: str
    iteration: int
    kind: str
    blocks_run: bool
    on_expiry: str
    requested_at: datetime
    expires_at: datetime | None
    prompt: str
    options: str | None
    schema: str | None


_GIVEN = tuple(NewRequest.__annotations__)

QUESTIONS = QuestionRows(
    HumanRequest,
    Shape(
        name="human_request",
        prefix="request",
        argument="question",
        table=REQUESTS,
        kinds=words.HUMAN_KINDS,
        run_id=REQUESTS.c.run_id,
        order=(REQUESTS.c.requested_at, REQUESTS.c.id),
        given=_GIVEN,
        same=tuple(name for name in _GIVEN if name not in ("id", "requested_at")),
        end={"by": "answered_by", "at": "answered_at", "response": "response", "closed_reason": "closed_reason"},
        answers=frozenset({"answered"}),
        refusals=frozenset(),
        waiting="waiting_person",
        policy=REQUESTS.c.on_expiry,
        title=REQUESTS.c.node_id,
        due_index="ix_human_requests_due",
    ),
)

#: Clears the answer of a request and makes the request pending again.
REOPEN = statement_of(
    sa.update(REQUESTS)
    .where(REQUESTS.c.id == sa.bindparam("request_id"))
    .values(
        status="pending",
        closed_reason=sa.bindparam("reason"),
        reopened=REQUESTS.c.reopened + 1,
        **dict.fromkeys(_ANSWER),
    )
    .returning(*every_column_for(HumanRequest, REQUESTS)),
    HumanRequest,
)

OF_RUN = Listing(
    "human_requests_of_run",
    columns_for(HumanRequestSummary, REQUESTS, prompt=preview(REQUESTS.c.prompt)),
    order=QUESTIONS.shape.order,
    descending=False,
    filters={"run_id": REQUESTS.c.run_id == bind("run_id", REQUESTS.c.run_id)},
    through=_SUMMARY,
    row=HumanRequestSummary,
)

#: What the inbox shows of a request.
_ASKED = columns_for(PendingRequest, REQUESTS, prompt=preview(REQUESTS.c.prompt), options=short(REQUESTS.c.options))

INBOX = Inbox(
    "human_inbox",
    _ASKED,
    PendingRequest,
    QUESTIONS.shape,
    InboxIndexes(
        "ix_human_requests_asked",
        asked="ix_human_requests_asked",
        of_run=NarrowIndex(_SUMMARY, ("run_id", "status", "expires_at", "kind")),
    ),
)


# How a human request is answered once, and made pending again if the engine cannot use the answer.


@dataclass(frozen=True)
class RequestAnswer:
    """An answer as JSON text. It was checked against the request that it answers."""

    request_id: str
    response: str
    by: str | None
    at: datetime


def record(unit: Unit, answer: RequestAnswer) -> AnsweredRequest:
    """Store an answer and let the run go on. A repeated answer changes nothing and returns the stored request."""
    row, request = QUESTIONS.lock_run_of(unit, answer.request_id)
    if not QUESTIONS.takes(request, answer.at, repeated=lambda: _is_same(request, answer)):
        return AnsweredRequest.of({"request": request, "run": run_rows.get(unit, row.id), "repeated": True})
    run_rows.expect(row, words.LIVE)
    answered = QUESTIONS.close(unit, request, "answered", at=answer.at, by=answer.by, response=answer.response)
    said: TransitionParameters = {
        "at": answer.at,
        "source": "responder",
        "actor": answer.by,
        "detail": QUESTIONS.transition_detail(request, "answered"),
    }
    run = repository.go_on(unit, row, said, reason=words.QUESTION_ANSWERED)
    return AnsweredRequest.of({"request": answered, "run": run, "repeated": False})


def reopen(unit: Unit, request_id: str, reason: str, at: datetime, claim: Claim | None) -> HumanRequest:
    """Clear the answer of a request and let its node wait again."""
    row, request = QUESTIONS.lock_run_of(unit, request_id)
    run_rows.check(row, claim)
    run_rows.expect(row, ("running", "paused"))
    QUESTIONS.expect(request, "answered")
    [reopened] = unit.rows(REOPEN, {"request_id": request.id, "reason": reason})
    QUESTIONS.hold_node(unit, reopened, at)
    transitions.move(
        unit, transitions.QUESTION, row, row.status, reason=words.QUESTION_ASKED, at=at, source="engine",
        detail=QUESTIONS.transition_detail(request, "asked again"), presented_epoch=claim.epoch if claim else None,
    )  # fmt: skip
    return reopened


def _is_same(request: HumanRequest, answer: RequestAnswer) -> bool:
    """True if the stored answer equals this answer as a JSON value: ``1.0`` equals ``1``, but ``true`` does not."""
    if (request.status, request.answered_by) != ("answered", answer.by):
        return False
    return codec.canonical(request.response) == codec.canonical(codec.decode(answer.response))
