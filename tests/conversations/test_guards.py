"""What plain SQL cannot do to conversations."""

from __future__ import annotations

import sqlite3
from typing import Any

import pytest
from support.conversations.talk import begun, said
from support.each import with_each
from support.workflows.steps import Raw

from lastlight_state import StateStore
from lastlight_state.conversations import NewSession, Provenance
from lastlight_state.testing import Database

ORDERS = ("messages", "progressions", "progression_links", "sessions", "branches", "session_transitions")
EXCHANGE = ("exchange_inboxes", "exchange_deliveries", "exchange_members")
WORDS = ("message_types", "invocation_kinds", "source_kinds")


@with_each("table", [*ORDERS, *EXCHANGE, *WORDS])
def test_nothing_can_be_deleted(every_backend: StateStore, raw: Raw, table: str) -> None:
    """conversations CV-15, CV-25."""
    if not every_backend.conversations.sessions.list().items:
        _ended(every_backend)
    with pytest.raises(Exception, match="append-only"):
        raw(f"DELETE FROM {table}")


def test_a_history_never_changes(every_backend: StateStore, raw: Raw) -> None:
    """conversations CV-15."""
    _ended(every_backend)
    with pytest.raises(Exception, match="never change"):
        raw("UPDATE session_transitions SET status = 'completed'")


@pytest.mark.parametrize("emptied", ["actor", "reason_summary", "evidence"])
def test_of_a_history_what_was_said_of_a_change_can_be_emptied_with_a_permit(
    every_backend: StateStore, raw: Raw, emptied: str
) -> None:
    """conversations CV-15: nothing else of it, and to nothing else than NULL."""
    _ended(every_backend)
    with pytest.raises(Exception, match="never change"):
        raw(f"UPDATE session_transitions SET {emptied} = NULL")
    raw("INSERT INTO maintenance_permits (receipt_id) VALUES ('r')")
    raw(f"UPDATE session_transitions SET {emptied} = NULL")
    for change in (
        f"{emptied} = '{{}}'",
        "status = 'completed'",
        "reason_code = 'a.b.c'",
        f"{emptied} = NULL, seq = 9",
    ):
        with pytest.raises(Exception, match="never change"):
            raw(f"UPDATE session_transitions SET {change}")
    raw("DELETE FROM maintenance_permits")


@with_each("table", WORDS)
def test_known_words_never_change(every_backend: StateStore, raw: Raw, table: str) -> None:
    """conversations CV-1."""
    column = "lion_class" if table == "message_types" else "word"
    with pytest.raises(Exception, match="never change"):
        raw(f"UPDATE {table} SET {column} = 'x'")


@pytest.mark.parametrize("change", ["parent_branch_id = 'main'", "forked_at_ord = 0", "fork_depth = 7"])
def test_where_a_branch_comes_from_never_changes(every_backend: StateStore, raw: Raw, change: str) -> None:
    """conversations CV-24."""
    begun(every_backend, "a")
    with pytest.raises(Exception, match="never changes"):
        raw(f"UPDATE branches SET {change}")


def test_a_session_whose_fork_is_needed_elsewhere_cannot_go(every_backend: StateStore, raw: Raw) -> None:
    """conversations CV-25: not even with a permit."""
    c = every_backend.conversations
    branch = begun(every_backend, "a")
    c.lineage.fork("main", session_id=c.sessions.create().id)
    if raw.name == "sqlite":
        raw("PRAGMA foreign_keys = ON")
    raw("INSERT INTO maintenance_permits (receipt_id) VALUES ('r')")
    with pytest.raises(Exception, match=r"(?i)foreign key"):
        raw("DELETE FROM sessions WHERE id = ?", branch.session_id)
    raw("DELETE FROM maintenance_permits")


def test_a_word_that_a_later_version_brings_is_read(every_backend: StateStore, raw: Raw) -> None:
    """conversations CV-1: and an unknown one is refused."""
    sessions = every_backend.conversations.sessions
    sessions.create(NewSession("s", provenance=Provenance(invocation_kind="agent")))
    with pytest.raises(Exception, match=r"(?i)foreign key|unknown invocation_kind"):
        raw("UPDATE sessions SET invocation_kind = 'later'")
    raw("INSERT INTO invocation_kinds (word) VALUES ('later')")
    raw("UPDATE sessions SET invocation_kind = 'later'")
    assert sessions.get("s").invocation_kind == "later"


def test_a_client_without_foreign_keys_is_refused_as_well(sqlite_database: Database) -> None:
    """conversations CV-1: NULL passes, and a word that the tables have."""
    session = sqlite_database.open().conversations.sessions.create()
    plain = sqlite3.connect(sqlite_database.url.removeprefix("sqlite:///"))
    insert = "INSERT INTO sessions (id, created_at, progression_id, updated_at, {0}) SELECT ?, created_at, progression_id, updated_at, ? FROM sessions LIMIT 1"  # noqa: E501
    for column in ("invocation_kind", "source_kind"):
        for sql, values in ((insert.format(column), ("x", "x")), (f"UPDATE sessions SET {column} = ?", ("x",))):
            _refused(plain, sql, values, column)
        plain.execute(insert.format(column), (f"null-{column}", None))
        plain.execute(f"UPDATE sessions SET {column} = NULL")
    assert plain.execute("SELECT count(*) FROM sessions").fetchone() == (3,)
    plain.execute("ROLLBACK")
    plain.close()
    assert session.source_kind == "live"


def test_nobody_replaces_a_message_by_its_id(sqlite_database: Database) -> None:
    """conversations CV-25: not even by INSERT OR REPLACE."""
    store = sqlite_database.open()
    store.conversations.messages.create(said("a")[0])
    raw = sqlite_database.raw()
    with pytest.raises(sqlite3.IntegrityError, match="never replaced"):
        raw.execute(
            "INSERT OR REPLACE INTO messages (id, created_at, role, content) VALUES ('a', ?, 'user', '1')",
            ["2026-02-03T12:34:56.789Z"],
        )


def _ended(store: StateStore) -> None:
    branch = begun(store, "a")
    store.conversations.lifecycle.transition(branch.session_id, "failed")
    store.conversations.exchange.join("news", "ana")
    store.conversations.exchange.send(said("letter")[0], to="ana")


def _refused(plain: sqlite3.Connection, sql: str, values: Any, column: str) -> None:
    with pytest.raises(sqlite3.IntegrityError, match=f"unknown {column}"):
        plain.execute(sql, values)
