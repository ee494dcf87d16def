"""Rows of walled tables are not replaced by plain SQLite clients, which set no pragma and know nothing of us."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
from support.each import with_each
from support.migrations.golden import FOLDER
from support.refusal import code_of

from lastlight_state.backends.sqlite import dbapi
from lastlight_state.db.schema.declarations import vocabularies
from lastlight_state.migrations.metadata import GUARDS, METADATA
from lastlight_state.migrations.scripts import head

pytestmark = pytest.mark.recorded

#: Times whose names do not tell that they are some.
TIMES = ("scheduled_for", "lease_until", "taken_until", "timestamp", "at")
#: Tables of which the database refuses to delete rows.
TABLES = sorted({guard.table for guard in GUARDS if guard.event == "delete"})
#: Columns that take none but the words of a vocabulary.
WORDS = {(column.table.name, column.name) for column, _ in vocabularies(METADATA.sorted_tables)}

#: The other part of the predicate of a partial key.
AMONG = {"status": "pending", "active": 1, "state": "running", "superseded_at": None}


class Unique(NamedTuple):
    """A unique key of a table, by what SQLite says of its indexes."""

    table: str
    columns: tuple[str, ...]
    among: dict[str, Any]


@pytest.fixture(scope="module")
def filled() -> Iterator[sqlite3.Connection]:
    """A database with rows in every table."""
    connection = sqlite3.connect(":memory:", isolation_level=None)
    connection.executescript((FOLDER / "sqlite" / f"{head()}.sql").read_text("utf-8"))
    yield connection
    connection.close()


@pytest.fixture
def raw(filled: sqlite3.Connection) -> Iterator[sqlite3.Connection]:
    """A plain connection to a copy of it."""
    connection: sqlite3.Connection = dbapi.connect(":memory:", isolation_level=None)  # whose errors have names
    filled.backup(connection)
    yield connection
    connection.close()


def keys(raw: sqlite3.Connection, table: str) -> list[Unique]:
    """Every unique key of the table, the number of the row included."""
    found = [Unique(table, (number_of(raw, table),), {})]
    for _, index, unique, _, _ in raw.execute(f"PRAGMA index_list({table})").fetchall():
        columns = [row[2] for row in raw.execute(f"PRAGMA index_xinfo({index})").fetchall() if row[5]]
        sql = raw.execute("SELECT sql FROM sqlite_master WHERE name = ?", (index,)).fetchone()[0] or ""
        among = {name: value for name, value in AMONG.items() if f"{name} " in sql.partition(" WHERE ")[2]}
        if unique:
            found.append(Unique(table, tuple(name or "thread_id" for name in columns), among))
    return found


def number_of(raw: sqlite3.Connection, table: str) -> str:
    """The column that is the number of the row."""
    columns = [row[1:3] for row in raw.execute(f"PRAGMA table_info({table})")]
    return next((name for name in ("id", "type_id") if (name, "INTEGER") in columns), "rowid")


def fresh(table: str, row: dict[str, Any], kinds: dict[str, str], number: int) -> dict[str, Any]:
    """The row with other values in every column that may be a part of a key, but for words of a vocabulary."""
    return {
        name: value if (table, name) in WORDS else _other(name, value, kinds.get(name, ""), number)
        for name, value in row.items()
    }


def _other(name: str, value: Any, kind: str, number: int) -> Any:
    if name in (
        "invocation_kind",
        "source_kind",
        "status",
        "active",
        "state",
        "superseded_at",
        "finished_at",
        "consumed_at",
        "restart_count",
    ):
        return value
    if name in ("seq", "frame_no", "revision", "iteration", "attempt", "id") and kind == "INTEGER":
        return 900 + number
    if kind != "TEXT" or name.endswith("_at"):
        return value
    return f"2026-02-03T12:00:00.{number:03}Z" if name in TIMES else f"other-{number}"


def prepared(raw: sqlite3.Connection, key: Unique) -> tuple[str, tuple[Any, ...], str, tuple[Any, ...]]:
    """Store two rows, and return an insert and an update that give another row the key of the first."""
    kinds = {row[1]: row[2] for row in raw.execute(f"PRAGMA table_info({key.table})")}
    number = number_of(raw, key.table)
    cursor = raw.execute(f"SELECT * FROM {key.table}")
    template = {number: 0, **dict(zip(kinds, cursor.fetchone(), strict=True)), **key.among}
    victim, other, third = (fresh(key.table, template, kinds, each) | {number: 900 + each} for each in range(3))
    wanted = {name: victim[name] for name in key.columns}
    for row in (victim, other):
        raw.execute(*_insert("INSERT", key.table, row))
    assigned = ", ".join(f"{name} = ?" for name in wanted)
    update = f"UPDATE OR REPLACE {key.table} SET {assigned} WHERE {number} = ?"
    return *_insert("INSERT OR REPLACE", key.table, third | wanted), update, (*wanted.values(), other[number])


def _insert(verb: str, table: str, row: dict[str, Any]) -> tuple[str, tuple[Any, ...]]:
    marks = ", ".join("?" for _ in row)
    return f"{verb} INTO {table} ({', '.join(row)}) VALUES ({marks})", tuple(row.values())


def count(raw: sqlite3.Connection, table: str) -> int:
    found: int = raw.execute(f"SELECT count(*) FROM {table}").fetchone()[0]
    return found


def without_guards(raw: sqlite3.Connection, table: str) -> None:
    guards = "SELECT name FROM sqlite_master WHERE type = 'trigger' AND tbl_name = ?"
    for (name,) in raw.execute(guards, (table,)).fetchall():
        raw.execute(f"DROP TRIGGER {name}")


@with_each("table", TABLES)
def test_no_row_is_replaced_by_any_of_its_keys(raw: sqlite3.Connection, table: str) -> None:
    """house H-37: INSERT OR REPLACE and UPDATE OR REPLACE, which both would delete it, are refused."""
    for key in keys(raw, table):
        raw.execute("SAVEPOINT one")
        insert, inserted, update, updated = prepared(raw, key)
        before = count(raw, table)
        for sql, values in ((insert, inserted), (update, updated)):
            with pytest.raises(sqlite3.DatabaseError) as refusal:
                raw.execute(sql, values)
            assert code_of(refusal.value) == ("SQLITE_CONSTRAINT_TRIGGER", None), key
        assert (count(raw, table), count(raw, "maintenance_permits")) == (before, 0)
        without_guards(raw, table)
        raw.execute(insert, inserted)
        assert count(raw, table) == before, f"{key} is no key"
        raw.execute(update, updated)
        assert count(raw, table) == before - 1, f"{key} is no key"
        raw.execute("ROLLBACK TO one")


@with_each("table", TABLES)
def test_an_insert_that_ignores_or_updates_is_no_replacement(raw: sqlite3.Connection, table: str) -> None:
    """house H-37: INSERT OR IGNORE and ON CONFLICT DO NOTHING pass the guards."""
    columns = ", ".join(row[1] for row in raw.execute(f"PRAGMA table_info({table})"))
    before = count(raw, table)
    raw.execute(f"INSERT OR IGNORE INTO {table} ({columns}) SELECT {columns} FROM {table}")
    raw.execute(f"INSERT INTO {table} ({columns}) SELECT {columns} FROM {table} WHERE true ON CONFLICT DO NOTHING")
    assert count(raw, table) == before
