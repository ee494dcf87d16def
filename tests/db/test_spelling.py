"""Times have one spelling at rest: what another program writes otherwise is refused, or read as damage."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from datetime import UTC, datetime
from typing import Any

import pytest
import sqlalchemy as sa
from support.each import with_each
from support.filled_store import scene
from support.guards import without_guards
from support.refusal import refused
from support.shown import lists
from support.stored_times import SPELLINGS, STORED, UNREADABLE

from lastlight_state import iterate
from lastlight_state.db.schema import columns
from lastlight_state.db.schema.columns import form_of, read_time
from lastlight_state.testing import Database

ODD = (*SPELLINGS, *UNREADABLE, 1785193200, 1785193200.5, b"2026-07-27T23:00:00.000Z")
#: Tables that plain SQL may not update at all, whatever it writes.
REFUSED = "rows of"


def times(tables: list[sa.Table]) -> list[tuple[sa.Table, str]]:
    """Every time column of the central schema."""
    return [(table, column.name) for table in tables for column in table.columns if form_of(column) == "time"]


def test_the_database_refuses_times_in_another_spelling(sqlite_database: Database) -> None:
    """house H-61: every time column of every table, each spelling, inserted and updated by plain SQL."""
    _, tables = scene(sqlite_database)
    raw = sqlite_database.raw()
    taken, tried = [], 0
    for table, name in times(tables[:-1]):
        row = raw.execute(f"SELECT * FROM {table.name} LIMIT 1").fetchone()
        if row is None:
            continue
        known = [column for _, column, *_ in raw.execute(f"PRAGMA table_info({table.name})")]
        held = dict(zip(known, row, strict=True))
        for odd in ODD:
            tried += 1
            if _runs(raw, f"UPDATE {table.name} SET {name} = ?", odd):
                taken.append((table.name, name, odd, "update"))
            given = {**held, name: odd}
            names, places = ", ".join(given), ", ".join("?" * len(given))
            if _runs(raw, f"INSERT INTO {table.name} ({names}) VALUES ({places})", *given.values()):
                taken.append((table.name, name, odd, "insert"))
    assert taken == []
    assert tried > 60 * len(ODD)


def _runs(raw: Any, sql: str, *values: object) -> bool:
    """Whether the database takes the statement, which is undone; it may only refuse it as guards do."""
    raw.execute("BEGIN")
    try:
        raw.execute(sql, values)
    except sqlite3.IntegrityError as error:
        return not any(said in str(error) for said in ("spelled like", REFUSED))
    else:
        return True
    finally:
        raw.execute("ROLLBACK")


def test_a_new_row_of_every_table_is_refused_for_its_times_alone(sqlite_database: Database) -> None:
    """house H-61: the guard of each table asks for each of its times."""
    _, tables = scene(sqlite_database)
    raw = sqlite_database.raw()
    for table, name in times(tables[:-1]):
        (sql,) = raw.execute("SELECT sql FROM sqlite_master WHERE name = ?", (f"{table.name}_times_new",)).fetchone()
        assert f"NEW.{name}, '+0 days') IS NOT NEW.{name}" in sql
        raw.execute("BEGIN")
        with refused():
            raw.execute(f"INSERT INTO {table.name} ({name}) VALUES ('2026-07-27 23:00:00')")
        raw.execute("ROLLBACK")


def test_plain_sql_with_times_as_ours_is_taken(sqlite_database: Database) -> None:
    """house H-61: also the last one that there is."""
    _, tables = scene(sqlite_database)
    raw = sqlite_database.raw()
    for moment in (STORED, "0001-01-01T00:00:00.000Z", "9999-12-31T23:59:59.999Z", "2024-02-29T23:59:59.999Z"):
        raw.execute("UPDATE workflow_runs SET wake_at = ?, deadline_at = NULL", (moment,))
    assert tables


@with_each("odd", [*SPELLINGS, *UNREADABLE])
def test_only_our_spelling_is_read(odd: str) -> None:
    """house H-61."""
    assert read_time(STORED) == datetime(2026, 7, 27, 23, tzinfo=UTC)
    with pytest.raises(ValueError, match=r"."):
        read_time(odd)


def test_walks_end_and_name_rows_with_times_in_another_spelling(sqlite_database: Database) -> None:
    """house H-61, house H-42: where no guard was in the way, such rows are damaged, and none is shown twice."""
    store, tables = scene(sqlite_database)
    raw = sqlite_database.raw()
    without_guards(raw)
    for table, name in times(tables[:-1]):
        spelled = f"substr({name}, 1, 10) || ' ' || substr({name}, 12, 8)"
        with closing(raw.cursor()) as cursor:
            cursor.execute(f"UPDATE {table.name} SET {name} = {spelled} WHERE rowid % 2 AND {name} IS NOT NULL")
    for name, (listed, one) in lists(store).items():
        shown = [one(item) for item in iterate(listed, limit=2)]
        assert name.startswith("timeline") or len(shown) == len({str(key) for key in shown}), name


@with_each("value", [2, -1])
def test_a_flag_is_0_or_1(value: int) -> None:
    """house H-61: a statement compares with 1, so 2 would be true for readers and false for statements."""
    dialect = sa.create_engine("sqlite://").dialect
    for kind in (columns.Flag, columns.Boolean):
        convert: Any = kind.dialect_impl(dialect).result_processor(dialect, None)
        assert [convert(stored) for stored in (0, 1, None)] == [False, True, None]
        with pytest.raises(ValueError, match="neither true nor false"):
            convert(value)
