"""Tables of the workflows domain.

A table of the original program begins with the columns of revision 0001, in their order. The columns after the comment
came with revision 0002, narrow before wide: on SQLite a column behind a large one is slow to read, even if the large
one is not selected.
"""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from typing import Any

from sqlalchemy import ForeignKey, false, text, true
from sqlalchemy.orm import Mapped, mapped_column

from lastlight_state.db.schema.base import Base
from lastlight_state.db.schema.declarations import KIB, Setting, describe_table, json_column, text_column, word_column
from lastlight_state.workflows.words import APPROVAL_STATUSES, HUMAN_STATUSES, NODE_STATES, RUN_STATUSES, stored_cost


class WorkflowRunModel(Base):
    """One run of a workflow: the state from which to resume it, its holder and its end."""

    __tablename__ = "workflow_runs"
    __table_args__ = describe_table(
        "workflow runs, one row per dispatch, with what resumes them",
        pruned_as=("runs",),
        erased="with_run",
        newest=("started_at", "updated_at"),
        storage="fillfactor = 80",
    )

    id: Mapped[str] = text_column(256, primary_key=True, personal=False)
    workflow_name: Mapped[str] = text_column(256, personal=False)
    trigger_id: Mapped[str] = text_column(512, personal=False)
    repo: Mapped[str | None] = text_column(200, personal=False)
    issue_number: Mapped[int | None]
    current_phase: Mapped[str] = text_column(128, personal=False)
    phase_history: Mapped[Any] = json_column(
        Setting("phase_history"), personal=True, nullable=False, server_default=text("'[]'")
    )
    status: Mapped[str] = word_column(RUN_STATUSES, server_default="running")
    context: Mapped[Any] = json_column(Setting("context"), personal=True, nullable=True)
    scratch: Mapped[Any] = json_column(Setting("scratch"), personal=True, nullable=True)
    node_statuses: Mapped[Any] = json_column(256 * KIB, personal=False, shape=dict, nullable=True)
    restart_count: Mapped[int] = mapped_column(server_default=text("0"))
    started_at: Mapped[datetime]
    updated_at: Mapped[datetime]
    finished_at: Mapped[datetime | None]
    # since 0002
    owner: Mapped[str | None] = text_column(200, personal=False)
    trigger_type: Mapped[str | None] = text_column(None, personal=False)
    triggered_by: Mapped[str | None] = text_column(128, personal=True)
    trigger_actor_type: Mapped[str | None] = text_column(None, personal=False)
    run_key: Mapped[str | None] = text_column(256, personal=False)
    create_digest: Mapped[str | None] = text_column(None, personal=False)
    parent_run_id: Mapped[str | None] = text_column(256, personal=False)
    max_restarts: Mapped[int] = mapped_column(server_default=text("3"))
    transition_seq: Mapped[int] = mapped_column(server_default=text("0"))
    status_reason: Mapped[str | None] = text_column(64, personal=False)
    phase_count: Mapped[int] = mapped_column(server_default=text("0"))
    queued_at: Mapped[datetime | None]
    admitted_at: Mapped[datetime | None]
    wake_at: Mapped[datetime | None]
    pause_reason: Mapped[str | None] = text_column(None, personal=False)
    waiting_for: Mapped[str | None] = text_column(256, personal=False)
    correlation_id: Mapped[str | None] = text_column(256, personal=False)
    cancel_requested_at: Mapped[datetime | None]
    cancel_requested_by: Mapped[str | None] = text_column(128, personal=True)
    cancel_reason: Mapped[str | None] = text_column(2 * KIB, personal=True)
    deadline_at: Mapped[datetime | None]
    claim_owner: Mapped[str | None] = text_column(256, personal=False)
    claim_epoch: Mapped[int] = mapped_column(server_default=text("0"))
    claimed_at: Mapped[datetime | None]
    heartbeat_at: Mapped[datetime | None]
    lease_expires_at: Mapped[datetime | None]
    previous_owner: Mapped[str | None] = text_column(None, personal=False)
    previous_heartbeat_at: Mapped[datetime | None]
    previous_lease_expires_at: Mapped[datetime | None]
    previous_status: Mapped[str | None] = text_column(None, personal=False)
    previous_restart_count: Mapped[int | None]
    workflow_path: Mapped[str | None] = text_column(2000, personal=False)
    workflow_hash: Mapped[str | None] = text_column(2000, personal=False)
    vcs_type: Mapped[str | None] = text_column(2000, personal=False)
    vcs_root: Mapped[str | None] = text_column(2000, personal=False)
    vcs_revision: Mapped[str | None] = text_column(2000, personal=False)
    app_version: Mapped[str | None] = text_column(2000, personal=False)
    trace_id: Mapped[str | None] = text_column(2000, personal=False)
    span_id: Mapped[str | None] = text_column(2000, personal=False)
    error: Mapped[str | None] = text_column(16 * KIB, personal=True)
    error_detail: Mapped[Any] = json_column(64 * KIB, personal=True, nullable=True)


class RunLeaseModel(Base):
    """The lease of one running run, and ``due_at``, the next time at which the run must be checked.

    Triggers on `workflow_runs` insert, replace and delete the row, whichever program changes a run
    (`workflows.guards`). A heartbeat writes this row only. ``epoch`` is the epoch of the claim that holds the run. It
    is NULL if nobody holds the run; then the run's own columns count. No renewed lease ends before ``due_at``, so a
    search for runs to take reads only rows that are due. ``due_at`` seldom moves: a heartbeat that leaves it unchanged
    updates no indexed column.
    """

    __tablename__ = "run_leases"
    # Free space for new row versions lets heartbeats be heap-only updates. A fleet's heartbeats leave more dead rows in
    # a minute than the table has rows: autovacuum removes them after a fixed number, before the table has grown.
    __table_args__ = describe_table(
        "running runs: who holds them until when, kept by triggers",
        kept="one row for each running run; a trigger removes it when the run stops running",
        storage="fillfactor = 40, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000",
    )

    run_id: Mapped[str] = text_column(256, primary_key=True, personal=False)
    workflow_name: Mapped[str] = text_column(256, personal=False)
    epoch: Mapped[int | None]
    heartbeat_at: Mapped[datetime | None]
    lease_expires_at: Mapped[datetime | None]
    due_at: Mapped[datetime]


class ExecutionModel(Base):
    """One phase execution, chat turn or node attempt. Its session id names its agent log."""

    __tablename__ = "executions"
    __table_args__ = describe_table(
        "phase executions, chat turns and node attempts, with usage",
        pruned_as=("runs", "executions"),
        erased="emptied",
        newest=("started_at",),
    )

    id: Mapped[str] = text_column(256, primary_key=True, personal=False)
    trigger_type: Mapped[str] = text_column(None, personal=False)
    trigger_id: Mapped[str] = text_column(512, personal=False)
    skill: Mapped[str] = text_column(256, personal=False)
    repo: Mapped[str | None] = text_column(200, personal=False)
    issue_number: Mapped[int | None]
    started_at: Mapped[datetime]
    finished_at: Mapped[datetime | None]
    success: Mapped[bool | None]
    error: Mapped[str | None] = text_column(16 * KIB, personal=True)
    turns: Mapped[int | None]
    duration_ms: Mapped[int | None]
    session_id: Mapped[str | None] = text_column(200, personal=False)
    cost_usd: Mapped[float | None]
    input_tokens: Mapped[int | None]
    cache_creation_input_tokens: Mapped[int | None]
    cache_read_input_tokens: Mapped[int | None]
    output_tokens: Mapped[int | None]
    api_duration_ms: Mapped[int | None]
    stop_reason: Mapped[str | None] = text_column(64, personal=False)
    workflow_run_id: Mapped[str | None] = text_column(256, personal=False)
    output_text: Mapped[str | None] = text_column(Setting("output_text"), personal=True)
    # since 0002
    owner: Mapped[str | None] = text_column(200, personal=False)
    triggered_by: Mapped[str | None] = text_column(128, personal=True)
    trigger_actor_type: Mapped[str | None] = text_column(None, personal=False)
    node_id: Mapped[str | None] = text_column(256, personal=False)
    iteration: Mapped[int] = mapped_column(server_default=text("0"))
    attempt: Mapped[int | None]
    outcome: Mapped[str | None] = text_column(None, personal=False)
    heartbeat_at: Mapped[datetime | None]
    claim_epoch: Mapped[int | None]
    cached: Mapped[bool] = mapped_column(server_default=false())
    model: Mapped[str | None] = text_column(128, personal=False)
    price_table: Mapped[str | None] = text_column(128, personal=False)
    cost_micros: Mapped[int | None]
    cost_picos: Mapped[int | None]
    input_includes_cache_reads: Mapped[bool] = mapped_column(server_default=false())
    vcs_pointer: Mapped[str | None] = text_column(2000, personal=False)
    work_dir: Mapped[str | None] = text_column(2000, personal=False)
    checkpoint: Mapped[Any] = json_column(256 * KIB, personal=True, nullable=True)
    error_detail: Mapped[Any] = json_column(64 * KIB, personal=True, nullable=True)
    details: Mapped[Any] = json_column(64 * KIB, personal=True, nullable=True)

    @property
    def cost(self) -> Decimal | None:
        """Return the exact cost in dollars, as an `Execution` has it."""
        return stored_cost(self.cost_micros, self.cost_picos, self.cost_usd)


class WorkflowApprovalModel(Base):
    """A gate: one question to a person about a run, with its one answer."""

    __tablename__ = "workflow_approvals"
    __table_args__ = describe_table("gates of runs and their answers", pruned_as=("runs",), erased="with_run")

    id: Mapped[str] = text_column(256, primary_key=True, personal=False)
    workflow_run_id: Mapped[str] = text_column(256, personal=False)
    gate: Mapped[str] = text_column(128, personal=False)
    summary: Mapped[str] = text_column(16 * KIB, personal=True)
    status: Mapped[str] = word_column(APPROVAL_STATUSES, server_default="pending")
    kind: Mapped[str] = text_column(None, server_default="approve", personal=False)
    requested_by: Mapped[str | None] = text_column(128, personal=True)
    responded_by: Mapped[str | None] = text_column(128, personal=True)
    response: Mapped[str | None] = text_column(64 * KIB, personal=True)
    responded_at: Mapped[datetime | None]
    created_at: Mapped[datetime]
    # since 0002
    artifact: Mapped[str | None] = text_column(256, personal=False)
    node_id: Mapped[str | None] = text_column(256, personal=False)
    iteration: Mapped[int] = mapped_column(server_default=text("0"))
    request_key: Mapped[str | None] = text_column(256, personal=False)
    on_reject: Mapped[str] = text_column(None, server_default="fail", personal=False)
    blocks_run: Mapped[bool] = mapped_column(server_default=true())
    expires_at: Mapped[datetime | None]
    action_digest: Mapped[str | None] = text_column(256, personal=False)
    answered_via: Mapped[str | None] = text_column(None, personal=False)
    consumed_at: Mapped[datetime | None]
    consumed_by: Mapped[str | None] = text_column(256, personal=True)
    closed_reason: Mapped[str | None] = text_column(None, personal=True)
    action: Mapped[Any] = json_column(16 * KIB, personal=True, nullable=True)


class WorkflowOverrideModel(Base):
    """The kill switch of one workflow. A workflow without a row is enabled."""

    __tablename__ = "workflow_overrides"
    __table_args__ = describe_table(
        "kill switches of workflows; no row means enabled",
        kept="configuration; `clear` removes one",
        stays="says who operates the system",
    )

    name: Mapped[str] = text_column(256, primary_key=True, personal=False)
    enabled: Mapped[bool] = mapped_column(server_default=true())
    updated_at: Mapped[datetime]
    updated_by: Mapped[str | None] = text_column(128, personal=True)
    # since 0002
    reason: Mapped[str | None] = text_column(2 * KIB, personal=True)


class RunTransitionModel(Base):
    """One change of a run's status, numbered from 1 without gaps."""

    __tablename__ = "run_transitions"
    __table_args__ = describe_table(
        "every change of a run's status, numbered without gaps", pruned_as=("runs",), erased="with_run"
    )

    run_id: Mapped[str] = text_column(256, ForeignKey("workflow_runs.id"), primary_key=True, personal=False)
    seq: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    from_status: Mapped[str | None] = text_column(None, personal=False)
    to_status: Mapped[str] = text_column(None, personal=False)
    reason: Mapped[str] = text_column(None, personal=False)
    actor: Mapped[str | None] = text_column(128, personal=True)
    source: Mapped[str] = text_column(None, personal=False)
    claim_epoch: Mapped[int | None]
    at: Mapped[datetime]
    detail: Mapped[str | None] = text_column(2 * KIB, personal=True)


class RunNodeModel(Base):
    """The state of one node of a run's graph, in one iteration of its loop."""

    __tablename__ = "run_nodes"
    __table_args__ = describe_table("state of each node of a run, by iteration", pruned_as=("runs",), erased="with_run")

    run_id: Mapped[str] = text_column(256, ForeignKey("workflow_runs.id"), primary_key=True, personal=False)
    node_id: Mapped[str] = text_column(256, primary_key=True, personal=False)
    iteration: Mapped[int] = mapped_column(primary_key=True, autoincrement=False, server_default=text("0"))
    state: Mapped[str] = word_column(NODE_STATES)
    last_attempt: Mapped[int] = mapped_column(server_default=text("0"))
    output_table: Mapped[str | None] = text_column(256, personal=False)
    label: Mapped[str | None] = text_column(1024, personal=True)
    wake_at: Mapped[datetime | None]
    waiting_for: Mapped[str | None] = text_column(256, personal=False)
    correlation_id: Mapped[str | None] = text_column(256, personal=False)
    updated_at: Mapped[datetime]


class RunLoopModel(Base):
    """One loop of a run: its current iteration, and whether it is done."""

    __tablename__ = "run_loops"
    __table_args__ = describe_table("where each loop of a run stands", pruned_as=("runs",))

    run_id: Mapped[str] = text_column(256, ForeignKey("workflow_runs.id"), primary_key=True, personal=False)
    loop_id: Mapped[str] = text_column(256, primary_key=True, personal=False)
    iteration: Mapped[int] = mapped_column(server_default=text("0"))
    done: Mapped[bool] = mapped_column(server_default=false())
    updated_at: Mapped[datetime]


class HumanRequestModel(Base):
    """A question of a node to a person: a form, a choice, a confirmation or free text, with its answer."""

    __tablename__ = "human_requests"
    __table_args__ = describe_table(
        "questions of runs to people, with their answers", pruned_as=("runs",), erased="with_run"
    )

    id: Mapped[str] = text_column(256, primary_key=True, personal=False)
    run_id: Mapped[str] = text_column(256, ForeignKey("workflow_runs.id"), personal=False)
    node_id: Mapped[str] = text_column(256, personal=False)
    iteration: Mapped[int] = mapped_column(server_default=text("0"))
    kind: Mapped[str] = text_column(None, personal=False)
    status: Mapped[str] = word_column(HUMAN_STATUSES, server_default="pending")
    blocks_run: Mapped[bool] = mapped_column(server_default=false())
    on_expiry: Mapped[str] = text_column(None, server_default="resume", personal=False)
    requested_at: Mapped[datetime]
    expires_at: Mapped[datetime | None]
    answered_at: Mapped[datetime | None]
    answered_by: Mapped[str | None] = text_column(128, personal=True)
    closed_reason: Mapped[str | None] = text_column(None, personal=True)
    reopened: Mapped[int] = mapped_column(server_default=text("0"))
    prompt: Mapped[str] = text_column(16 * KIB, personal=True)
    options: Mapped[Any] = json_column(16 * KIB, personal=True, nullable=True)
    schema: Mapped[Any] = json_column(64 * KIB, personal=True, nullable=True)
    response: Mapped[Any] = json_column(64 * KIB, personal=True, nullable=True)


class WorkflowWorkerModel(Base):
    """One worker process and the workflows that it serves, as it reported when it last looked for work.

    A worker holds the runs whose ``claim_owner`` is its name. After ``expires_at`` it counts as ended.
    """

    __tablename__ = "workflow_workers"
    __table_args__ = describe_table(
        "workers that were seen, with the workflows that each serves", pruned_as=("workers",), newest=("seen_at",)
    )

    name: Mapped[str] = text_column(256, primary_key=True, personal=False)
    host: Mapped[str] = text_column(256, personal=False)
    pid: Mapped[int]
    slots: Mapped[int]
    started_at: Mapped[datetime]
    seen_at: Mapped[datetime]
    expires_at: Mapped[datetime]
    workflow_names: Mapped[Any] = json_column(64 * KIB, personal=False, shape=list, nullable=False)
    app_versions: Mapped[Any] = json_column(64 * KIB, personal=False, shape=list, nullable=True)
