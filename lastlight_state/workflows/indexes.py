"""Indexes of the workflows domain, and the columns that its covering indexes hold.

SQLite stores a row as one record. To read a column stored behind a large one, it walks the overflow pages, even if the
large column is not selected. So lists on SQLite have indexes that hold every column they show. Postgres stores large
values apart from the row, reads lists as fast through narrow indexes, and updates a row in place only if no indexed
column changes.
"""

from __future__ import annotations

from sqlalchemy import Index, func

from lastlight_state.db.schema.indexes import only, where
from lastlight_state.workflows.models import (
    ExecutionModel,
    HumanRequestModel,
    RunLeaseModel,
    RunNodeModel,
    WorkflowApprovalModel,
    WorkflowRunModel,
    WorkflowWorkerModel,
)
from lastlight_state.workflows.repos import preview, short

#: The columns of a `RunSummary`, none of them large.
RUN_SUMMARY = (
    "id",
    "workflow_name",
    "status",
    "status_reason",
    "trigger_id",
    "trigger_type",
    "owner",
    "repo",
    "issue_number",
    "current_phase",
    "phase_count",
    "started_at",
    "updated_at",
    "finished_at",
    "restart_count",
    "parent_run_id",
    "triggered_by",
    "cancel_requested_at",
)

#: The columns of an execution that rollups and lists read, besides its identity and start. An index holds them all.
USAGE = (
    "skill",
    "owner",
    "repo",
    "model",
    "trigger_type",
    "success",
    "outcome",
    "stop_reason",
    "finished_at",
    "input_tokens",
    "output_tokens",
    "cache_read_input_tokens",
    "cache_creation_input_tokens",
    "cost_usd",
    "cost_micros",
    "cost_picos",
    "input_includes_cache_reads",
    "node_id",
    "iteration",
    "attempt",
    "cached",
    "triggered_by",
)

#: The columns of an approval that lists show, beside its time, id and the beginnings of its texts.
APPROVAL_SUMMARY = (
    "workflow_run_id",
    "gate",
    "status",
    "kind",
    "requested_by",
    "responded_by",
    "responded_at",
    "artifact",
    "node_id",
    "iteration",
    "request_key",
    "on_reject",
    "blocks_run",
    "expires_at",
    "action_digest",
    "answered_via",
    "consumed_at",
    "consumed_by",
    "closed_reason",
)

#: The columns, besides run, time and id, of the index of a run's approvals. They tell which gates block the run.
APPROVAL_OF_RUN = ("status", "blocks_run", "expires_at", "node_id", "iteration")

#: The end of a run, or of an execution. Rows of the original program may lack it; then their start counts.
RUN_ENDED_AT = func.coalesce(WorkflowRunModel.__table__.c.finished_at, WorkflowRunModel.__table__.c.started_at)
EXECUTION_ENDED_AT = func.coalesce(ExecutionModel.__table__.c.finished_at, ExecutionModel.__table__.c.started_at)
#: Index predicate: runs that have ended.
RUN_ENDED = "status IN ('succeeded', 'failed', 'cancelled')"
#: Index predicate: ended executions that used tokens but have no session id, so that nothing leads to their logs.
LOST_LOG = (
    "session_id IS NULL AND (turns > 0 OR input_tokens > 0 OR output_tokens > 0 OR cache_creation_input_tokens > 0 "
    "OR cache_read_input_tokens > 0) AND (finished_at IS NOT NULL OR success IS NOT NULL)"
)
#: Index predicate: ended executions that belong to no run.
ENDED_ALONE = "workflow_run_id IS NULL AND (finished_at IS NOT NULL OR success IS NOT NULL)"

#: The columns of a live run that conditions on live runs read, and those that lists of claimable runs show. Without
#: `updated_at`, which few conditions read: each phase would write the wide index entry again.
LIVE_RUN = (
    "id",
    "status",
    "workflow_name",
    "trigger_id",
    "started_at",
    "transition_seq",
    "restart_count",
    "max_restarts",
    "claim_owner",
    "claim_epoch",
    "previous_owner",
    "heartbeat_at",
    "lease_expires_at",
    "wake_at",
    "pause_reason",
    "waiting_for",
    "correlation_id",
    "cancel_requested_at",
    "deadline_at",
    "queued_at",
    "workflow_path",
    "workflow_hash",
    "vcs_type",
    "vcs_root",
    "vcs_revision",
    "app_version",
    "trace_id",
    "span_id",
)

#: The columns of a pending approval that the inbox shows, beside its time, id and the beginnings of its texts.
ASKED_APPROVAL = (
    "workflow_run_id",
    "gate",
    "kind",
    "requested_by",
    "artifact",
    "node_id",
    "iteration",
    "on_reject",
    "blocks_run",
    "expires_at",
    "action_digest",
)

#: The columns of a pending human request that the inbox shows, beside its time, id, run, prompt and options.
ASKED_REQUEST = (
    "node_id",
    "iteration",
    "kind",
    "blocks_run",
    "on_expiry",
    "expires_at",
    "closed_reason",
    "reopened",
)

#: The columns of a human request that the list of a run shows, beside its time, id, run and prompt.
REQUEST_SUMMARY = ("status", *ASKED_REQUEST, "answered_at", "answered_by")

#: Index predicate: runs that have not ended, also those in a status that only a newer version knows.
NOT_ENDED = "status NOT IN ('succeeded', 'failed', 'cancelled')"

_run = WorkflowRunModel.__table__.c
_lease = RunLeaseModel.__table__.c
_execution = ExecutionModel.__table__.c
_approval = WorkflowApprovalModel.__table__.c
_node = RunNodeModel.__table__.c
_request = HumanRequestModel.__table__.c
_execution_order = (_execution.started_at, _execution.id)
_approval_order = (_approval.created_at, _approval.id)
_summary = [_run[name] for name in RUN_SUMMARY if name not in ("id", "started_at", "status")]
_usage = [_execution[name] for name in USAGE]

Index("idx_workflow_runs_trigger", _run.trigger_id, _run.status)
Index("idx_workflow_runs_status", _run.status)
Index("idx_workflow_runs_started_at", _run.started_at.desc())
Index("idx_workflow_runs_name_started", _run.workflow_name, _run.started_at.desc())
Index("idx_executions_trigger", _execution.trigger_type, _execution.trigger_id)
Index("idx_executions_skill", _execution.skill, _execution.started_at)
Index("idx_executions_workflow_run", _execution.workflow_run_id, _execution.skill)

# since 0002
Index("uq_workflow_runs_run_key", _run.workflow_name, _run.run_key, unique=True, **where("run_key IS NOT NULL"))
Index("ix_workflow_runs_parent", _run.parent_run_id, _run.started_at, **where("parent_run_id IS NOT NULL"))
# Workflow and version follow the columns of the order, so that runs of other services are skipped within the index.
Index(
    "ix_workflow_runs_queue",
    _run.queued_at,
    _run.id,
    _run.workflow_name,
    _run.started_at,
    _run.app_version,
    **where("status = 'queued'"),
)
# The workflow follows the time, so that due runs of other services are skipped within the index.
Index("ix_run_leases_due", _lease.due_at, _lease.workflow_name)
Index("ix_workflow_workers_expiry", WorkflowWorkerModel.__table__.c.expires_at)
Index("ix_workflow_runs_running", _run.workflow_name, **where("status = 'running'"))
Index(
    "ix_workflow_runs_wake",
    _run.wake_at,
    _run.id,
    _run.workflow_name,
    **where("status = 'paused' AND wake_at IS NOT NULL"),
)
Index(
    "ix_workflow_runs_waiting",
    _run.waiting_for,
    _run.correlation_id,
    _run.id,
    _run.started_at,
    **where("status = 'paused' AND waiting_for IS NOT NULL"),
)
Index("ix_workflow_runs_repo", _run.owner, _run.repo, _run.started_at)
# Only live runs: most runs have ended, so a page by the status of ended runs reads runs from the newest on.
Index("ix_workflow_runs_live_started", _run.status, _run.started_at, **where(NOT_ENDED))
only("sqlite", Index("ix_workflow_runs_summary", _run.started_at, _run.id, _run.status, *_summary))
only("sqlite", Index("ix_workflow_runs_trigger_started", _run.trigger_id, _run.started_at))
only("sqlite", Index("ix_workflow_runs_live", *(_run[name] for name in LIVE_RUN), **where(NOT_ENDED)))

Index(
    "uq_executions_attempt",
    _execution.workflow_run_id,
    _execution.node_id,
    _execution.iteration,
    _execution.attempt,
    unique=True,
    **where("node_id IS NOT NULL"),
)
_IN_FLIGHT = where("finished_at IS NULL AND success IS NULL")
only("postgresql", Index("ix_executions_in_flight", _execution.workflow_run_id, **_IN_FLIGHT))
only(
    "sqlite",
    Index(
        "ix_executions_signs",
        _execution.workflow_run_id,
        _execution.heartbeat_at,
        _execution.started_at,
        **_IN_FLIGHT,
    ),
)
Index("ix_executions_session", _execution.session_id, _execution.started_at, **where("session_id IS NOT NULL"))
Index("ix_executions_chat", _execution.trigger_id, _execution.started_at, **where("skill = 'chat'"))
Index("ix_executions_lost_log", *_execution_order, **where(LOST_LOG))
# In ascending order, so that new rows are appended: inserts at the front would split pages and leave them half full.
only("sqlite", Index("ix_executions_usage", *_execution_order, *_usage))
only("postgresql", Index("ix_executions_started", *_execution_order))

only("postgresql", Index("idx_approvals_workflow", _approval.workflow_run_id))
only("postgresql", Index("idx_approvals_status", _approval.status))
only("postgresql", Index("ix_approvals_newest", *_approval_order))
only("postgresql", Index("ix_approvals_inbox", *_approval_order, **where("status = 'pending'")))
only(
    "sqlite",
    Index(
        "ix_approvals_summary",
        *_approval_order,
        *(_approval[name] for name in APPROVAL_SUMMARY),
        *(preview(_approval[name]) for name in ("summary", "response")),
    ),
)
only(
    "sqlite",
    Index(
        "ix_approvals_run",
        _approval.workflow_run_id,
        *_approval_order,
        *(_approval[name] for name in APPROVAL_OF_RUN),
    ),
)
only(
    "sqlite",
    Index(
        "ix_approvals_asked",
        *_approval_order,
        *(_approval[name] for name in ASKED_APPROVAL),
        preview(_approval.summary),
        short(_approval.action),
        **where("status = 'pending'"),
    ),
)
Index("ix_approvals_due", _approval.expires_at, **where("status = 'pending' AND expires_at IS NOT NULL"))
Index(
    "uq_approvals_request_key",
    _approval.workflow_run_id,
    _approval.request_key,
    unique=True,
    **where("status = 'pending' AND request_key IS NOT NULL"),
)
Index("ix_approvals_artifact", _approval.artifact, _approval.created_at, **where("artifact IS NOT NULL"))

Index("ix_run_nodes_wake", _node.state, _node.wake_at, **where("wake_at IS NOT NULL"))
Index("ix_run_nodes_waiting", _node.waiting_for, _node.correlation_id, **where("state = 'waiting_signal'"))
only(
    "postgresql",
    Index("ix_human_requests_inbox", _request.requested_at, _request.id, **where("status = 'pending'")),
)
Index("ix_human_requests_due", _request.expires_at, **where("status = 'pending' AND expires_at IS NOT NULL"))
only("postgresql", Index("ix_human_requests_run", _request.run_id, _request.requested_at))

# Rows that may be pruned, in the order of their end
Index("ix_workflow_runs_ended", RUN_ENDED_AT, _run.id, **where(RUN_ENDED))
Index("ix_executions_alone", EXECUTION_ENDED_AT, _execution.id, **where(ENDED_ALONE))

only(
    "sqlite",
    Index(
        "ix_human_requests_summary",
        _request.run_id,
        _request.requested_at,
        _request.id,
        *(_request[name] for name in REQUEST_SUMMARY),
        preview(_request.prompt),
    ),
)
only(
    "sqlite",
    Index(
        "ix_human_requests_asked",
        _request.requested_at,
        _request.id,
        _request.run_id,
        *(_request[name] for name in ASKED_REQUEST),
        preview(_request.prompt),
        short(_request.options),
        **where("status = 'pending'"),
    ),
)
