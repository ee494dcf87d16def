"""The seven tables of the original program.

Columns, defaults and indexes are the original's, so that a database made by it is at this revision.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

TEXT = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
INTEGER = sa.Integer().with_variant(sa.BigInteger(), "postgresql")
REAL: sa.types.TypeEngine[float] = sa.REAL().with_variant(sa.Double(), "postgresql")
FLAG = sa.Integer().with_variant(sa.Boolean(), "postgresql")
TIME = sa.Text().with_variant(sa.DateTime(timezone=True), "postgresql")
JSON = sa.Text().with_variant(postgresql.JSONB(), "postgresql")


def upgrade() -> None:
    _executions()
    _workflow_runs()
    _workflow_approvals()
    _overrides()
    _messaging_sessions()
    _messaging_messages()


def _executions() -> None:
    op.create_table(
        "executions",
        sa.Column("id", TEXT, nullable=False),
        sa.Column("trigger_type", TEXT, nullable=False),
        sa.Column("trigger_id", TEXT, nullable=False),
        sa.Column("skill", TEXT, nullable=False),
        sa.Column("repo", TEXT),
        sa.Column("issue_number", INTEGER),
        sa.Column("started_at", TIME, nullable=False),
        sa.Column("finished_at", TIME),
        sa.Column("success", FLAG),
        sa.Column("error", TEXT),
        sa.Column("turns", INTEGER),
        sa.Column("duration_ms", INTEGER),
        sa.Column("session_id", TEXT),
        sa.Column("cost_usd", REAL),
        sa.Column("input_tokens", INTEGER),
        sa.Column("cache_creation_input_tokens", INTEGER),
        sa.Column("cache_read_input_tokens", INTEGER),
        sa.Column("output_tokens", INTEGER),
        sa.Column("api_duration_ms", INTEGER),
        sa.Column("stop_reason", TEXT),
        sa.Column("workflow_run_id", TEXT),
        sa.Column("output_text", TEXT),
        sa.PrimaryKeyConstraint("id", name="pk_executions"),
        comment="lastlight_state: phase executions, chat turns and node attempts, with usage",
    )
    op.create_index("idx_executions_trigger", "executions", ["trigger_type", "trigger_id"])
    op.create_index("idx_executions_skill", "executions", ["skill", "started_at"])
    op.create_index("idx_executions_workflow_run", "executions", ["workflow_run_id", "skill"])


def _workflow_runs() -> None:
    op.create_table(
        "workflow_runs",
        sa.Column("id", TEXT, nullable=False),
        sa.Column("workflow_name", TEXT, nullable=False),
        sa.Column("trigger_id", TEXT, nullable=False),
        sa.Column("repo", TEXT),
        sa.Column("issue_number", INTEGER),
        sa.Column("current_phase", TEXT, nullable=False),
        sa.Column("phase_history", JSON, server_default=sa.text("'[]'"), nullable=False),
        sa.Column("status", TEXT, server_default=sa.text("'running'"), nullable=False),
        sa.Column("context", JSON),
        sa.Column("scratch", JSON),
        sa.Column("node_statuses", JSON),
        sa.Column("restart_count", INTEGER, server_default=sa.text("0"), nullable=False),
        sa.Column("started_at", TIME, nullable=False),
        sa.Column("updated_at", TIME, nullable=False),
        sa.Column("finished_at", TIME),
        sa.PrimaryKeyConstraint("id", name="pk_workflow_runs"),
        comment="lastlight_state: workflow runs, one row per dispatch, with what resumes them",
    )
    op.create_index("idx_workflow_runs_trigger", "workflow_runs", ["trigger_id", "status"])
    op.create_index("idx_workflow_runs_status", "workflow_runs", ["status"])
    op.create_index("idx_workflow_runs_started_at", "workflow_runs", [sa.text("started_at DESC")])
    op.create_index("idx_workflow_runs_name_started", "workflow_runs", ["workflow_name", sa.text("started_at DESC")])


def _workflow_approvals() -> None:
    op.create_table(
        "workflow_approvals",
        sa.Column("id", TEXT, nullable=False),
        sa.Column("workflow_run_id", TEXT, nullable=False),
        sa.Column("gate", TEXT, nullable=False),
        sa.Column("summary", TEXT, nullable=False),
        sa.Column("status", TEXT, server_default=sa.text("'pending'"), nullable=False),
        sa.Column("kind", TEXT, server_default=sa.text("'approve'"), nullable=False),
        sa.Column("requested_by", TEXT),
        sa.Column("responded_by", TEXT),
        sa.Column("response", TEXT),
        sa.Column("responded_at", TIME),
        sa.Column("created_at", TIME, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_workflow_approvals"),
        comment="lastlight_state: gates of runs and their answers",
    )


def _overrides() -> None:
    op.create_table(
        "cron_overrides",
        sa.Column("name", TEXT, nullable=False),
        sa.Column("enabled", FLAG, server_default=sa.true(), nullable=False),
        sa.Column("schedule", TEXT),
        sa.Column("updated_at", TIME, nullable=False),
        sa.Column("updated_by", TEXT),
        sa.PrimaryKeyConstraint("name", name="pk_cron_overrides"),
        comment="lastlight_state: what operators changed about crons; no row means the default",
    )
    op.create_table(
        "workflow_overrides",
        sa.Column("name", TEXT, nullable=False),
        sa.Column("enabled", FLAG, server_default=sa.true(), nullable=False),
        sa.Column("updated_at", TIME, nullable=False),
        sa.Column("updated_by", TEXT),
        sa.PrimaryKeyConstraint("name", name="pk_workflow_overrides"),
        comment="lastlight_state: kill switches of workflows; no row means enabled",
    )


def _messaging_sessions() -> None:
    op.create_table(
        "messaging_sessions",
        sa.Column("id", TEXT, nullable=False),
        sa.Column("platform", TEXT, nullable=False),
        sa.Column("channel_id", TEXT, nullable=False),
        sa.Column("thread_id", TEXT),
        sa.Column("user_id", TEXT, nullable=False),
        sa.Column("agent_session_id", TEXT),
        sa.Column("created_at", TIME, nullable=False),
        sa.Column("last_activity_at", TIME, nullable=False),
        sa.Column("message_count", INTEGER, server_default=sa.text("0")),
        sa.Column("active", FLAG, server_default=sa.true()),
        sa.PrimaryKeyConstraint("id", name="pk_messaging_sessions"),
        comment="lastlight_state: chat sessions, at most one active per place and user",
    )
    key = ["platform", "channel_id", "thread_id", "user_id"]
    op.create_index("idx_msg_sessions_lookup", "messaging_sessions", key)
    op.create_index(
        "idx_msg_sessions_unique_active",
        "messaging_sessions",
        key,
        unique=True,
        sqlite_where=sa.text("active = 1"),
        postgresql_where=sa.text("active"),
    )


def _messaging_messages() -> None:
    op.create_table(
        "messaging_messages",
        sa.Column("id", INTEGER, sa.Identity(always=False), nullable=False),
        sa.Column("session_id", TEXT, nullable=False),
        sa.Column("role", TEXT, nullable=False),
        sa.Column("content", TEXT, nullable=False),
        sa.Column("timestamp", TIME, nullable=False),
        sa.Column("platform_message_id", TEXT),
        sa.ForeignKeyConstraint(["session_id"], ["messaging_sessions.id"], name="fk_messaging_messages_session_id"),
        sa.PrimaryKeyConstraint("id", name="pk_messaging_messages"),
        comment="lastlight_state: what was said in chat sessions, in the order of ids",
        sqlite_autoincrement=True,
    )
    op.create_index("idx_msg_messages_session", "messaging_messages", ["session_id", "timestamp"])
