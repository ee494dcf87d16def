"""What a graph of steps needs: the state of its nodes, the counters of its loops, and questions to people.

Brings run_nodes, run_loops and human_requests, with the guards of the last.
"""

from __future__ import annotations

from collections.abc import Iterator

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

TEXT = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
INTEGER = sa.Integer().with_variant(sa.BigInteger(), "postgresql")
FLAG = sa.Integer().with_variant(sa.Boolean(), "postgresql")
TIME = sa.Text().with_variant(sa.DateTime(timezone=True), "postgresql")
JSON = sa.Text().with_variant(postgresql.JSONB(), "postgresql")

_APPEND_ONLY = "human_requests is append-only"
_CLOSED_STAYS = "the status of a cancelled or expired request never changes"
_CLOSED = "OLD.status IN ('cancelled', 'expired') AND NEW.status <> OLD.status"


def _sqlite() -> Iterator[str]:
    yield (
        "CREATE TRIGGER human_requests_no_delete BEFORE DELETE ON human_requests FOR EACH ROW "
        "WHEN NOT EXISTS (SELECT 1 FROM maintenance_permits) "
        f"BEGIN SELECT RAISE(ABORT, '{_APPEND_ONLY}'); END"
    )
    yield (
        "CREATE TRIGGER human_requests_closed_stays BEFORE UPDATE OF status ON human_requests FOR EACH ROW "
        f"WHEN {_CLOSED} BEGIN SELECT RAISE(ABORT, '{_CLOSED_STAYS}'); END"
    )


def _postgres() -> Iterator[str]:
    for event, each in (("delete", "ROW"), ("truncate", "STATEMENT")):
        yield (
            f"CREATE TRIGGER human_requests_no_{event} BEFORE {event.upper()} ON human_requests FOR EACH {each} "
            f"EXECUTE FUNCTION lastlight_refuse_unless_permitted('{_APPEND_ONLY}', 'any')"
        )
    yield (
        "CREATE TRIGGER human_requests_closed_stays BEFORE UPDATE OF status ON human_requests FOR EACH ROW "
        f"WHEN ({_CLOSED}) EXECUTE FUNCTION lastlight_refuse('{_CLOSED_STAYS}')"
    )


SQLITE = tuple(_sqlite())
POSTGRES = tuple(_postgres())
additive_sql = SQLITE + POSTGRES


def upgrade() -> None:
    _nodes_and_loops()
    _human_requests()
    _indexes()
    for statement in POSTGRES if op.get_context().dialect.name == "postgresql" else SQLITE:
        op.execute(statement)


def _nodes_and_loops() -> None:
    op.create_table(
        "run_nodes",
        sa.Column("run_id", TEXT, nullable=False),
        sa.Column("node_id", TEXT, nullable=False),
        sa.Column("iteration", INTEGER, server_default=sa.text("0"), nullable=False),
        sa.Column("state", TEXT, nullable=False),
        sa.Column("last_attempt", INTEGER, server_default=sa.text("0"), nullable=False),
        sa.Column("output_table", TEXT),
        sa.Column("label", TEXT),
        sa.Column("wake_at", TIME),
        sa.Column("waiting_for", TEXT),
        sa.Column("correlation_id", TEXT),
        sa.Column("updated_at", TIME, nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["workflow_runs.id"], name="fk_run_nodes_run_id"),
        sa.PrimaryKeyConstraint("run_id", "node_id", "iteration", name="pk_run_nodes"),
        comment="lastlight_state: state of each node of a run, by iteration",
    )
    op.create_table(
        "run_loops",
        sa.Column("run_id", TEXT, nullable=False),
        sa.Column("loop_id", TEXT, nullable=False),
        sa.Column("iteration", INTEGER, server_default=sa.text("0"), nullable=False),
        sa.Column("done", FLAG, server_default=sa.false(), nullable=False),
        sa.Column("updated_at", TIME, nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["workflow_runs.id"], name="fk_run_loops_run_id"),
        sa.PrimaryKeyConstraint("run_id", "loop_id", name="pk_run_loops"),
        comment="lastlight_state: where each loop of a run stands",
    )


def _human_requests() -> None:
    op.create_table(
        "human_requests",
        sa.Column("id", TEXT, nullable=False),
        sa.Column("run_id", TEXT, nullable=False),
        sa.Column("node_id", TEXT, nullable=False),
        sa.Column("iteration", INTEGER, server_default=sa.text("0"), nullable=False),
        sa.Column("kind", TEXT, nullable=False),
        sa.Column("status", TEXT, server_default=sa.text("'pending'"), nullable=False),
        sa.Column("blocks_run", FLAG, server_default=sa.false(), nullable=False),
        sa.Column("on_expiry", TEXT, server_default=sa.text("'resume'"), nullable=False),
        sa.Column("requested_at", TIME, nullable=False),
        sa.Column("expires_at", TIME),
        sa.Column("answered_at", TIME),
        sa.Column("answered_by", TEXT),
        sa.Column("closed_reason", TEXT),
        sa.Column("reopened", INTEGER, server_default=sa.text("0"), nullable=False),
        sa.Column("prompt", TEXT, nullable=False),
        sa.Column("options", JSON),
        sa.Column("schema", JSON),
        sa.Column("response", JSON),
        sa.ForeignKeyConstraint(["run_id"], ["workflow_runs.id"], name="fk_human_requests_run_id"),
        sa.PrimaryKeyConstraint("id", name="pk_human_requests"),
        comment="lastlight_state: questions of runs to people, with their answers",
    )


def _indexes() -> None:
    _index("ix_run_nodes_wake", "run_nodes", "state, wake_at", "wake_at IS NOT NULL")
    _index("ix_run_nodes_waiting", "run_nodes", "waiting_for, correlation_id", "state = 'waiting_signal'")
    _index("ix_human_requests_inbox", "human_requests", "requested_at DESC, id DESC", "status = 'pending'")
    due = "status = 'pending' AND expires_at IS NOT NULL"
    _index("ix_human_requests_due", "human_requests", "expires_at", due)
    _index("ix_human_requests_run", "human_requests", "run_id, requested_at")


def _index(name: str, table: str, columns: str, where: str | None = None) -> None:
    """Columns are given as one text; a predicate is the same for both databases."""
    keys = [sa.text(column) if " " in column else column for column in columns.split(", ")]
    predicate = sa.text(where) if where else None
    op.create_index(name, table, keys, sqlite_where=predicate, postgresql_where=predicate)
