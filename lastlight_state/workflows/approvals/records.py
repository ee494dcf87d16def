"""What callers get about gates."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from lastlight_state.db.records import Record
from lastlight_state.workflows.questions.records import AskedQuestion
from lastlight_state.workflows.records import WorkflowRun


class ApprovalSummary(AskedQuestion):
    """A gate as lists show it: everything but the action.

    ``responded_by`` and ``responded_at`` say who answered (or cancelled) and when. An answered reply has the status
    ``approved`` and its text in ``response``. ``closed_reason`` says why a gate ended without an answer.
    """

    workflow_run_id: str
    gate: str
    summary: str
    kind: str
    requested_by: str | None
    responded_by: str | None
    response: str | None
    responded_at: datetime | None
    created_at: datetime
    artifact: str | None
    request_key: str | None
    on_reject: str
    blocks_run: bool
    action_digest: str | None
    answered_via: str | None
    consumed_at: datetime | None
    consumed_by: str | None
    closed_reason: str | None


class Approval(ApprovalSummary):
    """A gate with the action that it asks leave for."""

    action: Any


class PendingApproval(Record):
    """A question of the inbox: what is asked, what would be done, and where the run stands. ``label`` is its node's."""

    id: str
    workflow_run_id: str
    workflow_name: str
    run_status: str
    trigger_id: str
    gate: str
    summary: str
    kind: str
    requested_by: str | None
    created_at: datetime
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
    """A gate after its answer, its run, and whether this very answer had been given before."""

    approval: Approval
    run: WorkflowRun
    repeated: bool
