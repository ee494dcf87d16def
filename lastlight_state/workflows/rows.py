"""The rows of the tables of workflows, written by ``make docs`` from the models. JSON is given as text."""

from __future__ import annotations

from datetime import datetime
from typing import Any, TypedDict


class WorkflowRunRow(TypedDict):
    """A row of ``workflow_runs``."""

    id: str
    workflow_name: str
    trigger_id: str
    repo: str | None
    issue_number: int | None
    current_phase: str
    phase_history: Any
    status: str
    context: Any
    scratch: Any
    node_statuses: Any
    restart_count: int
    started_at: datetime
    updated_at: datetime
    finished_at: datetime | None
    owner: str | None
    trigger_type: str | None
    triggered_by: str | None
    trigger_actor_type: str | None
    run_key: str | None
    create_digest: str | None
    parent_run_id: str | None
    max_restarts: int
    transition_seq: int
    status_reason: str | None
    phase_count: int
    queued_at: datetime | None
    admitted_at: datetime | None
    wake_at: datetime | None
    pause_reason: str | None
    waiting_for: str | None
    correlation_id: str | None
    cancel_requested_at: datetime | None
    cancel_requested_by: str | None
    cancel_reason: str | None
    deadline_at: datetime | None
    claim_owner: str | None
    claim_epoch: int
    claimed_at: datetime | None
    heartbeat_at: datetime | None
    lease_expires_at: datetime | None
    previous_owner: str | None
    previous_heartbeat_at: datetime | None
    previous_lease_expires_at: datetime | None
    previous_status: str | None
    previous_restart_count: int | None
    workflow_path: str | None
    workflow_hash: str | None
    vcs_type: str | None
    vcs_root: str | None
    vcs_revision: str | None
    app_version: str | None
    trace_id: str | None
    span_id: str | None
    error: str | None
    error_detail: Any


class RunLeaseRow(TypedDict):
    """A row of ``run_leases``."""

    run_id: str
    workflow_name: str
    epoch: int | None
    heartbeat_at: datetime | None
    lease_expires_at: datetime | None
    due_at: datetime


class ExecutionRow(TypedDict):
    """A row of ``executions``."""

    id: str
    trigger_type: str
    trigger_id: str
    skill: str
    repo: str | None
    issue_number: int | None
    started_at: datetime
    finished_at: datetime | None
    success: bool | None
    error: str | None
    turns: int | None
    duration_ms: int | None
    session_id: str | None
    cost_usd: float | None
    input_tokens: int | None
    cache_creation_input_tokens: int | None
    cache_read_input_tokens: int | None
    output_tokens: int | None
    api_duration_ms: int | None
    stop_reason: str | None
    workflow_run_id: str | None
    output_text: str | None
    owner: str | None
    triggered_by: str | None
    trigger_actor_type: str | None
    node_id: str | None
    iteration: int
    attempt: int | None
    outcome: str | None
    heartbeat_at: datetime | None
    claim_epoch: int | None
    cached: bool
    model: str | None
    price_table: str | None
    cost_micros: int | None
    cost_picos: int | None
    input_includes_cache_reads: bool
    vcs_pointer: str | None
    work_dir: str | None
    checkpoint: Any
    error_detail: Any
    details: Any


class WorkflowApprovalRow(TypedDict):
    """A row of ``workflow_approvals``."""

    id: str
    workflow_run_id: str
    gate: str
    summary: str
    status: str
    kind: str
    requested_by: str | None
    responded_by: str | None
    response: str | None
    responded_at: datetime | None
    created_at: datetime
    artifact: str | None
    node_id: str | None
    iteration: int
    request_key: str | None
    on_reject: str
    blocks_run: bool
    expires_at: datetime | None
    action_digest: str | None
    answered_via: str | None
    consumed_at: datetime | None
    consumed_by: str | None
    closed_reason: str | None
    action: Any


class WorkflowOverrideRow(TypedDict):
    """A row of ``workflow_overrides``."""

    name: str
    enabled: bool
    updated_at: datetime
    updated_by: str | None
    reason: str | None


class RunTransitionRow(TypedDict):
    """A row of ``run_transitions``."""

    run_id: str
    seq: int
    from_status: str | None
    to_status: str
    reason: str
    actor: str | None
    source: str
    claim_epoch: int | None
    at: datetime
    detail: str | None


class RunNodeRow(TypedDict):
    """A row of ``run_nodes``."""

    run_id: str
    node_id: str
    iteration: int
    state: str
    last_attempt: int
    output_table: str | None
    label: str | None
    wake_at: datetime | None
    waiting_for: str | None
    correlation_id: str | None
    updated_at: datetime


class RunLoopRow(TypedDict):
    """A row of ``run_loops``."""

    run_id: str
    loop_id: str
    iteration: int
    done: bool
    updated_at: datetime


class HumanRequestRow(TypedDict):
    """A row of ``human_requests``."""

    id: str
    run_id: str
    node_id: str
    iteration: int
    kind: str
    status: str
    blocks_run: bool
    on_expiry: str
    requested_at: datetime
    expires_at: datetime | None
    answered_at: datetime | None
    answered_by: str | None
    closed_reason: str | None
    reopened: int
    prompt: str
    options: Any
    schema: Any
    response: Any


class WorkflowWorkerRow(TypedDict):
    """A row of ``workflow_workers``."""

    name: str
    host: str
    pid: int
    slots: int
    started_at: datetime
    seen_at: datetime
    expires_at: datetime
    workflow_names: Any
    app_versions: Any
