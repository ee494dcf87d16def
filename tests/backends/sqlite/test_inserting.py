"""Many rows in one INSERT, and those statements that take only one."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing

import pytest
from support.each import with_each

from lastlight_state.backends.sqlite.bulk import insert_rows


@pytest.fixture
def driver() -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        yield connection


@with_each("count", [0, 1, 49, 50, 51, 100, 120])
@with_each("values", ["(?, ?)", "(?, ?) ", "(?, upper(?))", "(?, ?) ON CONFLICT (a) DO NOTHING"])
def test_each_row_is_stored_once_and_in_its_order(driver: sqlite3.Connection, count: int, values: str) -> None:
    driver.execute("DROP TABLE IF EXISTS t")
    driver.execute("CREATE TABLE t (a INTEGER PRIMARY KEY, b TEXT, n INTEGER AS (a) STORED)")
    rows = [(1000 - number, f"R{number}") for number in range(count)]
    insert_rows(driver, f"INSERT INTO t (a, b) VALUES {values}", rows)
    assert driver.execute("SELECT a, b FROM t ORDER BY a DESC").fetchall() == rows


def test_rows_of_more_columns_than_one_statement_takes_are_stored(driver: sqlite3.Connection) -> None:
    """SQLite takes 32,766 parameters."""
    for wide in (655, 656):
        driver.execute(f"CREATE TABLE t{wide} ({', '.join(f'c{number}' for number in range(wide))})")
        rows = [(row, *range(1, wide)) for row in range(60)]
        insert_rows(driver, f"INSERT INTO t{wide} VALUES ({', '.join('?' * wide)})", rows)
        assert driver.execute(f"SELECT * FROM t{wide} ORDER BY rowid").fetchall() == rows
