"""The second revision: chat sessions that share their key."""

from __future__ import annotations

import logging
import threading
from pathlib import Path
from typing import Any

import psycopg
import pytest
from support.each import with_each
from support.migrations.snapshot import differences
from support.migrations.support import Place, catalogue, load

from lastlight_state.db.schema.base import VERSION_TABLE
from lastlight_state.errors import SchemaMismatch
from lastlight_state.migrations import check, current, migrate, scripts, upgrade

SEED = Path(__file__).parents[1] / "fixtures" / "legacy" / "seed.sql"
REVISION = load(scripts.folder() / "versions" / "0002_lastlight_state.py")
SECOND = REVISION.revision
COLUMNS = "id, platform, channel_id, thread_id, user_id, created_at, last_activity_at, active"

Rows = list[tuple[Any, ...]]

SHARED: Rows = [  # id, channel, thread, created, active until; the one that must win carries a star
    ("two-old", "C2", None, 1, 5),
    ("two-new*", "C2", "", 1, 6),
    ("three-b", "C3", None, 2, 7),
    ("three-c*", "C3", None, 3, 7),
    ("three-a", "C3", None, 3, 6),
    ("five-a", "C5", None, 1, 1),
    ("five-d", "C5", None, 1, 9),
    ("five-e*", "C5", None, 1, 9),
    ("five-b", "C5", "", 9, 8),
    ("five-c", "C5", None, 1, 3),
]
OTHERS: Rows = [
    ("alone", "C1", None, 1, 1),
    ("threaded", "C2", "T", 1, 1),
]


def moment(minute: int) -> str:
    return f"2026-02-03T12:{minute:02}:00.000Z"


def insert(connection: Any, table_rows: Rows, *, active: Any = "1", platform: str = "slack") -> None:
    """Sessions of one user. Plain SQL, as a program of the previous release would write it."""
    true = {"1": "true", "0": "false"} if isinstance(connection, psycopg.Connection) else {}
    for key, channel, thread, created, seen in table_rows:
        values = [key, platform, channel, thread, "U", moment(created), moment(seen)]
        listed = ", ".join("NULL" if value is None else f"'{value}'" for value in values)
        connection.execute(f"INSERT INTO messaging_sessions ({COLUMNS}) VALUES ({listed}, {true.get(active, active)})")


@pytest.fixture
def before(place: Place) -> Any:
    """A database at 0001 whose keys are shared by two, three and five active sessions; a plain connection to it."""
    place.at("0001")
    connection = place.raw()
    insert(connection, SHARED)
    insert(connection, OTHERS)
    insert(connection, [("retired", "C2", None, 1, 59)], active="0")
    insert(connection, [("unknown", "C2", None, 1, 59)], active="NULL")
    for key, *_ in SHARED:
        said = f"'{key}', 'user', 'hello', '{moment(1)}'"
        connection.execute(f"INSERT INTO messaging_messages (session_id, role, content, timestamp) VALUES ({said})")
    return connection


def active(connection: Any) -> set[str]:
    rows = connection.execute("SELECT id FROM messaging_sessions WHERE CAST(active AS INTEGER) = 1").fetchall()
    return {key for (key,) in rows}


def test_the_newest_of_each_key_stays_active(place: Place, before: Any) -> None:
    """messaging M-6: by activity, then by creation, then by id; an absent thread is an empty one."""
    migrate(place.backend())
    assert active(before) == {key for key, *_ in SHARED if key.endswith("*")} | {key for key, *_ in OTHERS}


def test_retired_sessions_say_why_and_nothing_else_changes(place: Place, before: Any) -> None:
    """messaging M-6: no row and no message is lost, NULL stays NULL."""
    untouched = f"SELECT {COLUMNS.removesuffix(', active')}, message_count FROM messaging_sessions ORDER BY id"
    rows, messages = before.execute(untouched).fetchall(), all_messages(before)
    migrate(place.backend())
    assert before.execute(untouched).fetchall() == rows
    assert all_messages(before) == messages
    retired = before.execute(
        "SELECT id, version, CAST(active AS INTEGER) FROM messaging_sessions"
        " WHERE deactivated_reason = 'duplicate' AND deactivated_at IS NOT NULL"
    ).fetchall()
    assert sorted(retired) == sorted((key, 1, 0) for key, *_ in SHARED if not key.endswith("*"))
    others = (
        "SELECT id, version, CAST(active AS INTEGER) FROM messaging_sessions"
        " WHERE deactivated_reason IS NULL AND id IN ('retired', 'unknown')"
    )
    assert sorted(before.execute(others).fetchall()) == [("retired", 0, 0), ("unknown", 0, None)]


def all_messages(connection: Any) -> Any:
    query = "SELECT id, session_id, role, content, timestamp FROM messaging_messages ORDER BY id"
    return connection.execute(query).fetchall()


def test_reducing_again_changes_nothing(place: Place, before: Any) -> None:
    """messaging M-6."""
    migrate(place.backend())
    statements = [sql for sql in REVISION.additive_sql if sql.startswith("UPDATE ")]
    (again,) = [sql for sql in statements if ("true" in sql) == (place.name == "postgresql")]
    assert before.execute(again).rowcount == 0


def test_the_plan_counts_before_anything_is_written(place: Place, before: Any) -> None:
    """messaging M-6."""
    backend = place.backend()
    plan = check(backend)
    assert [planned.revision for planned in plan.revisions if planned.rewrites] == [SECOND]
    (rewrite,) = plan.revisions[0].rewrites
    assert (rewrite.table, rewrite.rows, rewrite.groups) == ("messaging_sessions", 7, 3)
    assert "active" in rewrite.columns
    assert current(backend) == "0001"
    assert len(active(before)) == len(SHARED) + len(OTHERS)


def test_the_run_logs_how_many_and_which(place: Place, before: Any, caplog: pytest.LogCaptureFixture) -> None:
    """messaging M-6."""
    with caplog.at_level(logging.WARNING, "lastlight_state.migrations"):
        migrate(place.backend())
    (line,) = [record.getMessage() for record in caplog.records if record.name == "lastlight_state.migrations"]
    assert line.startswith(
        f"revision {SECOND} retires chat sessions that share their key with a newer active one: 7 of "
    )
    assert line.endswith(": five-a, five-b, five-c, five-d, three-a, three-b, two-old")


@pytest.mark.parametrize(("retired", "end"), [(20, "s18, s19"), (24, "s18, s19 and 4 more")])
def test_at_most_twenty_are_named(place: Place, caplog: pytest.LogCaptureFixture, retired: int, end: str) -> None:
    """messaging M-6: up to 20 ids."""
    place.at("0001")
    insert(place.raw(), [(f"s{number:02}", "C", None, 1, number) for number in range(retired + 1)])
    with caplog.at_level(logging.WARNING, "lastlight_state.migrations"):
        migrate(place.backend())
    assert caplog.records[-1].getMessage().endswith(end)


def test_without_duplicates_nothing_is_said(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    """messaging M-6."""
    place.at("0001")
    insert(place.raw(), OTHERS)
    with caplog.at_level(logging.WARNING, "lastlight_state.migrations"):
        migrate(place.backend())
    assert [record for record in caplog.records if record.name == "lastlight_state.migrations"] == []


def test_a_failure_after_the_reduction_leaves_nothing_of_it(place: Place, before: Any) -> None:
    """messaging M-6."""
    before.execute("CREATE INDEX ix_messaging_sessions_activity ON messaging_sessions (id)")
    backend = place.backend()
    schema, sessions = catalogue(backend), active(before)
    with pytest.raises(SchemaMismatch, match="ix_messaging_sessions_activity"):
        migrate(backend)
    assert current(backend) == "0001"
    assert differences(catalogue(backend), schema) == []
    assert active(before) == sessions


def test_a_key_that_cannot_be_reduced_is_named_and_nothing_changes(sqlite_place: Place) -> None:
    """messaging M-6, SQLite: the original's own table admits rows without an id, which nothing tells apart."""
    connection = sqlite_place.raw()
    connection.executescript(SEED.read_text())
    connection.execute(f"CREATE TABLE {VERSION_TABLE} (version_num VARCHAR(32) NOT NULL)")
    connection.execute(f"INSERT INTO {VERSION_TABLE} VALUES ('0001')")
    insert(connection, [(None, "C", None, 1, 1), (None, "C", None, 1, 1)])
    backend = sqlite_place.backend()
    with pytest.raises(SchemaMismatch, match="share a key are active") as caught:
        migrate(backend)
    assert caught.value.differences == ("'slack', 'C', '', 'U'",)
    assert current(backend) == "0001"


@with_each("thread", [None, ""])
def test_a_second_active_session_of_a_key_is_refused(place: Place, thread: str | None) -> None:
    """messaging M-1: also without a thread."""
    place.at()
    connection = place.raw()
    insert(connection, [("first", "C", None, 1, 1)])
    with pytest.raises(Exception, match=r"(?i)unique"):
        insert(connection, [("second", "C", thread, 1, 1)])
    insert(connection, [("third", "C", thread, 1, 1)], active="0")
    assert active(connection) == {"first"}


def test_a_writer_of_the_previous_release_waits_and_meets_the_index(postgres_place: Place) -> None:
    """messaging M-6, case 43, Postgres: no duplicate slips in between the reduction and the index."""
    backend = postgres_place.at("0001")
    writer, watcher = postgres_place.raw(), postgres_place.raw()
    insert(watcher, [("first", "C", None, 1, 1)])
    failures: list[BaseException] = []

    def write() -> None:
        try:
            insert(writer, [("second", "C", None, 1, 2)])
        except psycopg.Error as error:
            failures.append(error)

    with backend.migration(5) as connection:
        upgrade(connection)
        thread = threading.Thread(target=write)
        thread.start()
        waiting = "SELECT count(*) FROM pg_locks WHERE NOT granted AND pid = %s"
        while watcher.execute(waiting, (writer.info.backend_pid,)).fetchone() == (0,):
            assert thread.is_alive()
    thread.join()
    assert [type(error) for error in failures] == [psycopg.errors.UniqueViolation]
    assert active(watcher) == {"first"}
