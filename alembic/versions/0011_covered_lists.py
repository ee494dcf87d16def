"""Indexes that hold what lists show, for SQLite, where the rows hold large values.

Lists of claimable and unhealthy runs, inboxes, requests of a run, messages of a session. On both databases an index of
the sandboxes of a run in the order of their list.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None

_IN_FLIGHT = "finished_at IS NULL AND success IS NULL"
_PENDING = "status = 'pending'"


def upgrade() -> None:
    _index("ix_sandboxes_run", "sandboxes", "run_id, updated_at DESC, sandbox_id DESC")
    if op.get_context().dialect.name == "sqlite":
        _runs()
        _questions()
        _messages()


def _runs() -> None:
    _index(
        "ix_workflow_runs_live",
        "workflow_runs",
        "id, status, workflow_name, trigger_id, started_at, updated_at, transition_seq, restart_count, max_restarts, "
        "claim_owner, claim_epoch, previous_owner, heartbeat_at, lease_expires_at, wake_at, pause_reason, waiting_for, "
        "correlation_id, cancel_requested_at, deadline_at, queued_at, workflow_path, workflow_hash, vcs_type, "
        "vcs_root, vcs_revision, app_version, trace_id, span_id",
        where="status NOT IN ('succeeded', 'failed', 'cancelled')",
    )
    _index("ix_executions_signs", "executions", "workflow_run_id, heartbeat_at, started_at", where=_IN_FLIGHT)


def _questions() -> None:
    _index(
        "ix_approvals_asked",
        "workflow_approvals",
        "created_at DESC, id DESC, workflow_run_id, gate, kind, requested_by, artifact, node_id, iteration, on_reject, "
        "blocks_run, expires_at, action_digest",
        _preview("summary"),
        _short("action"),
        where=_PENDING,
    )
    _index(
        "ix_human_requests_summary",
        "human_requests",
        "run_id, requested_at, id, status, node_id, iteration, kind, blocks_run, on_expiry, expires_at, "
        "closed_reason, reopened, answered_at, answered_by",
        _preview("prompt"),
    )
    _index(
        "ix_human_requests_asked",
        "human_requests",
        "requested_at DESC, id DESC, run_id, node_id, iteration, kind, blocks_run, on_expiry, expires_at, "
        "closed_reason, reopened",
        _preview("prompt"),
        _short("options"),
        where=_PENDING,
    )


def _messages() -> None:
    _index(
        "ix_messaging_messages_summary",
        "messaging_messages",
        "session_id, id, role, timestamp, platform_message_id",
        "substr(content, 1, 280)",
        "length(content)",
    )


def _preview(column: str) -> str:
    return f"substr({column}, 1, 500)"


def _short(column: str) -> str:
    return f"CASE WHEN (length(CAST({column} AS TEXT)) <= 2000) THEN {column} END"


def _index(name: str, table: str, columns: str, *expressions: str, where: str | None = None) -> None:
    """Columns are given as one text."""
    keys = [sa.text(column) if " " in column else column for column in columns.split(", ")]
    predicate = sa.text(where) if where else None
    op.create_index(name, table, [*keys, *map(sa.text, expressions)], sqlite_where=predicate)
