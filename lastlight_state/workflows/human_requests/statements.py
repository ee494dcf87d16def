"""The statements of `human_requests`."""

from __future__ import annotations

import sqlalchemy as sa

from lastlight_state.db.beside import Narrow
from lastlight_state.db.listing import Listing
from lastlight_state.db.statements import bind, prepared
from lastlight_state.workflows.human_requests.records import (
    HumanRequest,
    HumanRequestSummaryRow,
    PendingRequestRow,
    WholeRequestRow,
)
from lastlight_state.workflows.indexes import ASKED_REQUEST, REQUEST_SUMMARY
from lastlight_state.workflows.previews import preview, short
from lastlight_state.workflows.questions.inbox import By, Inbox
from lastlight_state.workflows.questions.rows import QuestionRows, Shape
from lastlight_state.workflows.tables import REQUESTS, shown

_SUMMARY = "ix_human_requests_summary"

_ANSWER = ("answered_at", "answered_by", "response")

#: The columns that a new request sets. It is pending; the others are set by its answer.
_GIVEN = (
    "id",
    "run_id",
    "node_id",
    "iteration",
    "kind",
    "blocks_run",
    "on_expiry",
    "requested_at",
    "expires_at",
    "prompt",
    "options",
    "schema",
)

QUESTIONS = QuestionRows(
    HumanRequest.of,
    WholeRequestRow,
    Shape(
        name="human_request",
        code="request",
        argument="question",
        table=REQUESTS,
        run_id=REQUESTS.c.run_id,
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

#: Clears the answer of an answered request, which is pending again.
REOPEN = prepared(
    sa.update(REQUESTS)
    .where(REQUESTS.c.id == sa.bindparam("request_id"))
    .values(
        status="pending",
        closed_reason=sa.bindparam("reason"),
        reopened=REQUESTS.c.reopened + 1,
        **dict.fromkeys(_ANSWER),
    )
    .returning(*shown(REQUESTS.c)),
    WholeRequestRow,
)

OF_RUN = Listing(
    "human_requests_of_run",
    (
        *shown(REQUESTS.c[name] for name in ("id", "run_id", "requested_at", *REQUEST_SUMMARY)),
        preview(REQUESTS.c.prompt).label("prompt"),
    ),
    order=(REQUESTS.c.requested_at, REQUESTS.c.id),
    descending=False,
    filters={"run_id": REQUESTS.c.run_id == bind("run_id", REQUESTS.c.run_id)},
    through=_SUMMARY,
    row=HumanRequestSummaryRow,
)

#: What the inbox shows of a request.
_ASKED = (
    *shown(REQUESTS.c[name] for name in ("id", "run_id", "requested_at", *ASKED_REQUEST)),
    preview(REQUESTS.c.prompt).label("prompt"),
    short(REQUESTS.c.options).label("options"),
)

INBOX = Inbox(
    "human_inbox",
    _ASKED,
    PendingRequestRow,
    run_id=REQUESTS.c.run_id,
    order=(REQUESTS.c.requested_at, REQUESTS.c.id),
    filters={"kind": REQUESTS.c.kind == bind("kind", REQUESTS.c.kind)},
    by=By(
        "ix_human_requests_asked",
        asked="ix_human_requests_asked",
        of_run=Narrow(_SUMMARY, ("run_id", "status", "expires_at", "kind")),
    ),
)
