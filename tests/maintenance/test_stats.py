from __future__ import annotations

import sqlite3
from contextlib import closing
from datetime import timedelta
from pathlib import Path

from lastlight_state.backends import connect
from lastlight_state.conversations import NewSession
from lastlight_state.files.agent_log import Cwd
from lastlight_state.messaging import ConversationKey
from lastlight_state.migrations import migrate
from lastlight_state.migrations.metadata import METADATA
from lastlight_state.settings import Settings
from lastlight_state.store import StateStore
from lastlight_state.testing.databases import Database
from lastlight_state.workflows import Gate, Trigger


def rows(store: StateStore) -> dict[str, int]:
    return {table.name: table.rows for table in store.maintenance.stats.collect().tables}


def test_every_table_of_the_schema_is_counted(every_backend: StateStore) -> None:
    """maintenance OP-6, OP-10."""
    assert set(rows(every_backend)) == set(METADATA.tables)


def test_rows_are_counted_by_table_and_status(every_backend: StateStore) -> None:
    """maintenance OP-10."""
    runs = every_backend.workflows.runs
    ids = [runs.create("wf", trigger=Trigger("t"), phase="p").id for _ in range(3)]
    runs.finish(ids[0], "succeeded")
    every_backend.workflows.approvals.pause(ids[1], Gate("g", "Go?"))
    stats = every_backend.maintenance.stats.collect()
    assert rows(every_backend)["workflow_runs"] == 3
    assert rows(every_backend)["run_transitions"] == 5
    assert {count.status: count.rows for count in stats.statuses["workflow_runs"]} == {
        "paused": 1,
        "running": 1,
        "succeeded": 1,
    }
    assert [(count.status, count.rows) for count in stats.statuses["workflow_approvals"]] == [("pending", 1)]


def test_sessions_are_active_or_not_and_null_counts_as_not(database: Database) -> None:
    """maintenance OP-10, messaging M-6, M-71."""
    store = database.open()
    for user in ("ana", "bo", "cy"):
        store.messaging.sessions.resume(ConversationKey("slack", "C1", user))
    database.raw().execute("UPDATE messaging_sessions SET active = NULL WHERE user_id = 'cy'")
    found = store.maintenance.stats.collect().statuses["messaging_sessions"]
    assert {count.status: count.rows for count in found} == {"active": 2, "inactive": 1}


def test_conversations_and_their_branches_are_counted_by_status(every_backend: StateStore) -> None:
    """maintenance OP-10: None is one that was never stated."""
    c = every_backend.conversations
    for status in (None, "running"):
        c.sessions.create(NewSession(status=status))
    session = c.sessions.create(NewSession(status="running"))
    c.branches.create(session.id)
    c.lifecycle.transition(session.id, "failed", branch_id=c.branches.create(session.id).id)
    statuses = every_backend.maintenance.stats.collect().statuses
    counted = {name: {one.status: one.rows for one in statuses[name]} for name in ("sessions", "branches")}
    assert counted == {"sessions": {None: 1, "running": 2}, "branches": {None: 1, "failed": 1}}


def test_messages_are_counted_by_role_and_age_with_bounds_included(database: Database) -> None:
    """maintenance OP-10."""
    store = database.open()
    session = store.messaging.sessions.resume(ConversationKey("slack", "C1", "ana")).session.id
    now = database.clock.now()
    days = (0, 1, 1.5, 7, 8, 30, 31, 400)
    for i, age in enumerate(days):
        store.messaging.messages.append(
            session, role="user" if i % 2 else "assistant", content="x", timestamp=now - timedelta(days=age)
        )
    messages = store.maintenance.stats.collect().messages
    assert messages.by_role == {"user": 4, "assistant": 4}
    assert messages.by_age == {"<=1": 2, "<=7": 2, "<=30": 2, "older": 2}
    assert messages.oldest == now - timedelta(days=400)


def test_line_files_are_counted_and_measured(database: Database) -> None:
    """maintenance OP-10."""
    store = database.open()
    assert store.maintenance.stats.collect().line_files.newest is None
    for name in ("one", "two"):
        with store.agent_log.writer.open(place=Cwd("/work"), session_id=name, prompt="x") as log:
            log.feed({"type": "session", "id": name})
    (database.state_dir / "agent-sessions" / "notes.txt").write_text("no log", encoding="utf-8")
    found = store.maintenance.stats.collect().line_files
    logs = sorted((database.state_dir / "agent-sessions").rglob("*.jsonl"))
    assert (found.files, found.bytes) == (2, sum(path.stat().st_size for path in logs))
    assert found.newest is not None
    assert found.newest.tzinfo is not None


def test_size_settings_and_place_are_told_in_the_words_of_the_database(database: Database) -> None:
    """maintenance OP-10."""
    stats = database.open().maintenance.stats.collect()
    assert stats.exists
    assert stats.size_bytes > 0
    assert stats.backend == database.name
    assert (stats.schema_state.state, stats.schema_state.revision) == ("current", stats.schema_state.newest)
    if database.name == "sqlite":
        assert set(stats.settings) == {
            *("journal_mode", "wal_autocheckpoint", "busy_timeout", "synchronous", "foreign_keys")
        }
        assert stats.settings["journal_mode"] == "wal"
        assert (stats.free_pages, stats.free_bytes) == (0, 0)
        assert all(table.bytes is None for table in stats.tables)
    else:
        assert {"default_transaction_isolation", "synchronous_commit", "TimeZone"} <= set(stats.settings)
        assert 1 <= int(stats.settings["connections_used"]) <= int(stats.settings["max_connections"])
        assert all((table.bytes or 0) > 0 for table in stats.tables)


def test_an_autocheckpoint_that_is_off_shows(tmp_path: Path) -> None:
    """backends B-20."""
    settings = Settings(url=str(tmp_path / "a.db"), wal_autocheckpoint=0)
    with StateStore.open(settings=settings) as store:
        stats = store.maintenance.stats.collect()
    assert stats.settings["wal_autocheckpoint"] == 0


def test_estimates_are_marked_as_such_where_the_database_has_some(fresh_database: Database) -> None:
    """maintenance OP-10."""
    store = fresh_database.open()
    for _ in range(5):
        store.workflows.runs.create("wf", trigger=Trigger("t"), phase="p")
    fresh_database.raw().execute("ANALYZE workflow_runs")
    tables = {table.name: table for table in store.maintenance.stats.collect(exact=False).tables}
    assert tables["workflow_runs"].rows == 5
    assert tables["workflow_runs"].estimated is (fresh_database.name == "postgresql")
    assert not any(table.estimated for table in store.maintenance.stats.collect().tables)


def test_without_a_database_all_is_zero_and_none_appears(tmp_path: Path) -> None:
    """maintenance OP-10."""
    settings = Settings(url=str(tmp_path / "none.db"), read_only=True, state_dir=tmp_path)
    with StateStore(connect(settings), settings) as store:
        stats = store.maintenance.stats.collect()
    assert not stats.exists
    assert stats.schema_state.state == "empty"
    assert (stats.size_bytes, stats.tables, stats.messages.oldest, stats.version) == (0, (), None, None)
    assert list(tmp_path.iterdir()) == []


def test_a_database_without_any_table_of_ours_is_measured_and_nothing_counted(
    tmp_path: Path, postgres_url: str
) -> None:
    """maintenance OP-5, OP-10."""
    file = tmp_path / "foreign.db"
    with closing(sqlite3.connect(file)) as raw:
        raw.execute("CREATE TABLE recipes (name TEXT)")
    for url in (str(file), postgres_url):
        settings = Settings(url=url, read_only=True, state_dir=tmp_path)
        with StateStore(connect(settings), settings) as store:
            stats = store.maintenance.stats.collect()
        assert stats.exists
        assert stats.size_bytes > 0
        assert (stats.schema_state.state, stats.tables, dict(stats.statuses)) == ("empty", (), {})


def test_a_database_that_is_behind_is_counted_as_far_as_it_goes(tmp_path: Path, postgres_url: str) -> None:
    """maintenance OP-5, OP-10."""
    for url in (str(tmp_path / "old.db"), postgres_url):
        settings = Settings(url=url, state_dir=tmp_path)
        with StateStore(connect(settings), settings) as store:
            migrate(store.backend, "0001")
            stats = store.maintenance.stats.collect()
        assert stats.schema_state.state == "behind"
        counted = {table.name for table in stats.tables}
        assert "workflow_runs" in counted
        assert "run_transitions" not in counted
        assert set(stats.statuses) == {"workflow_runs", "workflow_approvals", "messaging_sessions"}


def test_the_password_is_in_no_field(database: Database) -> None:
    """maintenance OP-10, OP-70."""
    url = database.url.replace("postgres@", "postgres:wonderland@")
    with StateStore.open(url, state_dir=database.state_dir) as store:
        assert "wonderland" not in store.maintenance.stats.collect().model_dump_json()
