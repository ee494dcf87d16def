"""What resuming, claims, nodes and gates need beside the original's columns; transitions; the first guards.

Adds to workflow_runs, executions, workflow_approvals and workflow_overrides, and brings run_transitions.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

TEXT = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
INTEGER = sa.Integer().with_variant(sa.BigInteger(), "postgresql")
FLAG = sa.Integer().with_variant(sa.Boolean(), "postgresql")
TIME = sa.Text().with_variant(sa.DateTime(timezone=True), "postgresql")
JSON = sa.Text().with_variant(postgresql.JSONB(), "postgresql")

_APPEND_ONLY = ("workflow_runs", "executions", "workflow_approvals", "run_transitions")

_REFUSED_UPDATES = (
    (
        "workflow_runs_restart_rises_by_one",
        "workflow_runs",
        "restart_count",
        (
            "NEW.restart_count > OLD.restart_count AND (NEW.restart_count > OLD.restart_count + 1"
            " OR NEW.restart_count > NEW.max_restarts OR NEW.max_restarts <> OLD.max_restarts)"
        ),
        "restart_count may rise by 1, never above max_restarts, and not together with a new max_restarts",
    ),
    (
        "workflow_runs_restart_falls_by_release",
        "workflow_runs",
        "restart_count",
        (
            "NEW.restart_count < OLD.restart_count AND (NEW.restart_count < OLD.restart_count - 1"
            " OR OLD.status <> 'running' OR NEW.status <> 'running')"
        ),
        "restart_count may fall by 1 only, while the run is running and stays so",
    ),
    (
        "workflow_runs_succeeded_stays",
        "workflow_runs",
        "status",
        "OLD.status = 'succeeded' AND NEW.status <> 'succeeded'",
        "a succeeded run never changes its status",
    ),
    (
        "workflow_runs_ended_restarts_only",
        "workflow_runs",
        "status",
        (
            "OLD.status IN ('failed', 'cancelled') AND NEW.status <> OLD.status"
            " AND (NEW.status NOT IN ('running', 'queued') OR NEW.restart_count <> OLD.restart_count + 1)"
        ),
        "a failed or cancelled run leaves that status only for running or queued, with restart_count + 1",
    ),
    (
        "workflow_runs_context_is_immutable",
        "workflow_runs",
        "context",
        "NEW.context IS DISTINCT FROM OLD.context",
        "the context of a run never changes",
    ),
    (
        "workflow_runs_identity_is_immutable",
        "workflow_runs",
        "id, workflow_name, trigger_id, run_key, parent_run_id",
        (
            "NEW.id IS DISTINCT FROM OLD.id OR NEW.workflow_name IS DISTINCT FROM OLD.workflow_name"
            " OR NEW.trigger_id IS DISTINCT FROM OLD.trigger_id OR NEW.run_key IS DISTINCT FROM OLD.run_key"
            " OR NEW.parent_run_id IS DISTINCT FROM OLD.parent_run_id"
        ),
        "the id, workflow, trigger, key and parent of a run never change",
    ),
    (
        "workflow_runs_counters_never_fall",
        "workflow_runs",
        "claim_epoch, transition_seq",
        "NEW.claim_epoch < OLD.claim_epoch OR NEW.transition_seq < OLD.transition_seq",
        "claim_epoch and transition_seq never fall",
    ),
    (
        "workflow_approvals_one_answer",
        "workflow_approvals",
        "status",
        "OLD.status <> 'pending' AND NEW.status <> OLD.status",
        "the status of an approval that is not pending never changes",
    ),
)


def _sqlite() -> Iterator[str]:
    for name, table, columns, when, message in _REFUSED_UPDATES:
        yield (
            f"CREATE TRIGGER {name} BEFORE UPDATE OF {columns} ON {table} FOR EACH ROW "
            f"WHEN {when.replace('IS DISTINCT FROM', 'IS NOT')} BEGIN SELECT RAISE(ABORT, '{message}'); END"
        )
    for table in _APPEND_ONLY:
        yield (
            f"CREATE TRIGGER {table}_no_delete BEFORE DELETE ON {table} FOR EACH ROW "
            "WHEN NOT EXISTS (SELECT 1 FROM maintenance_permits) "
            f"BEGIN SELECT RAISE(ABORT, '{table} is append-only'); END"
        )
    yield (
        "CREATE TRIGGER run_transitions_no_update BEFORE UPDATE ON run_transitions FOR EACH ROW "
        "BEGIN SELECT RAISE(ABORT, 'rows of run_transitions never change'); END"
    )


def _postgres() -> Iterator[str]:
    for name, table, columns, when, message in _REFUSED_UPDATES:
        yield (
            f"CREATE TRIGGER {name} BEFORE UPDATE OF {columns} ON {table} FOR EACH ROW "
            f"WHEN ({when}) EXECUTE FUNCTION lastlight_refuse('{message}')"
        )
    for table in _APPEND_ONLY:
        for event, each in (("delete", "ROW"), ("truncate", "STATEMENT")):
            yield (
                f"CREATE TRIGGER {table}_no_{event} BEFORE {event.upper()} ON {table} FOR EACH {each} "
                f"EXECUTE FUNCTION lastlight_refuse_unless_permitted('{table} is append-only', 'any')"
            )
    yield (
        "CREATE TRIGGER run_transitions_no_update BEFORE UPDATE ON run_transitions FOR EACH ROW "
        "EXECUTE FUNCTION lastlight_refuse('rows of run_transitions never change')"
    )


SQLITE = tuple(_sqlite())
POSTGRES = tuple(_postgres())
#: Room in each page for the next version of its rows, so that renewals stay heap-only updates.
_ROOM = ("ALTER TABLE workflow_runs SET (fillfactor = 40)",)
additive_sql = SQLITE + POSTGRES + _ROOM

_SUMMARY = (
    "workflow_name status_reason trigger_id trigger_type owner repo issue_number current_phase phase_count "
    "updated_at finished_at restart_count parent_run_id triggered_by cancel_requested_at"
).split()
_USAGE = (
    "skill owner repo model trigger_type success outcome stop_reason finished_at input_tokens output_tokens "
    "cache_read_input_tokens cache_creation_input_tokens cost_usd cost_micros node_id iteration attempt cached"
).split()

_APPROVAL = (
    "workflow_run_id gate status kind requested_by responded_by responded_at artifact node_id iteration request_key "
    "on_reject blocks_run expires_at action_digest answered_via consumed_at consumed_by closed_reason"
).split()
_PREVIEWS = ("substr(summary, 1, 500)", "substr(response, 1, 500)")


def upgrade() -> None:
    _columns_of_runs()
    _columns_of_executions()
    _columns_of_approvals()
    op.add_column("workflow_overrides", sa.Column("reason", TEXT))
    _run_transitions()
    _indexes_of_runs()
    _indexes_of_executions()
    _indexes_of_approvals()
    if op.get_context().dialect.name == "postgresql":
        _narrow_lists()
        _run(_ROOM)
        _run(POSTGRES)
    else:
        _covering_lists()
        _run(SQLITE)


def _run(statements: Iterable[str]) -> None:
    for statement in statements:
        op.execute(statement)


def _add(table: str, *columns: tuple[str, Any]) -> None:
    for name, kind in columns:
        op.add_column(table, sa.Column(name, kind))


def _count(name: str, start: int) -> sa.Column[Any]:
    return sa.Column(name, INTEGER, server_default=sa.text(str(start)), nullable=False)


def _columns_of_runs() -> None:
    for name in ("owner", "trigger_type", "triggered_by", "trigger_actor_type", "run_key", "create_digest"):
        _add("workflow_runs", (name, TEXT))
    _add("workflow_runs", ("parent_run_id", TEXT))
    op.add_column("workflow_runs", _count("max_restarts", 3))
    op.add_column("workflow_runs", _count("transition_seq", 0))
    _add("workflow_runs", ("status_reason", TEXT))
    op.add_column("workflow_runs", _count("phase_count", 0))
    _add("workflow_runs", ("queued_at", TIME), ("admitted_at", TIME), ("wake_at", TIME))
    _add("workflow_runs", ("pause_reason", TEXT), ("waiting_for", TEXT), ("correlation_id", TEXT))
    _add("workflow_runs", ("cancel_requested_at", TIME), ("cancel_requested_by", TEXT), ("cancel_reason", TEXT))
    _add("workflow_runs", ("deadline_at", TIME), ("claim_owner", TEXT))
    op.add_column("workflow_runs", _count("claim_epoch", 0))
    _add("workflow_runs", ("claimed_at", TIME), ("heartbeat_at", TIME), ("lease_expires_at", TIME))
    _add("workflow_runs", ("previous_owner", TEXT), ("previous_heartbeat_at", TIME))
    _add("workflow_runs", ("previous_lease_expires_at", TIME), ("previous_status", TEXT))
    _add("workflow_runs", ("previous_restart_count", INTEGER))
    for name in ("workflow_path", "workflow_hash", "vcs_type", "vcs_root", "vcs_revision", "app_version"):
        _add("workflow_runs", (name, TEXT))
    _add("workflow_runs", ("trace_id", TEXT), ("span_id", TEXT), ("error", TEXT), ("error_detail", JSON))


def _columns_of_executions() -> None:
    _add("executions", ("owner", TEXT), ("triggered_by", TEXT), ("trigger_actor_type", TEXT), ("node_id", TEXT))
    op.add_column("executions", _count("iteration", 0))
    _add("executions", ("attempt", INTEGER), ("outcome", TEXT), ("heartbeat_at", TIME), ("claim_epoch", INTEGER))
    op.add_column("executions", sa.Column("cached", FLAG, server_default=sa.false(), nullable=False))
    _add("executions", ("model", TEXT), ("price_table", TEXT), ("cost_micros", INTEGER), ("vcs_pointer", TEXT))
    _add("executions", ("work_dir", TEXT), ("checkpoint", JSON), ("error_detail", JSON), ("details", JSON))


def _columns_of_approvals() -> None:
    _add("workflow_approvals", ("artifact", TEXT), ("node_id", TEXT))
    op.add_column("workflow_approvals", _count("iteration", 0))
    _add("workflow_approvals", ("request_key", TEXT))
    op.add_column("workflow_approvals", sa.Column("on_reject", TEXT, server_default=sa.text("'fail'"), nullable=False))
    op.add_column("workflow_approvals", sa.Column("blocks_run", FLAG, server_default=sa.true(), nullable=False))
    _add("workflow_approvals", ("expires_at", TIME), ("action_digest", TEXT), ("answered_via", TEXT))
    _add("workflow_approvals", ("consumed_at", TIME), ("consumed_by", TEXT), ("closed_reason", TEXT))
    _add("workflow_approvals", ("action", JSON))


def _run_transitions() -> None:
    op.create_table(
        "run_transitions",
        sa.Column("run_id", TEXT, nullable=False),
        sa.Column("seq", INTEGER, nullable=False),
        sa.Column("from_status", TEXT),
        sa.Column("to_status", TEXT, nullable=False),
        sa.Column("reason", TEXT, nullable=False),
        sa.Column("actor", TEXT),
        sa.Column("source", TEXT, nullable=False),
        sa.Column("claim_epoch", INTEGER),
        sa.Column("at", TIME, nullable=False),
        sa.Column("detail", TEXT),
        sa.ForeignKeyConstraint(["run_id"], ["workflow_runs.id"], name="fk_run_transitions_run_id"),
        sa.PrimaryKeyConstraint("run_id", "seq", name="pk_run_transitions"),
        comment="lastlight_state: every change of a run's status, numbered without gaps",
    )


def _index(name: str, table: str, columns: str, where: str | None = None, *, unique: bool = False) -> None:
    """Columns are given as one text; a predicate is the same for both databases."""
    partial: dict[str, Any] = {"sqlite_where": sa.text(where), "postgresql_where": sa.text(where)} if where else {}
    keys = [sa.text(column) if " " in column else column for column in columns.split(", ")]
    op.create_index(name, table, keys, unique=unique, **partial)


def _indexes_of_runs() -> None:
    table = "workflow_runs"
    _index("uq_workflow_runs_run_key", table, "workflow_name, run_key", "run_key IS NOT NULL", unique=True)
    _index("ix_workflow_runs_parent", table, "parent_run_id, started_at DESC", "parent_run_id IS NOT NULL")
    _index("ix_workflow_runs_queue", table, "queued_at, id, workflow_name, started_at", "status = 'queued'")
    _index("ix_workflow_runs_running", table, "workflow_name, id", "status = 'running'")
    _index("ix_workflow_runs_wake", table, "wake_at, id, workflow_name", "status = 'paused' AND wake_at IS NOT NULL")
    waiting = "status = 'paused' AND waiting_for IS NOT NULL"
    _index("ix_workflow_runs_waiting", table, "waiting_for, correlation_id, id, started_at", waiting)
    _index("ix_workflow_runs_repo", table, "owner, repo, started_at DESC")


def _indexes_of_executions() -> None:
    table = "executions"
    attempt = "workflow_run_id, node_id, iteration, attempt"
    _index("uq_executions_attempt", table, attempt, "node_id IS NOT NULL", unique=True)
    _index("ix_executions_in_flight", table, "workflow_run_id", "finished_at IS NULL AND success IS NULL")
    _index("ix_executions_session", table, "session_id, started_at DESC", "session_id IS NOT NULL")
    _index("ix_executions_trigger_started", table, "trigger_id, started_at DESC")


def _indexes_of_approvals() -> None:
    table = "workflow_approvals"
    _index("idx_approvals_workflow", table, "workflow_run_id")
    _index("idx_approvals_status", table, "status")
    _index("ix_approvals_newest", table, "created_at DESC, id DESC")
    _index("ix_approvals_status_newest", table, "status, created_at DESC, id DESC")
    _index("ix_approvals_inbox", table, "created_at DESC, id DESC", "status = 'pending'")
    _index("ix_approvals_due", table, "expires_at", "status = 'pending' AND expires_at IS NOT NULL")
    keyed = "status = 'pending' AND request_key IS NOT NULL"
    _index("uq_approvals_request_key", table, "workflow_run_id, request_key", keyed, unique=True)
    _index("ix_approvals_artifact", table, "artifact, created_at DESC")


def _covering_lists() -> None:
    """On SQLite: everything that a list shows, because a column behind a large one is slow to read from the row."""
    newest = "started_at DESC, id DESC"
    summary, usage = ", ".join(_SUMMARY), ", ".join(_USAGE)
    _index("ix_workflow_runs_summary", "workflow_runs", f"{newest}, status, {summary}")
    _index("ix_workflow_runs_status_summary", "workflow_runs", f"status, {newest}, {summary}")
    _index("ix_workflow_runs_trigger_started", "workflow_runs", f"trigger_id, {newest}")
    _index("ix_executions_run_usage", "executions", f"workflow_run_id, {newest}, {usage}")
    _index("ix_executions_usage", "executions", f"{newest}, {usage}")
    approvals: list[Any] = [sa.text("created_at DESC"), sa.text("id DESC"), *_APPROVAL, *map(sa.text, _PREVIEWS)]
    op.create_index("ix_approvals_summary", "workflow_approvals", approvals)
    of_run = "workflow_run_id, created_at DESC, id DESC, status, blocks_run, expires_at, node_id, iteration"
    _index("ix_approvals_run", "workflow_approvals", of_run)


def _narrow_lists() -> None:
    """On Postgres: the order alone. Large values lie beside the row, and wide indexes end updates in place."""
    newest = "started_at DESC, id DESC"
    _index("ix_workflow_runs_status_started", "workflow_runs", f"status, {newest}")
    _index("ix_executions_run_started", "executions", f"workflow_run_id, {newest}")
    _index("ix_executions_started", "executions", newest)
