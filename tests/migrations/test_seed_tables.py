from __future__ import annotations

import re
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from support.migrations.support import Place, tables

from lastlight_state.db.schema.base import VERSION_TABLE
from lastlight_state.migrations import migrate
from lastlight_state.migrations.state import SEED_TABLES

SEED = Path(__file__).parents[1] / "fixtures" / "legacy" / "seed.sql"
POSTGRES_TYPES = {"TEXT": "text", "INTEGER": "bigint", "REAL": "double precision"}
FLAGS = {"success", "enabled", "active"}
TIMES = re.compile(r".*_at|timestamp")
JSON = {"phase_history", "context", "scratch", "node_statuses"}


@pytest.fixture
def original() -> Any:
    """A database made by the seed's own statements."""
    connection = sqlite3.connect(":memory:", isolation_level=None)
    connection.executescript(SEED.read_text())
    yield connection
    connection.close()


def columns(connection: Any, table: str) -> list[tuple[Any, ...]]:
    """Name, type, NOT NULL, default and place in the key. A key is never NULL, which the seed's own text forgets."""
    rows = connection.execute(f"PRAGMA table_info({table})").fetchall()
    return [(name, kind, bool(needed or key), default, key) for _, name, kind, needed, default, key in rows]


def indexes(connection: Any, table: str) -> dict[str, Any]:
    listed = connection.execute(f"PRAGMA index_list({table})").fetchall()
    return {
        name: (unique, partial, connection.execute(f"PRAGMA index_xinfo({name})").fetchall())
        for _, name, unique, origin, partial in listed
        if origin == "c"
    }


def test_the_first_revision_makes_the_seven_tables_and_no_other(place: Place) -> None:
    """migrations MG-4: `migrate --to 0001` on an empty database."""
    backend = place.backend()
    assert migrate(backend, "0001").revisions == ("0001",)
    assert tables(backend) == {*SEED_TABLES, VERSION_TABLE}


@pytest.mark.parametrize("table", SEED_TABLES)
def test_the_first_revision_is_what_the_original_made(sqlite_place: Place, original: Any, table: str) -> None:
    """migrations MG-4, messaging case 45, schedules case 50: columns in order, types, defaults, indexes, directions."""
    sqlite_place.at("0001")
    ours = sqlite_place.raw()
    assert columns(ours, table) == columns(original, table)
    assert indexes(ours, table) == indexes(original, table)
    keys = "SELECT * FROM pragma_foreign_key_list(?)"
    assert ours.execute(keys, (table,)).fetchall() == original.execute(keys, (table,)).fetchall()


def test_partial_indexes_have_the_original_predicates(sqlite_place: Place, original: Any) -> None:
    """messaging case 45."""
    sqlite_place.at("0001")
    query = "SELECT sql FROM sqlite_master WHERE name = 'idx_msg_sessions_unique_active'"
    (ours,), (theirs,) = (connection.execute(query).fetchone() for connection in (sqlite_place.raw(), original))
    assert ours.partition(" WHERE ")[2] == theirs.partition(" WHERE ")[2] == "active = 1"


def test_ids_of_messages_are_never_reused(sqlite_place: Place) -> None:
    """messaging M-72: AUTOINCREMENT."""
    sqlite_place.at("0001")
    (sql,) = sqlite_place.raw().execute("SELECT sql FROM sqlite_master WHERE name = 'messaging_messages'").fetchone()
    assert "id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT" in sql


@pytest.mark.parametrize("table", SEED_TABLES)
def test_the_first_revision_is_the_same_on_postgres(postgres_place: Place, original: Any, table: str) -> None:
    """messaging case 45, schedules case 50: the same columns, nullability and indexes, in the types of Postgres."""
    postgres_place.at("0001")
    connection = postgres_place.raw()
    found = connection.execute(
        "SELECT column_name, data_type, is_nullable FROM information_schema.columns"
        " WHERE table_name = %s ORDER BY ordinal_position",
        (table,),
    ).fetchall()
    assert found == [
        (name, postgres_type(name, kind), "NO" if needed else "YES")
        for name, kind, needed, *_ in columns(original, table)
    ]
    named = connection.execute("SELECT indexname FROM pg_indexes WHERE tablename = %s", (table,)).fetchall()
    assert {name for (name,) in named} - {f"pk_{table}"} == set(indexes(original, table))


def postgres_type(name: str, kind: str) -> str:
    if name in FLAGS:
        return "boolean"
    if name in JSON:
        return "jsonb"
    return "timestamp with time zone" if TIMES.fullmatch(name) else POSTGRES_TYPES[kind]


def test_defaults_of_postgres_are_the_original_ones(postgres_place: Place) -> None:
    """messaging case 45, workflows W-105, schedules case 50."""
    postgres_place.at("0001")
    found = postgres_place.raw().execute(
        "SELECT table_name || '.' || column_name, column_default FROM information_schema.columns"
        " WHERE table_schema = current_schema() AND column_default IS NOT NULL"
    )
    assert dict(found.fetchall()) == {
        "workflow_runs.phase_history": "'[]'::jsonb",
        "workflow_runs.status": "'running'::text",
        "workflow_runs.restart_count": "0",
        "workflow_approvals.status": "'pending'::text",
        "workflow_approvals.kind": "'approve'::text",
        "cron_overrides.enabled": "true",
        "workflow_overrides.enabled": "true",
        "messaging_sessions.message_count": "0",
        "messaging_sessions.active": "true",
    }
