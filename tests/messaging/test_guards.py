"""What the database refuses about chat sessions and messages, asked through a plain driver connection."""

from __future__ import annotations

from typing import Any

import pytest
from support.each import with_each
from support.refusal import refused

from lastlight_state.testing.databases import Database

AT = "'2026-02-03T12:34:56.789Z'"


@pytest.fixture
def raw(database: Database) -> Any:
    """A plain connection to a database with one session and one message."""
    connection = database.raw()
    connection.execute(
        "INSERT INTO messaging_sessions (id, platform, channel_id, user_id, created_at, last_activity_at)"
        f" VALUES ('s', 'slack', 'C', 'U', {AT}, {AT})"
    )
    connection.execute(
        f"INSERT INTO messaging_messages (session_id, role, content, timestamp) VALUES ('s', 'user', 'hello', {AT})"
    )
    return connection


@with_each("permit", [None, "r1", "reset"])
@with_each("assignment", ["content = 'other'", "role = 'assistant'", "timestamp = '2020-01-01T00:00:00.000Z'"])
def test_what_was_said_never_changes(raw: Any, assignment: str, permit: str | None) -> None:
    """messaging M-3: with and without a permit."""
    raw.execute("BEGIN")
    if permit:
        raw.execute(f"INSERT INTO maintenance_permits (receipt_id) VALUES ('{permit}')")
    with refused():
        raw.execute(f"UPDATE messaging_messages SET {assignment}")
    raw.execute("ROLLBACK")
    assert raw.execute("SELECT role, content FROM messaging_messages").fetchall() == [("user", "hello")]


@pytest.mark.parametrize("table", ["messaging_sessions", "messaging_messages"])
def test_sessions_and_messages_are_deleted_under_a_permit_alone(raw: Any, table: str) -> None:
    """messaging M-3, maintenance OP-8."""
    with refused():
        raw.execute(f"DELETE FROM {table}")
    raw.execute("BEGIN")
    raw.execute("INSERT INTO maintenance_permits (receipt_id) VALUES ('r1')")
    raw.execute("DELETE FROM messaging_messages")
    raw.execute("DELETE FROM messaging_sessions")
    raw.execute("DELETE FROM maintenance_permits")
    raw.execute("COMMIT")
    assert raw.execute(f"SELECT count(*) FROM {table}").fetchone() == (0,)


@pytest.mark.parametrize("table", ["messaging_sessions", "messaging_messages"])
def test_sessions_and_messages_are_not_truncated(database: Database, raw: Any, table: str) -> None:
    """maintenance OP-8: Postgres has a statement for it, SQLite takes DELETE without WHERE for it."""
    with refused():
        raw.execute(f"TRUNCATE {table} CASCADE" if database.name == "postgresql" else f"DELETE FROM {table}")


def test_a_session_may_change(raw: Any) -> None:
    """messaging M-3: only messages are fixed."""
    raw.execute("UPDATE messaging_sessions SET title = 'talk', version = version + 1")
    assert raw.execute("SELECT title, version FROM messaging_sessions").fetchall() == [("talk", 1)]
