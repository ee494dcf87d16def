"""One active chat session per key, also when there is no thread.

Adds columns to messaging_sessions, retires sessions that share their key with a newer active one, and brings the
indexes that keep it so, with the guards of both messaging tables.

The reduction and the unique index stand in one transaction with other writers kept out: between them a duplicate would
slip in. The winner of a key has the greatest (last_activity_at, created_at, id), so the database decides by the rows
alone, whatever their order. Nothing is deleted, and what was retired stays findable by its reason.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

TEXT = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
INTEGER = sa.Integer().with_variant(sa.BigInteger(), "postgresql")
TIME = sa.Text().with_variant(sa.DateTime(timezone=True), "postgresql")
JSON = sa.Text().with_variant(postgresql.JSONB(), "postgresql")

# Exclusive from the start: to lock against writes first and raise the lock for ALTER TABLE could deadlock.
_KEEP_OUT = "LOCK TABLE messaging_sessions IN ACCESS EXCLUSIVE MODE"

_RETIRE = (
    "UPDATE messaging_sessions SET active = {no}, deactivated_at = {now}, deactivated_reason = 'duplicate', "
    "version = version + 1 WHERE active = {yes} AND EXISTS (SELECT 1 FROM messaging_sessions AS newer "
    "WHERE newer.active = {yes} AND newer.platform = messaging_sessions.platform "
    "AND newer.channel_id = messaging_sessions.channel_id "
    "AND coalesce(newer.thread_id, '') = coalesce(messaging_sessions.thread_id, '') "
    "AND newer.user_id = messaging_sessions.user_id "
    "AND (newer.last_activity_at, newer.created_at, coalesce(newer.id, '')) > "
    "(messaging_sessions.last_activity_at, messaging_sessions.created_at, coalesce(messaging_sessions.id, '')))"
)
_SQLITE_RETIRE = _RETIRE.format(yes="1", no="0", now="strftime('%Y-%m-%dT%H:%M:%fZ', 'now')")
_POSTGRES_RETIRE = _RETIRE.format(yes="true", no="false", now="date_trunc('milliseconds', now())")

_APPEND_ONLY = ("messaging_sessions", "messaging_messages")


def _sqlite_guards() -> Iterator[str]:
    for table in _APPEND_ONLY:
        yield (
            f"CREATE TRIGGER {table}_no_delete BEFORE DELETE ON {table} FOR EACH ROW "
            "WHEN NOT EXISTS (SELECT 1 FROM maintenance_permits) "
            f"BEGIN SELECT RAISE(ABORT, '{table} is append-only'); END"
        )
    yield (
        "CREATE TRIGGER messaging_messages_no_update BEFORE UPDATE ON messaging_messages FOR EACH ROW "
        "BEGIN SELECT RAISE(ABORT, 'rows of messaging_messages never change'); END"
    )


def _postgres_guards() -> Iterator[str]:
    for table in _APPEND_ONLY:
        for event, each in (("delete", "ROW"), ("truncate", "STATEMENT")):
            yield (
                f"CREATE TRIGGER {table}_no_{event} BEFORE {event.upper()} ON {table} FOR EACH {each} "
                f"EXECUTE FUNCTION lastlight_refuse_unless_permitted('{table} is append-only', 'any')"
            )
    yield (
        "CREATE TRIGGER messaging_messages_no_update BEFORE UPDATE ON messaging_messages FOR EACH ROW "
        "EXECUTE FUNCTION lastlight_refuse('rows of messaging_messages never change')"
    )


_SQLITE_GUARDS = tuple(_sqlite_guards())
_POSTGRES_GUARDS = tuple(_postgres_guards())
additive_sql = (_KEEP_OUT, _SQLITE_RETIRE, _POSTGRES_RETIRE, *_SQLITE_GUARDS, *_POSTGRES_GUARDS)

_SHARED = (
    "FROM {table} WHERE CAST(active AS INTEGER) = 1 "
    "GROUP BY platform, channel_id, coalesce(thread_id, ''), user_id HAVING count(*) > 1"
)
_STILL_SHARED = f"SELECT platform, channel_id, coalesce(thread_id, ''), user_id {_SHARED}".format(
    table="messaging_sessions"
)

# What the runner may ask, and say, about the rows that this revision changes; {table} stands for the table's full name.
data_steps = (
    {
        "table": "messaging_sessions",
        "columns": ("active", "deactivated_at", "deactivated_reason", "version"),
        "what": "retires chat sessions that share their key with a newer active one",
        "plan": f"SELECT coalesce(sum(n - 1), 0), count(*) FROM (SELECT count(*) AS n {_SHARED}) AS shared",
        "report": "SELECT id FROM {table} WHERE deactivated_reason = 'duplicate' ORDER BY id",
    },
)


def upgrade() -> None:
    on_postgres = op.get_context().dialect.name == "postgresql"
    if on_postgres:
        op.execute(_KEEP_OUT)
    _columns()
    op.execute(_POSTGRES_RETIRE if on_postgres else _SQLITE_RETIRE)
    op.refuse_rows(_STILL_SHARED, "chat sessions that share a key are active")  # type: ignore[attr-defined]
    _indexes()
    for statement in _POSTGRES_GUARDS if on_postgres else _SQLITE_GUARDS:
        op.execute(statement)


def _columns() -> None:
    table = "messaging_sessions"
    op.add_column(table, sa.Column("title", TEXT))
    op.add_column(table, sa.Column("version", INTEGER, server_default=sa.text("0"), nullable=False))
    op.add_column(table, sa.Column("deactivated_at", TIME))
    op.add_column(table, sa.Column("deactivated_reason", TEXT))
    op.add_column(table, sa.Column("metadata", JSON))


def _indexes() -> None:
    active: dict[str, Any] = {"sqlite_where": sa.text("active = 1"), "postgresql_where": sa.text("active")}
    newest: list[Any] = [sa.text("last_activity_at DESC"), sa.text("id DESC")]
    place: list[Any] = ["platform", "channel_id", sa.text("coalesce(thread_id, '')")]
    table = "messaging_sessions"
    op.create_index("uq_messaging_sessions_active_key", table, [*place, "user_id"], unique=True, **active)
    op.create_index("ix_messaging_sessions_active_place", table, [*place, *newest], **active)
    op.create_index("ix_messaging_sessions_activity", table, newest)
    has_agent = sa.text("agent_session_id IS NOT NULL")
    op.create_index(
        "ix_messaging_sessions_agent",
        table,
        ["agent_session_id", sa.text("created_at DESC")],
        sqlite_where=has_agent,
        postgresql_where=has_agent,
    )
    op.create_index("ix_messaging_messages_order", "messaging_messages", ["session_id", "id"])
    has_platform_id = sa.text("platform_message_id IS NOT NULL")
    op.create_index(
        "ix_messaging_messages_platform_id",
        "messaging_messages",
        ["platform_message_id", "session_id"],
        sqlite_where=has_platform_id,
        postgresql_where=has_platform_id,
    )
