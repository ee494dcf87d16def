"""What maintenance did: receipts, permits, tombstones, the import ledger, the progress of copies.

Brings the functions that every later guard calls on Postgres, and the table ``lastlight_meta``.
"""

from __future__ import annotations

from collections.abc import Iterator

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

TEXT = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
INTEGER = sa.Integer().with_variant(sa.BigInteger(), "postgresql")
FLAG = sa.Integer().with_variant(sa.Boolean(), "postgresql")
TIME = sa.Text().with_variant(sa.DateTime(timezone=True), "postgresql")
JSON = sa.Text().with_variant(postgresql.JSONB(), "postgresql")

_APPEND_ONLY = ("maintenance_receipts", "tombstones")
_UNLESS_RESET = "NOT EXISTS (SELECT 1 FROM maintenance_permits WHERE receipt_id = 'reset')"
_FUNCTION = (
    "CREATE FUNCTION {name}() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS "
    "$guard$ BEGIN {body}RAISE EXCEPTION USING ERRCODE = 'LL001', MESSAGE = TG_ARGV[0]; END $guard$"
)
_IF_PERMITTED = (
    "IF EXISTS (SELECT 1 FROM maintenance_permits WHERE TG_ARGV[1] = 'any' OR receipt_id = TG_ARGV[1]) THEN "
    "IF TG_OP = 'DELETE' THEN RETURN OLD; END IF; RETURN NEW; END IF; "
)


def _sqlite() -> Iterator[str]:
    for table in _APPEND_ONLY:
        yield (
            f"CREATE TRIGGER {table}_no_delete BEFORE DELETE ON {table} FOR EACH ROW "
            f"WHEN {_UNLESS_RESET} BEGIN SELECT RAISE(ABORT, '{table} is append-only'); END"
        )
    yield (
        "CREATE TRIGGER maintenance_receipts_finished_stays BEFORE UPDATE ON maintenance_receipts FOR EACH ROW "
        f"WHEN (OLD.state IN ('done', 'failed')) AND {_UNLESS_RESET} "
        "BEGIN SELECT RAISE(ABORT, 'a finished receipt never changes'); END"
    )


def _postgres() -> Iterator[str]:
    yield _FUNCTION.format(name="lastlight_refuse", body="")
    yield _FUNCTION.format(name="lastlight_refuse_unless_permitted", body=_IF_PERMITTED)
    for table in _APPEND_ONLY:
        for event, each in (("delete", "ROW"), ("truncate", "STATEMENT")):
            yield (
                f"CREATE TRIGGER {table}_no_{event} BEFORE {event.upper()} ON {table} FOR EACH {each} "
                f"EXECUTE FUNCTION lastlight_refuse_unless_permitted('{table} is append-only', 'reset')"
            )
    yield (
        "CREATE TRIGGER maintenance_receipts_finished_stays BEFORE UPDATE ON maintenance_receipts FOR EACH ROW "
        "WHEN (OLD.state IN ('done', 'failed')) "
        "EXECUTE FUNCTION lastlight_refuse_unless_permitted('a finished receipt never changes', 'reset')"
    )


SQLITE = tuple(_sqlite())
POSTGRES = tuple(_postgres())
additive_sql = SQLITE + POSTGRES


def upgrade() -> None:
    _receipts()
    _facts_and_permits()
    _ledgers()
    for statement in POSTGRES if op.get_context().dialect.name == "postgresql" else SQLITE:
        op.execute(statement)


def _receipts() -> None:
    op.create_table(
        "maintenance_receipts",
        sa.Column("id", TEXT, nullable=False),
        sa.Column("kind", TEXT, nullable=False),
        sa.Column("scope", TEXT, server_default=sa.text("''"), nullable=False),
        sa.Column("state", TEXT, nullable=False),
        sa.Column("owner", TEXT, nullable=False),
        sa.Column("epoch", INTEGER, server_default=sa.text("1"), nullable=False),
        sa.Column("actor", TEXT),
        sa.Column("library_version", TEXT, nullable=False),
        sa.Column("started_at", TIME, nullable=False),
        sa.Column("updated_at", TIME, nullable=False),
        sa.Column("finished_at", TIME),
        sa.Column("counts", JSON, server_default=sa.text("'{}'"), nullable=False),
        sa.Column("cursor", JSON),
        sa.Column("error", TEXT),
        sa.Column("policy", JSON, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_maintenance_receipts"),
        comment="lastlight_state: what maintenance did, one row per piece of work",
    )
    op.create_index(
        "ix_maintenance_receipts_kind",
        "maintenance_receipts",
        ["kind", sa.text("started_at DESC"), sa.text("id DESC")],
    )
    op.create_index(
        "uq_maintenance_receipts_running",
        "maintenance_receipts",
        ["kind", "scope"],
        unique=True,
        sqlite_where=sa.text("state = 'running'"),
        postgresql_where=sa.text("state = 'running'"),
    )


def _facts_and_permits() -> None:
    op.create_table(
        "lastlight_meta",
        sa.Column("key", TEXT, nullable=False),
        sa.Column("value", TEXT, nullable=False),
        sa.PrimaryKeyConstraint("key", name="pk_lastlight_meta"),
        comment="lastlight_state: facts about this schema",
    )
    op.create_table(
        "maintenance_permits",
        sa.Column("receipt_id", TEXT, nullable=False),
        sa.PrimaryKeyConstraint("receipt_id", name="pk_maintenance_permits"),
        comment="lastlight_state: leave to delete within one transaction; always empty at rest",
    )


def _ledgers() -> None:
    op.create_table(
        "tombstones",
        sa.Column("kind", TEXT, nullable=False),
        sa.Column("id", TEXT, nullable=False),
        sa.Column("receipt_id", TEXT, nullable=False),
        sa.Column("digest", TEXT),
        sa.Column("deleted_at", TIME, nullable=False),
        sa.PrimaryKeyConstraint("kind", "id", name="pk_tombstones"),
        comment="lastlight_state: what was pruned, by kind and id",
    )
    op.create_table(
        "import_ledger",
        sa.Column("source_kind", TEXT, nullable=False),
        sa.Column("source_key", TEXT, nullable=False),
        sa.Column("digest", TEXT, nullable=False),
        sa.Column("outcome", TEXT, nullable=False),
        sa.Column("target_kind", TEXT),
        sa.Column("target_id", TEXT),
        sa.Column("receipt_id", TEXT, nullable=False),
        sa.Column("imported_at", TIME, nullable=False),
        sa.PrimaryKeyConstraint("source_kind", "source_key", name="pk_import_ledger"),
        comment="lastlight_state: what was imported, by source, with its digest",
    )
    op.create_table(
        "copy_progress",
        sa.Column("receipt_id", TEXT, nullable=False),
        sa.Column("table_name", TEXT, nullable=False),
        sa.Column("rows", INTEGER, server_default=sa.text("0"), nullable=False),
        sa.Column("done", FLAG, server_default=sa.false(), nullable=False),
        sa.Column("last_key", JSON),
        sa.PrimaryKeyConstraint("receipt_id", "table_name", name="pk_copy_progress"),
        comment="lastlight_state: how far a copy into this database came, by table",
    )
