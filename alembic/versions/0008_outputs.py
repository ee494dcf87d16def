"""Outputs: what runs were given, and what is known of the tables that hold what their tasks produced.

Brings run_inputs, output_tables, output_history and output_cache, with their guards. Output tables themselves are made
when they are defined.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None

TEXT = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
INTEGER = sa.Integer().with_variant(sa.BigInteger(), "postgresql")
TIME = sa.Text().with_variant(sa.DateTime(timezone=True), "postgresql")
JSON = sa.Text().with_variant(postgresql.JSONB(), "postgresql")

_APPEND_ONLY = ("run_inputs", "output_history", "output_tables")
_NEVER_CHANGE = ("run_inputs", "output_history")


def _sqlite() -> Iterator[str]:
    for table in _APPEND_ONLY:
        yield (
            f"CREATE TRIGGER {table}_no_delete BEFORE DELETE ON {table} FOR EACH ROW "
            f"WHEN NOT EXISTS (SELECT 1 FROM maintenance_permits) "
            f"BEGIN SELECT RAISE(ABORT, '{table} is append-only'); END"
        )
    for table in _NEVER_CHANGE:
        yield (
            f"CREATE TRIGGER {table}_no_update BEFORE UPDATE ON {table} FOR EACH ROW "
            f"BEGIN SELECT RAISE(ABORT, 'rows of {table} never change'); END"
        )


def _postgres() -> Iterator[str]:
    for table in _APPEND_ONLY:
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


SQLITE = tuple(_sqlite())
POSTGRES = tuple(_postgres())
additive_sql = SQLITE + POSTGRES


def upgrade() -> None:
    _inputs()
    _registry()
    _history()
    _cache()
    for statement in POSTGRES if op.get_context().dialect.name == "postgresql" else SQLITE:
        op.execute(statement)


def _inputs() -> None:
    op.create_table(
        "run_inputs",
        sa.Column("run_id", TEXT, nullable=False),
        sa.Column("revision", INTEGER, nullable=False),
        sa.Column("created_at", TIME, nullable=False),
        sa.Column("created_by", TEXT),
        sa.Column("reason", TEXT),
        sa.Column("payload", JSON, nullable=False),
        sa.Column("given", JSON),
        sa.ForeignKeyConstraint(["run_id"], ["workflow_runs.id"], name="fk_run_inputs_run_id"),
        sa.PrimaryKeyConstraint("run_id", "revision", name="pk_run_inputs"),
        comment="lastlight_state: what each run was started with; the highest revision is in force",
    )


def _registry() -> None:
    op.create_table(
        "output_tables",
        sa.Column("key", TEXT, nullable=False),
        sa.Column("table_name", TEXT, nullable=False),
        sa.Column("kind", TEXT, nullable=False),
        sa.Column("signature", TEXT, nullable=False),
        sa.Column("model_digest", TEXT),
        sa.Column("created_at", TIME, nullable=False),
        sa.Column("updated_at", TIME, nullable=False),
        sa.Column("columns", JSON, nullable=False),
        sa.Column("json_schema", JSON),
        sa.PrimaryKeyConstraint("key", name="pk_output_tables"),
        sa.UniqueConstraint("table_name", name="uq_output_tables_table_name"),
        comment="lastlight_state: the registry of output tables, with their columns and signatures",
    )


def _history() -> None:
    op.create_table(
        "output_history",
        sa.Column("run_id", TEXT, nullable=False),
        sa.Column("table_name", TEXT, nullable=False),
        sa.Column("node_id", TEXT, nullable=False),
        sa.Column("iteration", INTEGER, nullable=False),
        sa.Column("revision", INTEGER, nullable=False),
        sa.Column("signature", TEXT, nullable=False),
        sa.Column("cause", TEXT, nullable=False),
        sa.Column("written_at", TIME, nullable=False),
        sa.Column("removed_at", TIME, nullable=False),
        sa.Column("reason", TEXT),
        sa.Column("value", JSON, nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["workflow_runs.id"], name="fk_output_history_run_id"),
        sa.PrimaryKeyConstraint("run_id", "table_name", "node_id", "iteration", "revision", name="pk_output_history"),
        comment="lastlight_state: rows that left output tables, replaced or withdrawn, numbered from 0 for each key",
    )


def _cache() -> None:
    op.create_table(
        "output_cache",
        sa.Column("cache_key", TEXT, nullable=False),
        sa.Column("workflow_name", TEXT, nullable=False),
        sa.Column("node_id", TEXT, nullable=False),
        sa.Column("output_key", TEXT, nullable=False),
        sa.Column("table_name", TEXT, nullable=False),
        sa.Column("schema_signature", TEXT, nullable=False),
        sa.Column("model_digest", TEXT),
        sa.Column("agent_signature", TEXT),
        sa.Column("source_run_id", TEXT),
        sa.Column("created_at", TIME, nullable=False),
        sa.Column("expires_at", TIME),
        sa.Column("payload", JSON, nullable=False),
        sa.PrimaryKeyConstraint("cache_key", name="pk_output_cache"),
        comment="lastlight_state: results that may be used again while their schema is the same",
    )
    _index("ix_output_cache_node", "workflow_name, node_id, created_at DESC, cache_key DESC")
    _index("ix_output_cache_newest", "created_at DESC, cache_key DESC")
    _index("ix_output_cache_expiry", "expires_at", "expires_at IS NOT NULL")


def _index(name: str, columns: str, where: str | None = None) -> None:
    """Of the cache. Columns are given as one text; a predicate is the same for both databases."""
    keys = [sa.text(column) if " " in column else column for column in columns.split(", ")]
    partial: dict[str, Any] = {"sqlite_where": sa.text(where), "postgresql_where": sa.text(where)} if where else {}
    op.create_index(name, "output_cache", keys, **partial)
