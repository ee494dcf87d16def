"""The records of `human_requests`."""

from __future__ import annotations

import warnings
from datetime import datetime
from typing import Any, ClassVar, Self

from lastlight_state.db.rows.records import Record
from lastlight_state.workflows.questions.records import AskedQuestion
from lastlight_state.workflows.records import WorkflowRun


class HumanRequestSummary(AskedQuestion):
    """A request in a list: without options, schema and response, and with the prompt cut to 500 characters.

    ``reopened`` counts the answers that `reopen` cleared. While a reopened request is pending, ``closed_reason`` is
    the reason of `reopen`.
    """

    node_id: str
    on_expiry: str
    reopened: int
    prompt: str


with warnings.catch_warnings():
    warnings.simplefilter("ignore", UserWarning)  # the field schema hides an old method of pydantic

    class HumanRequest(HumanRequestSummary):
        """A request with its options or schema, and the response: text, a bool, one of the options, or a form."""

        options: Any
        schema: Any
        response: Any


class PendingRequest(Record):
    """A request in the inbox, with the status of its run.

    ``label`` is the label of the node, None if the node has no row. ``has_schema`` is true for forms:
    `human_requests.get` returns the schema, which may be too large for a list. ``prompt`` is cut to 500 characters.
    ``options`` are None if they have more than 2,000 characters as JSON.
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
    asked_at: datetime
    expires_at: datetime | None
    closed_reason: str | None
    reopened: int
    prompt: str
    options: Any
    has_schema: bool

    _computed: ClassVar[frozenset[str]] = frozenset({"has_schema"})

    @classmethod
    def of(cls, values: Any) -> Self:
        values["has_schema"] = values["kind"] == "form"
        return super().of(values)


class AnsweredRequest(Record):
    """The result of an answer: the request, its run, and ``repeated``: true if the same answer was stored before."""

    request: HumanRequest
    run: WorkflowRun
    repeated: bool
