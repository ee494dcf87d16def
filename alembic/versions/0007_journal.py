"""The journal: what happened in runs, in order.

Brings run_sequences, run_events, run_signals, run_frames, tool_calls, sandboxes and scores, with their guards.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

TEXT = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
INTEGER = sa.Integer().with_variant(sa.BigInteger(), "postgresql")
REAL: sa.types.TypeEngine[float] = sa.REAL().with_variant(sa.Double(), "postgresql")
TIME = sa.Text().with_variant(sa.DateTime(timezone=True), "postgresql")
JSON = sa.Text().with_variant(postgresql.JSONB(), "postgresql")

_TABLES = ("run_sequences", "run_events", "run_signals", "run_frames", "tool_calls", "sandboxes", "scores")

_NEVER_CHANGE = ("run_events", "run_frames")

_SIGNAL = "run_id seq signal_name correlation_id received_at received_by signal_id payload"
_SCORE = (
    "id run_id node_id iteration attempt scorer_id scorer_name source score latency_ms duration_ms scored_at reason "
    "meta input output expected"
)


def _differ(columns: str) -> str:
    return " OR ".join(f"NEW.{name} IS DISTINCT FROM OLD.{name}" for name in columns.split())


# Table, what is refused, and why.
_ONCE = {
    "run_signals_taken_once": (
        "run_signals",
        "OLD.consumed_at IS NOT NULL OR NEW.consumed_at IS NULL OR NEW.consumed_by IS NULL OR " + _differ(_SIGNAL),
        "a signal only ever changes by being taken once",
    ),
    "tool_calls_finished_stays": (
        "tool_calls",
        "OLD.finished_at IS NOT NULL",
        "a finished tool call never changes",
    ),
    "scores_superseded_once": (
        "scores",
        "OLD.superseded_at IS NOT NULL OR NEW.superseded_at IS NULL OR " + _differ(_SCORE),
        "a score only ever changes by being superseded once",
    ),
}
_FALLS = "NEW.next_seq < OLD.next_seq OR NEW.run_id <> OLD.run_id OR NEW.stream <> OLD.stream"
_NEVER_FALLS = "the next number of a stream never falls"


def _sqlite() -> Iterator[str]:
    unless_permitted = "NOT EXISTS (SELECT 1 FROM maintenance_permits)"
    for table in _TABLES:
        yield (
            f"CREATE TRIGGER {table}_no_delete BEFORE DELETE ON {table} FOR EACH ROW "
            f"WHEN {unless_permitted} BEGIN SELECT RAISE(ABORT, '{table} is append-only'); END"
        )
    for table in _NEVER_CHANGE:
        yield (
            f"CREATE TRIGGER {table}_no_update BEFORE UPDATE ON {table} FOR EACH ROW "
            f"BEGIN SELECT RAISE(ABORT, 'rows of {table} never change'); END"
        )
    for name, (table, refused, why) in _ONCE.items():
        when = refused.replace("IS DISTINCT FROM", "IS NOT")
        yield (
            f"CREATE TRIGGER {name} BEFORE UPDATE ON {table} FOR EACH ROW WHEN {when} "
            f"BEGIN SELECT RAISE(ABORT, '{why}'); END"
        )
    yield (
        "CREATE TRIGGER run_signals_one_each BEFORE UPDATE ON run_signals FOR EACH ROW WHEN EXISTS "
        "(SELECT 1 FROM run_signals WHERE run_id = NEW.run_id AND consumed_by = NEW.consumed_by) "
        "BEGIN SELECT RAISE(ABORT, 'a consumer takes one signal of a run'); END"
    )
    yield (
        "CREATE TRIGGER run_sequences_never_fall BEFORE UPDATE ON run_sequences FOR EACH ROW "
        f"WHEN ({_FALLS}) AND {unless_permitted} BEGIN SELECT RAISE(ABORT, '{_NEVER_FALLS}'); END"
    )


def _postgres() -> Iterator[str]:
    for table in _TABLES:
        for event, each in (("delete", "ROW"), ("truncate", "STATEMENT")):
            yield (
                f"CREATE TRIGGER {table}_no_{event} BEFORE {event.upper()} ON {table} FOR EACH {each} "
                f"EXECUTE FUNCTION lastlight_refuse_unless_permitted('{table} is append-only', 'any')"
            )
    for table in _NEVER_CHANGE:
        yield (
            f"CREATE TRIGGER {table}_no_update BEFORE UPDATE ON {table} FOR EACH ROW "
            f"EXECUTE FUNCTION lastlight_refuse('rows of {table} never change')"
        )
    for name, (table, when, why) in _ONCE.items():
        yield (
            f"CREATE TRIGGER {name} BEFORE UPDATE ON {table} FOR EACH ROW WHEN ({when}) "
            f"EXECUTE FUNCTION lastlight_refuse('{why}')"
        )
    yield (
        "CREATE TRIGGER run_sequences_never_fall BEFORE UPDATE ON run_sequences FOR EACH ROW "
        f"WHEN ({_FALLS}) EXECUTE FUNCTION lastlight_refuse_unless_permitted('{_NEVER_FALLS}', 'any')"
    )


SQLITE = tuple(_sqlite())
POSTGRES = tuple(_postgres())
additive_sql = SQLITE + POSTGRES


def upgrade() -> None:
    _numbered()
    _frames()
    _tool_calls()
    _sandboxes_and_scores()
    for statement in POSTGRES if op.get_context().dialect.name == "postgresql" else SQLITE:
        op.execute(statement)


def _numbered() -> None:
    op.create_table(
        "run_sequences",
        sa.Column("run_id", TEXT, nullable=False),
        sa.Column("stream", TEXT, nullable=False),
        sa.Column("next_seq", INTEGER, nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["workflow_runs.id"], name="fk_run_sequences_run_id"),
        sa.PrimaryKeyConstraint("run_id", "stream", name="pk_run_sequences"),
        comment="lastlight_state: the next number of each stream of a run's journal",
    )
    op.create_table(
        "run_events",
        sa.Column("run_id", TEXT, nullable=False),
        sa.Column("seq", INTEGER, nullable=False),
        sa.Column("type", TEXT, nullable=False),
        sa.Column("occurred_at", TIME, nullable=False),
        sa.Column("node_id", TEXT),
        sa.Column("event_id", TEXT),
        sa.Column("payload", JSON, nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["workflow_runs.id"], name="fk_run_events_run_id"),
        sa.PrimaryKeyConstraint("run_id", "seq", name="pk_run_events"),
        comment="lastlight_state: what happened in runs, numbered without gaps in the order of the commits",
    )
    _index("ix_run_events_node", "run_events", "run_id, node_id, seq", "node_id IS NOT NULL")
    _index("ix_run_events_occurred", "run_events", "run_id, occurred_at")
    _index("ix_run_events_type", "run_events", "run_id, type, seq")
    _index("uq_run_events_event_id", "run_events", "run_id, event_id", "event_id IS NOT NULL", unique=True)
    op.create_table(
        "run_signals",
        sa.Column("run_id", TEXT, nullable=False),
        sa.Column("seq", INTEGER, nullable=False),
        sa.Column("signal_name", TEXT, nullable=False),
        sa.Column("correlation_id", TEXT),
        sa.Column("received_at", TIME, nullable=False),
        sa.Column("received_by", TEXT),
        sa.Column("signal_id", TEXT),
        sa.Column("consumed_at", TIME),
        sa.Column("consumed_by", TEXT),
        sa.Column("payload", JSON, nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["workflow_runs.id"], name="fk_run_signals_run_id"),
        sa.PrimaryKeyConstraint("run_id", "seq", name="pk_run_signals"),
        comment="lastlight_state: messages sent into runs from outside, each taken once",
    )
    _index("ix_run_signals_name", "run_signals", "run_id, signal_name, correlation_id, received_at")
    _index("ix_run_signals_pending", "run_signals", "run_id, signal_name, seq", "consumed_at IS NULL")
    _index("uq_run_signals_consumer", "run_signals", "run_id, consumed_by", "consumed_by IS NOT NULL", unique=True)
    _index("uq_run_signals_signal_id", "run_signals", "run_id, signal_id", "signal_id IS NOT NULL", unique=True)


def _frames() -> None:
    op.create_table(
        "run_frames",
        sa.Column("run_id", TEXT, nullable=False),
        sa.Column("frame_no", INTEGER, nullable=False),
        sa.Column("created_at", TIME, nullable=False),
        sa.Column("encoding", TEXT, server_default=sa.text("'full'"), nullable=False),
        sa.Column("content_hash", TEXT, nullable=False),
        sa.Column("full_bytes", INTEGER, nullable=False),
        sa.Column("note", TEXT),
        sa.Column("mounted_task_ids", JSON),
        sa.Column("task_index", JSON),
        sa.Column("body", TEXT, nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["workflow_runs.id"], name="fk_run_frames_run_id"),
        sa.PrimaryKeyConstraint("run_id", "frame_no", name="pk_run_frames"),
        comment="lastlight_state: rendered frames of runs, whole or as the change since the frame before",
    )
    _index("ix_run_frames_anchors", "run_frames", "run_id, frame_no", "encoding <> 'delta'")


def _tool_calls() -> None:
    op.create_table(
        "tool_calls",
        sa.Column("run_id", TEXT, nullable=False),
        sa.Column("seq", INTEGER, nullable=False),
        sa.Column("node_id", TEXT),
        sa.Column("iteration", INTEGER, server_default=sa.text("0"), nullable=False),
        sa.Column("attempt", INTEGER, server_default=sa.text("1"), nullable=False),
        sa.Column("execution_id", TEXT),
        sa.Column("call_id", TEXT),
        sa.Column("tool_name", TEXT, nullable=False),
        sa.Column("status", TEXT, server_default=sa.text("'running'"), nullable=False),
        sa.Column("started_at", TIME, nullable=False),
        sa.Column("finished_at", TIME),
        sa.Column("duration_ms", INTEGER),
        sa.Column("output_ref", TEXT),
        sa.Column("input", JSON),
        sa.Column("output", JSON),
        sa.Column("error", JSON),
        sa.ForeignKeyConstraint(["run_id"], ["workflow_runs.id"], name="fk_tool_calls_run_id"),
        sa.PrimaryKeyConstraint("run_id", "seq", name="pk_tool_calls"),
        comment="lastlight_state: invocations of tools, with status and latency",
    )
    _index("ix_tool_calls_execution", "tool_calls", "execution_id", "execution_id IS NOT NULL")
    _index("ix_tool_calls_open", "tool_calls", "run_id, seq", "finished_at IS NULL")
    _index("ix_tool_calls_task", "tool_calls", "run_id, node_id, iteration, attempt, seq")
    _index("uq_tool_calls_call_id", "tool_calls", "run_id, call_id", "call_id IS NOT NULL", unique=True)


def _sandboxes_and_scores() -> None:
    op.create_table(
        "sandboxes",
        sa.Column("run_id", TEXT, nullable=False),
        sa.Column("sandbox_id", TEXT, nullable=False),
        sa.Column("runtime", TEXT, server_default=sa.text("'bubblewrap'"), nullable=False),
        sa.Column("status", TEXT, server_default=sa.text("'pending'"), nullable=False),
        sa.Column("remote_run_id", TEXT),
        sa.Column("workspace_id", TEXT),
        sa.Column("container_id", TEXT),
        sa.Column("bundle_path", TEXT),
        sa.Column("shipped_at", TIME),
        sa.Column("completed_at", TIME),
        sa.Column("created_at", TIME, nullable=False),
        sa.Column("updated_at", TIME, nullable=False),
        sa.Column("config", JSON, server_default=sa.text("'{}'"), nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["workflow_runs.id"], name="fk_sandboxes_run_id"),
        sa.PrimaryKeyConstraint("run_id", "sandbox_id", name="pk_sandboxes"),
        comment="lastlight_state: sandboxes of runs, with where each of them stands",
    )
    _index("ix_sandboxes_newest", "sandboxes", "updated_at DESC, run_id DESC, sandbox_id DESC")
    _index("ix_sandboxes_status", "sandboxes", "status, updated_at DESC, run_id DESC, sandbox_id DESC")
    op.create_table(
        "scores",
        sa.Column("id", TEXT, nullable=False),
        sa.Column("run_id", TEXT, nullable=False),
        sa.Column("node_id", TEXT, nullable=False),
        sa.Column("iteration", INTEGER, server_default=sa.text("0"), nullable=False),
        sa.Column("attempt", INTEGER, server_default=sa.text("1"), nullable=False),
        sa.Column("scorer_id", TEXT, nullable=False),
        sa.Column("scorer_name", TEXT, nullable=False),
        sa.Column("source", TEXT, nullable=False),
        sa.Column("score", REAL, nullable=False),
        sa.Column("latency_ms", REAL),
        sa.Column("duration_ms", REAL),
        sa.Column("scored_at", TIME, nullable=False),
        sa.Column("superseded_at", TIME),
        sa.Column("reason", TEXT),
        sa.Column("meta", JSON),
        sa.Column("input", JSON),
        sa.Column("output", JSON),
        sa.Column("expected", JSON),
        sa.ForeignKeyConstraint(["run_id"], ["workflow_runs.id"], name="fk_scores_run_id"),
        sa.PrimaryKeyConstraint("id", name="pk_scores"),
        comment="lastlight_state: scores of task attempts; a rerun supersedes the score before",
    )
    _index("ix_scores_newest", "scores", "scored_at DESC, id DESC")
    _index("ix_scores_run", "scores", "run_id, scored_at DESC, id DESC")
    _index("ix_scores_scorer", "scores", "scorer_id, scored_at DESC, id DESC")
    _index(
        "uq_scores_current",
        "scores",
        "run_id, node_id, iteration, attempt, scorer_id, source",
        "superseded_at IS NULL",
        unique=True,
    )


def _index(name: str, table: str, columns: str, where: str | None = None, *, unique: bool = False) -> None:
    """Columns are given as one text; a predicate is the same for both databases."""
    keys = [sa.text(column) if " " in column else column for column in columns.split(", ")]
    partial: dict[str, Any] = {"sqlite_where": sa.text(where), "postgresql_where": sa.text(where)} if where else {}
    op.create_index(name, table, keys, unique=unique, **partial)
