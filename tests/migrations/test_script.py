"""Upgrades as scripts: ``migrate --sql``, executed as it stands."""

from __future__ import annotations

import re
import sqlite3

import psycopg
import pytest
from support.each import with_each
from support.migrations.originals import SEED, original
from support.migrations.populate import contents, fill
from support.migrations.snapshot import differences
from support.migrations.support import Place, catalogue, newest, with_connection

from lastlight_state.errors import NewerSchema, NotSupported, SchemaMismatch
from lastlight_state.migrations import current, migrate, script, scripts

HEAD = scripts.head()


def execute(place: Place, text: str) -> None:
    """Execute a whole script, up to its first error."""
    raw = place.raw()
    if place.name == "sqlite":
        raw.executescript(text)
    else:
        raw.execute(text)


def session(key: str, minute: int) -> str:
    moment = f"'2026-02-03T12:{minute:02}:00.000Z'"
    return (
        "INSERT INTO messaging_sessions (id, platform, channel_id, user_id, created_at, last_activity_at)"
        f" VALUES ({key}, 'slack', 'C', 'U', {moment}, {moment})"
    )


@with_each("found", [None, *scripts.revisions()[:-1]])
def test_a_script_makes_what_migrate_makes(place: Place, found: str | None) -> None:
    """migrations MG-62: from every revision, on both databases, without drift."""
    backend = place.backend() if found is None else place.at(found)
    text = script(backend)
    assert text
    execute(place, text)
    assert current(backend) == HEAD
    assert script(backend) is None
    assert differences(catalogue(backend), newest(backend)) == []


@pytest.mark.slow
def test_a_script_keeps_every_row(place: Place) -> None:
    """migrations MG-62."""
    backend = place.at("0001")
    with_connection(backend, lambda connection: fill(connection, "row"))
    columns = {"executions": ["id", "cost_usd"], "workflow_runs": ["id", "context"], "messaging_messages": ["content"]}
    before = with_connection(backend, lambda connection: contents(connection, columns))
    execute(place, script(backend) or "")
    assert with_connection(backend, lambda connection: contents(connection, columns)) == before


def test_a_script_goes_as_far_as_it_was_asked(place: Place) -> None:
    """migrations MG-62: ``--to``."""
    backend = place.backend()
    execute(place, script(backend, "0001") or "")
    assert current(backend) == "0001"
    assert script(backend, "0001") is None
    execute(place, script(backend, scripts.revisions()[1]) or "")
    assert current(backend) == scripts.revisions()[1]
    assert script(backend, "0001") is None


def test_writing_a_script_changes_nothing(place: Place) -> None:
    """maintenance OP-2."""
    script(place.backend(read_only=True))
    assert current(place.backend()) is None
    assert place.name != "sqlite" or not place.path.exists()


def test_a_script_retires_the_sessions_that_share_a_key(place: Place) -> None:
    """messaging M-6."""
    backend = place.at("0001")
    raw = place.raw()
    for minute, key in enumerate(("'older'", "'newest'")):
        raw.execute(session(key, minute))
    execute(place, script(backend) or "")
    retired = "SELECT id FROM messaging_sessions WHERE deactivated_reason = 'duplicate'"
    assert raw.execute(retired).fetchall() == [("older",)]


def test_a_script_stops_where_rows_keep_it_from_going_on(sqlite_place: Place) -> None:
    """messaging M-6, SQLite: rows without an id, which nothing tells apart."""
    raw = original(sqlite_place, SEED.replace("CREATE UNIQUE INDEX", "CREATE INDEX"))
    raw.execute("CREATE TABLE lastlight_state_version (version_num VARCHAR(32) NOT NULL)")
    raw.execute("INSERT INTO lastlight_state_version VALUES ('0001')")
    for _ in range(2):
        raw.execute(session("NULL", 1))
    backend = sqlite_place.backend()
    with pytest.raises(sqlite3.IntegrityError, match="chat sessions that share a key are active"):
        execute(sqlite_place, script(backend) or "")
    sqlite_place.close()
    assert current(sqlite_place.backend()) == "0001"


def test_a_script_stops_at_a_condition_on_postgres(postgres_place: Place) -> None:
    """messaging M-6, Postgres: here the condition is one that the reduction cannot meet."""
    backend = postgres_place.at("0001")
    raw = postgres_place.raw()
    for minute, key in enumerate(("'older'", "'newest'")):
        raw.execute(session(key, minute))
    text = "\n".join(line for line in (script(backend) or "").splitlines() if not line.startswith("UPDATE messaging"))
    with pytest.raises(psycopg.Error, match="share a key are active"):
        raw.execute(text)
    raw.execute("ROLLBACK")
    assert current(backend) == "0001"


def test_a_script_for_another_revision_fails_and_changes_nothing(place: Place) -> None:
    """migrations MG-62: somebody else was faster."""
    backend = place.at("0001")
    text = script(backend) or ""
    migrate(backend)
    before = catalogue(backend)
    with pytest.raises((sqlite3.Error, psycopg.Error), match=r"(?i)duplicate column|already exists"):
        execute(place, text)
    place.close()
    assert differences(catalogue(place.backend()), before) == []


def test_a_script_makes_the_schema_and_binds_functions_to_it(postgres_place: Place) -> None:
    """migrations MG-29, Postgres: a schema with an odd name."""
    name = 'Odd "name", it\'s 100%'
    backend = postgres_place.backend(schema=name)
    execute(postgres_place, script(backend) or "")
    assert current(backend) == HEAD
    raw = postgres_place.raw()
    bound = raw.execute("SELECT proconfig FROM pg_proc WHERE proname = 'lastlight_refuse'").fetchone()
    assert bound == (['search_path="Odd ""name"", it\'s 100%", pg_temp'],)
    assert current(postgres_place.backend()) is None
    assert "CREATE SCHEMA" not in (script(postgres_place.backend(schema=name), "head") or "")


def test_a_script_waits_for_another_migration_for_as_long_as_was_asked(postgres_place: Place) -> None:
    """migrations MG-26, Postgres."""
    backend = postgres_place.backend()
    for seconds, waits in ((0.4, ("400", "400")), (40, ("40000", "5000"))):
        assert tuple(re.findall("lock_timeout = ([0-9]+)", script(backend, lock_timeout=seconds) or "")) == waits
    text = script(backend, lock_timeout=0.05) or ""
    with postgres_place.backend().migration(1), pytest.raises(psycopg.errors.LockNotAvailable):
        execute(postgres_place, text)


def test_what_migrate_refuses_has_no_script(place: Place) -> None:
    """migrations MG-63."""
    backend = place.at()
    raw = place.raw()
    raw.execute("UPDATE lastlight_state_version SET version_num = '9999'")
    raw.execute("INSERT INTO lastlight_meta (key, value) VALUES ('min_reader', '9000')")
    with pytest.raises(NewerSchema):
        script(backend)
    raw.execute("UPDATE lastlight_state_version SET version_num = 'abc'")
    with pytest.raises(SchemaMismatch):
        script(backend)


def test_a_database_of_the_original_has_no_script(sqlite_place: Place) -> None:
    """migrations MG-63: it must be looked at while it is taken over."""
    original(sqlite_place, SEED)
    with pytest.raises(NotSupported, match="run migrate without --sql"):
        script(sqlite_place.backend())
