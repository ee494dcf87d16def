"""What callers get about requests to people."""

from __future__ import annotations

import warnings
from datetime import datetime
from typing import Any, Self

from lastlight_state.db.records import Record
from lastlight_state.workflows.questions.records import AskedQuestion
from lastlight_state.workflows.records import WorkflowRun


class HumanRequestSummary(AskedQuestion):
    """A request as lists show it: everything but its options, schema and response.

    ``answered_by`` and ``answered_at`` say who answered (or cancelled) and when. ``closed_reason`` says why it ended
    without an answer; of one that was ``reopened`` and is pending again, why its last answer was sent back.
    """

    run_id: str
    node_id: str
    kind: str
    blocks_run: bool
    on_expiry: str
    requested_at: datetime
    answered_at: datetime | None
    answered_by: str | None
    closed_reason: str | None
    reopened: int
    prompt: str


with warnings.catch_warnings():
    warnings.simplefilter("ignore", UserWarning)  # pydantic once had a method called schema; ours is the form's

    class HumanRequest(HumanRequestSummary):
        """A request with what may be answered, and the response: text, a truth value, one of the options, a form."""

        options: Any
        schema: Any
        response: Any


def as_of(values: dict[str, Any], now: datetime) -> dict[str, Any]:
    """A request's values as they are to be seen at this time: one that is overdue has expired, swept or not."""
    expires_at = values["expires_at"]
    if values["status"] == "pending" and expires_at is not None and expires_at <= now:
        return {**values, "status": "expired", "closed_reason": "gate.expired"}
    return values


class PendingRequest(Record):
    """A request of the inbox: what is asked of whom, and where the run stands.

    ``label`` is the node's, None where it has no row. With ``has_schema``, which every form has and nothing else, ask
    `human_requests.get` for the schema; a list that asked each row for it would cost what the schemas weigh.
    """

    id: str
    run_id: str
    workflow_name: str
    run_status: str
    trigger_id: str
    node_id: str
    iteration: int
    label: str | None
    kind: str
    blocks_run: bool
    on_expiry: str
    requested_at: datetime
    expires_at: datetime | None
    closed_reason: str | None
    reopened: int
    prompt: str
    options: Any
    has_schema: bool

    @classmethod
    def of(cls, values: dict[str, Any]) -> Self:
        values["has_schema"] = values["kind"] == "form"
        return super().of(values)


class AnsweredRequest(Record):
    """A request after its answer, its run, and whether this very answer had been given before."""

    request: HumanRequest
    run: WorkflowRun
    repeated: bool
