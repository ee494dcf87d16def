"""The records of `approvals`."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Self, TypedDict

from lastlight_state.db.rows.records import Record
from lastlight_state.workflows.questions.records import AskedQuestion, AskedRow
from lastlight_state.workflows.records import WorkflowRun


class ApprovalSummaryRow(AskedRow):
    """The columns of an `ApprovalSummary`."""

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


class WholeApprovalRow(ApprovalSummaryRow):
    """The columns of an `Approval`."""

    action: Any


class PendingApprovalRow(TypedDict):
    """The columns of a `PendingApproval`."""

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


class ApprovalSummary(AskedQuestion):
    """A gate as lists show it: everything but the action, the summary and the response cut to 500 characters.

    An answered reply has the status ``approved`` and its text in ``response``.
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

    @classmethod
    def of(cls, values: ApprovalSummaryRow) -> Self:
        return super().of(values)


class Approval(ApprovalSummary):
    """A gate with its whole texts and the action that it asks about."""

    action: Any

    @classmethod
    def of(cls, values: WholeApprovalRow) -> Self:  # type: ignore[override]
        return super().of(values)


class PendingApproval(Record):
    """A gate of the inbox, with the state of its run. ``label`` is that of its node.

    ``summary`` is cut to 500 characters. ``action`` is None if it has more than 2,000 characters as JSON: then only
    ``action_digest`` tells that there is one. `approvals.get` has both whole.
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

    @classmethod
    def of(cls, values: PendingApprovalRow) -> Self:
        return super().of(values)


class Answered(Record):
    """A gate after its answer, its run, and whether the same answer had been given before."""

    approval: Approval
    run: WorkflowRun
    repeated: bool
