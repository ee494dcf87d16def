"""Tables of the workflows domain.

The first columns of a table of the seed are those of revision 0001, in its order. The columns after the comment came
with 0002, narrow before wide: on SQLite a column behind a large one is slow to read, even if the large one is not
selected.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import ForeignKey, false, text, true
from sqlalchemy.orm import Mapped, mapped_column

from lastlight_state.db.base import Base, described, json_column, roomy


class WorkflowRunModel(Base):
    """One dispatch of a workflow: what resumes it, who holds it, and how it ended."""

    __tablename__ = "workflow_runs"
    __table_args__ = described("workflow runs, one row per dispatch, with what resumes them", postgresql_with=roomy(40))

    id: Mapped[str] = mapped_column(primary_key=True)
    workflow_name: Mapped[str]
    trigger_id: Mapped[str]
    repo: Mapped[str | None]
    issue_number: Mapped[int | None]
    current_phase: Mapped[str]
    phase_history: Mapped[Any] = json_column(nullable=False, server_default=text("'[]'"))
    status: Mapped[str] = mapped_column(server_default="running")
    context: Mapped[Any] = json_column(nullable=True)
    scratch: Mapped[Any] = json_column(nullable=True)
    node_statuses: Mapped[Any] = json_column(shape=dict, nullable=True)
    restart_count: Mapped[int] = mapped_column(server_default=text("0"))
    started_at: Mapped[datetime]
    updated_at: Mapped[datetime]
    finished_at: Mapped[datetime | None]
    # since 0002
    owner: Mapped[str | None]
    trigger_type: Mapped[str | None]
    triggered_by: Mapped[str | None]
    trigger_actor_type: Mapped[str | None]
    run_key: Mapped[str | None]
    create_digest: Mapped[str | None]
    parent_run_id: Mapped[str | None]
    max_restarts: Mapped[int] = mapped_column(server_default=text("3"))
    transition_seq: Mapped[int] = mapped_column(server_default=text("0"))
    status_reason: Mapped[str | None]
    phase_count: Mapped[int] = mapped_column(server_default=text("0"))
    queued_at: Mapped[datetime | None]
    admitted_at: Mapped[datetime | None]
    wake_at: Mapped[datetime | None]
    pause_reason: Mapped[str | None]
    waiting_for: Mapped[str | None]
    correlation_id: Mapped[str | None]
    cancel_requested_at: Mapped[datetime | None]
    cancel_requested_by: Mapped[str | None]
    cancel_reason: Mapped[str | None]
    deadline_at: Mapped[datetime | None]
    claim_owner: Mapped[str | None]
    claim_epoch: Mapped[int] = mapped_column(server_default=text("0"))
    claimed_at: Mapped[datetime | None]
    heartbeat_at: Mapped[datetime | None]
    lease_expires_at: Mapped[datetime | None]
    previous_owner: Mapped[str | None]
    previous_heartbeat_at: Mapped[datetime | None]
    previous_lease_expires_at: Mapped[datetime | None]
    previous_status: Mapped[str | None]
    previous_restart_count: Mapped[int | None]
    workflow_path: Mapped[str | None]
    workflow_hash: Mapped[str | None]
    vcs_type: Mapped[str | None]
    vcs_root: Mapped[str | None]
    vcs_revision: Mapped[str | None]
    app_version: Mapped[str | None]
    trace_id: Mapped[str | None]
    span_id: Mapped[str | None]
    error: Mapped[str | None]
    error_detail: Mapped[Any] = json_column(nullable=True)


class ExecutionModel(Base):
    """One phase execution, chat turn or node attempt. Its session id leads to its line file."""

    __tablename__ = "executions"
    __table_args__ = described("phase executions, chat turns and node attempts, with usage")

    id: Mapped[str] = mapped_column(primary_key=True)
    trigger_type: Mapped[str]
    trigger_id: Mapped[str]
    skill: Mapped[str]
    repo: Mapped[str | None]
    issue_number: Mapped[int | None]
    started_at: Mapped[datetime]
    finished_at: Mapped[datetime | None]
    success: Mapped[bool | None]
    error: Mapped[str | None]
    turns: Mapped[int | None]
    duration_ms: Mapped[int | None]
    session_id: Mapped[str | None]
    cost_usd: Mapped[float | None]
    input_tokens: Mapped[int | None]
    cache_creation_input_tokens: Mapped[int | None]
    cache_read_input_tokens: Mapped[int | None]
    output_tokens: Mapped[int | None]
    api_duration_ms: Mapped[int | None]
    stop_reason: Mapped[str | None]
    workflow_run_id: Mapped[str | None]
    output_text: Mapped[str | None]
    # since 0002
    owner: Mapped[str | None]
    triggered_by: Mapped[str | None]
    trigger_actor_type: Mapped[str | None]
    node_id: Mapped[str | None]
    iteration: Mapped[int] = mapped_column(server_default=text("0"))
    attempt: Mapped[int | None]
    outcome: Mapped[str | None]
    heartbeat_at: Mapped[datetime | None]
    claim_epoch: Mapped[int | None]
    cached: Mapped[bool] = mapped_column(server_default=false())
    model: Mapped[str | None]
    price_table: Mapped[str | None]
    cost_micros: Mapped[int | None]
    cost_picos: Mapped[int | None]
    input_includes_cache_reads: Mapped[bool] = mapped_column(server_default=false())
    vcs_pointer: Mapped[str | None]
    work_dir: Mapped[str | None]
    checkpoint: Mapped[Any] = json_column(nullable=True)
    error_detail: Mapped[Any] = json_column(nullable=True)
    details: Mapped[Any] = json_column(nullable=True)


class WorkflowApprovalModel(Base):
    """A gate: one question to a person about a run, with its one answer."""

    __tablename__ = "workflow_approvals"
    __table_args__ = described("gates of runs and their answers")

    id: Mapped[str] = mapped_column(primary_key=True)
    workflow_run_id: Mapped[str]
    gate: Mapped[str]
    summary: Mapped[str]
    status: Mapped[str] = mapped_column(server_default="pending")
    kind: Mapped[str] = mapped_column(server_default="approve")
    requested_by: Mapped[str | None]
    responded_by: Mapped[str | None]
    response: Mapped[str | None]
    responded_at: Mapped[datetime | None]
    created_at: Mapped[datetime]
    # since 0002
    artifact: Mapped[str | None]
    node_id: Mapped[str | None]
    iteration: Mapped[int] = mapped_column(server_default=text("0"))
    request_key: Mapped[str | None]
    on_reject: Mapped[str] = mapped_column(server_default="fail")
    blocks_run: Mapped[bool] = mapped_column(server_default=true())
    expires_at: Mapped[datetime | None]
    action_digest: Mapped[str | None]
    answered_via: Mapped[str | None]
    consumed_at: Mapped[datetime | None]
    consumed_by: Mapped[str | None]
    closed_reason: Mapped[str | None]
    action: Mapped[Any] = json_column(nullable=True)


class WorkflowOverrideModel(Base):
    """The kill switch of one workflow. No row: enabled."""

    __tablename__ = "workflow_overrides"
    __table_args__ = described("kill switches of workflows; no row means enabled")

    name: Mapped[str] = mapped_column(primary_key=True)
    enabled: Mapped[bool] = mapped_column(server_default=true())
    updated_at: Mapped[datetime]
    updated_by: Mapped[str | None]
    # since 0002
    reason: Mapped[str | None]


class RunTransitionModel(Base):
    """One change of a run's status, numbered from 1 without gaps."""

    __tablename__ = "run_transitions"
    __table_args__ = described("every change of a run's status, numbered without gaps")

    run_id: Mapped[str] = mapped_column(ForeignKey("workflow_runs.id"), primary_key=True)
    seq: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    from_status: Mapped[str | None]
    to_status: Mapped[str]
    reason: Mapped[str]
    actor: Mapped[str | None]
    source: Mapped[str]
    claim_epoch: Mapped[int | None]
    at: Mapped[datetime]
    detail: Mapped[str | None]


class RunNodeModel(Base):
    """The state of one node of a run's graph, in one iteration of its loop."""

    __tablename__ = "run_nodes"
    __table_args__ = described("state of each node of a run, by iteration")

    run_id: Mapped[str] = mapped_column(ForeignKey("workflow_runs.id"), primary_key=True)
    node_id: Mapped[str] = mapped_column(primary_key=True)
    iteration: Mapped[int] = mapped_column(primary_key=True, autoincrement=False, server_default=text("0"))
    state: Mapped[str]
    last_attempt: Mapped[int] = mapped_column(server_default=text("0"))
    output_table: Mapped[str | None]
    label: Mapped[str | None]
    wake_at: Mapped[datetime | None]
    waiting_for: Mapped[str | None]
    correlation_id: Mapped[str | None]
    updated_at: Mapped[datetime]


class RunLoopModel(Base):
    """One loop of a run: its present iteration, and whether it is done."""

    __tablename__ = "run_loops"
    __table_args__ = described("where each loop of a run stands")

    run_id: Mapped[str] = mapped_column(ForeignKey("workflow_runs.id"), primary_key=True)
    loop_id: Mapped[str] = mapped_column(primary_key=True)
    iteration: Mapped[int] = mapped_column(server_default=text("0"))
    done: Mapped[bool] = mapped_column(server_default=false())
    updated_at: Mapped[datetime]


class HumanRequestModel(Base):
    """A question of a node to a person: a form, a choice, a confirmation or free text, with its answer."""

    __tablename__ = "human_requests"
    __table_args__ = described("questions of runs to people, with their answers")

    id: Mapped[str] = mapped_column(primary_key=True)
    run_id: Mapped[str] = mapped_column(ForeignKey("workflow_runs.id"))
    node_id: Mapped[str]
    iteration: Mapped[int] = mapped_column(server_default=text("0"))
    kind: Mapped[str]
    status: Mapped[str] = mapped_column(server_default="pending")
    blocks_run: Mapped[bool] = mapped_column(server_default=false())
    on_expiry: Mapped[str] = mapped_column(server_default="resume")
    requested_at: Mapped[datetime]
    expires_at: Mapped[datetime | None]
    answered_at: Mapped[datetime | None]
    answered_by: Mapped[str | None]
    closed_reason: Mapped[str | None]
    reopened: Mapped[int] = mapped_column(server_default=text("0"))
    prompt: Mapped[str]
    options: Mapped[Any] = json_column(nullable=True)
    schema: Mapped[Any] = json_column(nullable=True)
    response: Mapped[Any] = json_column(nullable=True)
