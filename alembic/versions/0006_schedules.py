"""Schedules made at run time, and one row for each fire of a cron.

Adds the zone of an override's schedule and whether it leaves the switch alone; brings cron_schedules and cron_fires,
with the guards of the last.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

TEXT = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
INTEGER = sa.Integer().with_variant(sa.BigInteger(), "postgresql")
FLAG = sa.Integer().with_variant(sa.Boolean(), "postgresql")
TIME = sa.Text().with_variant(sa.DateTime(timezone=True), "postgresql")
JSON = sa.Text().with_variant(postgresql.JSONB(), "postgresql")

_APPEND_ONLY = "cron_fires is append-only"
_FINISHED = "a finished fire never changes"
_ENDED = "OLD.status <> 'running'"


def _sqlite() -> Iterator[str]:
    unless_permitted = "NOT EXISTS (SELECT 1 FROM maintenance_permits)"
    yield (
        "CREATE TRIGGER cron_fires_no_delete BEFORE DELETE ON cron_fires FOR EACH ROW "
        f"WHEN {unless_permitted} BEGIN SELECT RAISE(ABORT, '{_APPEND_ONLY}'); END"
    )
    yield (
        "CREATE TRIGGER cron_fires_finished_stays BEFORE UPDATE ON cron_fires FOR EACH ROW "
        f"WHEN ({_ENDED}) AND {unless_permitted} BEGIN SELECT RAISE(ABORT, '{_FINISHED}'); END"
    )


def _postgres() -> Iterator[str]:
    for event, each in (("delete", "ROW"), ("truncate", "STATEMENT")):
        yield (
            f"CREATE TRIGGER cron_fires_no_{event} BEFORE {event.upper()} ON cron_fires FOR EACH {each} "
            f"EXECUTE FUNCTION lastlight_refuse_unless_permitted('{_APPEND_ONLY}', 'any')"
        )
    yield (
        "CREATE TRIGGER cron_fires_finished_stays BEFORE UPDATE ON cron_fires FOR EACH ROW "
        f"WHEN ({_ENDED}) EXECUTE FUNCTION lastlight_refuse_unless_permitted('{_FINISHED}', 'any')"
    )


SQLITE = tuple(_sqlite())
POSTGRES = tuple(_postgres())
additive_sql = SQLITE + POSTGRES


def upgrade() -> None:
    op.add_column("cron_overrides", sa.Column("timezone", TEXT))
    op.add_column("cron_overrides", sa.Column("inherits_enabled", FLAG, server_default=sa.false(), nullable=False))
    _schedules()
    _fires()
    for statement in POSTGRES if op.get_context().dialect.name == "postgresql" else SQLITE:
        op.execute(statement)


def _schedules() -> None:
    op.create_table(
        "cron_schedules",
        sa.Column("name", TEXT, nullable=False),
        sa.Column("pattern", TEXT, nullable=False),
        sa.Column("timezone", TEXT, server_default=sa.text("'UTC'"), nullable=False),
        sa.Column("target_kind", TEXT, server_default=sa.text("'workflow'"), nullable=False),
        sa.Column("target", TEXT, nullable=False),
        sa.Column("catch_up", TEXT, server_default=sa.text("'one'"), nullable=False),
        sa.Column("grace_seconds", INTEGER, server_default=sa.text("60"), nullable=False),
        sa.Column("overlap", TEXT, server_default=sa.text("'allow'"), nullable=False),
        sa.Column("origin", TEXT, server_default=sa.text("'database'"), nullable=False),
        sa.Column("enabled", FLAG, server_default=sa.true(), nullable=False),
        sa.Column("created_at", TIME, nullable=False),
        sa.Column("updated_at", TIME, nullable=False),
        sa.Column("last_run_at", TIME),
        sa.Column("next_run_at", TIME),
        sa.Column("planned_with", TEXT),
        sa.Column("last_fire_id", TEXT),
        sa.Column("retired_at", TIME),
        sa.Column("error_json", JSON),
        sa.Column("payload", JSON),
        sa.PrimaryKeyConstraint("name", name="pk_cron_schedules"),
        comment="lastlight_state: schedules, with when each is due next",
    )
    _index("ix_cron_schedules_due", "cron_schedules", "next_run_at, name, target", "next_run_at IS NOT NULL")
    _index("ix_cron_schedules_newest", "cron_schedules", "created_at DESC, name DESC")


def _fires() -> None:
    op.create_table(
        "cron_fires",
        sa.Column("id", TEXT, nullable=False),
        sa.Column("cron_name", TEXT, nullable=False),
        sa.Column("scheduled_for", TIME),
        sa.Column("source", TEXT, nullable=False),
        sa.Column("actor", TEXT),
        sa.Column("target_kind", TEXT),
        sa.Column("target", TEXT),
        sa.Column("status", TEXT, server_default=sa.text("'running'"), nullable=False),
        sa.Column("owner", TEXT),
        sa.Column("lease_until", TIME),
        sa.Column("epoch", INTEGER, server_default=sa.text("1"), nullable=False),
        sa.Column("attempts", INTEGER, server_default=sa.text("1"), nullable=False),
        sa.Column("started_at", TIME, nullable=False),
        sa.Column("finished_at", TIME),
        sa.Column("eligible", INTEGER),
        sa.Column("scanned", INTEGER),
        sa.Column("discovered", INTEGER),
        sa.Column("dispatched", INTEGER),
        sa.Column("failures", INTEGER),
        sa.Column("note", TEXT),
        sa.Column("error_json", JSON),
        sa.Column("payload", JSON),
        sa.PrimaryKeyConstraint("id", name="pk_cron_fires"),
        comment="lastlight_state: fires of crons, one row each, also when nothing was dispatched",
    )
    once = "scheduled_for IS NOT NULL"
    _index("uq_cron_fires_instant", "cron_fires", "cron_name, scheduled_for", once, unique=True)
    _index("ix_cron_fires_cron", "cron_fires", "cron_name, started_at DESC, id DESC")
    _index("ix_cron_fires_newest", "cron_fires", "started_at DESC, id DESC")
    _index("ix_cron_fires_running", "cron_fires", "cron_name, target, id", "status = 'running'")


def _index(name: str, table: str, columns: str, where: str | None = None, *, unique: bool = False) -> None:
    """Columns are given as one text; a predicate is the same for both databases."""
    keys = [sa.text(column) if " " in column else column for column in columns.split(", ")]
    partial: dict[str, Any] = {"sqlite_where": sa.text(where), "postgresql_where": sa.text(where)} if where else {}
    op.create_index(name, table, keys, unique=unique, **partial)
