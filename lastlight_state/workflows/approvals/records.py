"""The records of `approvals`."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from lastlight_state.db.rows.records import Record
from lastlight_state.workflows.questions.records import AskedQuestion
from lastlight_state.workflows.records import WorkflowRun


class ApprovalSummary(AskedQuestion):
    """A gate in a list: without its action, and with summary and response cut to 500 characters.

    A gate answered with a reply has the status ``approved`` and the text in ``response``.
    """

    gate: str
    summary: str
    requested_by: str | None
    artifact: str | None
    request_key: str | None
    on_reject: str
    action_digest: str | None
    response: str | None
    answered_via: str | None
    consumed_at: datetime | None
    consumed_by: str | None


class Approval(ApprovalSummary):
    """A gate with its full texts and the action that it asks about."""

    action: Any


class PendingApproval(Record):
    """A gate in the inbox, with the status of its run. ``label`` is the label of its node.

    ``summary`` is cut to 500 characters. ``action`` is None if it has more than 2,000 characters as JSON: then only
    ``action_digest`` shows that the gate has an action. `approvals.get` returns both in full.
    """

    id: str
    run_id: str
    workflow_name: str
    run_status: str
    trigger_id: str
    gate: str
    summary: str
    kind: str
    requested_by: str | None
    asked_at: datetime
    artifact: str | None
    node_id: str | None
    iteration: int
    label: str | None
    on_reject: str
    blocks_run: bool
    expires_at: datetime | None
    action_digest: str | None
    action: Any


class Answered(Record):
    """The result of an answer: the gate, its run, and ``repeated``: true if the same answer was stored before."""

    approval: Approval
    run: WorkflowRun
    repeated: bool
