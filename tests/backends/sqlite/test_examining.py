"""What SQLite finds when it is examined, and what a vacuum needs."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace

import pytest
import sqlalchemy as sa
from sqlalchemy.dialects import sqlite
from support.each import with_each

from lastlight_state.backends.facts import Form
from lastlight_state.backends.sqlite import examining, originals
from lastlight_state.errors import Conflict


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "a.db"


@pytest.fixture
def driver(file: Path) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(file, isolation_level=None)) as connection:
        connection.execute("CREATE TABLE t (a, b)")
        connection.execute("CREATE INDEX i ON t (a)")
        connection.execute("INSERT INTO t VALUES (1, 2)")
        yield connection


def test_a_sound_file_has_no_problems(driver: sqlite3.Connection) -> None:
    """maintenance OP-20."""
    assert examining.find_problems(driver, deep=False) == examining.find_problems(driver, deep=True) == []


def test_an_index_that_differs_from_its_table_is_found_by_the_deep_look_alone(
    driver: sqlite3.Connection, file: Path
) -> None:
    """maintenance OP-20."""
    driver.execute("PRAGMA writable_schema = ON")
    driver.execute("UPDATE sqlite_master SET sql = 'CREATE INDEX i ON t (b)' WHERE name = 'i'")
    with closing(sqlite3.connect(file)) as later:
        assert examining.find_problems(later, deep=False) == []
        [found] = examining.find_problems(later, deep=True)
    assert "missing from index i" in found


def test_rows_that_refer_to_no_row_are_counted_by_table(driver: sqlite3.Connection) -> None:
    """maintenance OP-20."""
    driver.execute("CREATE TABLE p (id INTEGER PRIMARY KEY)")
    driver.execute("CREATE TABLE c (p REFERENCES p (id))")
    driver.executemany("INSERT INTO c VALUES (?)", [(1,), (2,), (None,)])
    assert examining.find_problems(driver, deep=True) == ["2 rows of c refer to no row of p"]


@with_each(
    ("form", "value", "wrong"),
    [
        ("time", "2026-02-03T00:00:00.000Z", 0),
        ("time", "2026-02-03T00:00:00.000", 1),
        ("time", "2026-02-03 00:00:00.000Z", 1),
        ("time", "", 1),
        ("time", 5, 1),
        ("time", b"2026-02-03T00:00:00.000Z", 1),
        ("time", "2026-02-30T00:00:00.000Z", 1),
        ("time", "2026-02-03T24:00:00.000Z", 1),
        ("time", "2026-02-03T00:00:00.0000Z", 1),
        ("time", "2026-02-03T00:00:00.000z", 1),
        ("time", "now", 1),
        ("time", "0001-01-01T00:00:00.000Z", 0),
        ("time", "9999-12-31T23:59:59.999Z", 0),
        ("flag", 1, 0),
        ("flag", 2, 1),
        ("flag", "true", 1),
        ("whole number", 5, 0),
        ("whole number", 5.5, 1),
        ("number", 5.5, 0),
        ("number", "much", 1),
        ("JSON", '{"a": 1}', 0),
        ("JSON", "{", 1),
        ("JSON", "", 1),
    ],
)
def test_a_value_has_the_form_of_its_column_or_not(
    driver: sqlite3.Connection, form: Form, value: object, wrong: int
) -> None:
    """maintenance OP-20."""
    text = originals.malformed_condition(sa.column("a", sa.Text), form).compile(dialect=sqlite.dialect())
    driver.execute("UPDATE t SET a = ?", (value,))
    assert driver.execute(f"SELECT {text} FROM t").fetchone() == (wrong,)


def test_a_log_that_is_empty_is_a_log(driver: sqlite3.Connection) -> None:
    """maintenance OP-20, case 19."""
    assert examining.run_checkpoint(driver, "PASSIVE") is None
    driver.execute("PRAGMA journal_mode = WAL")
    assert examining.run_checkpoint(driver, "TRUNCATE") == (False, 0, 0)
    driver.execute("INSERT INTO t VALUES (3, 4)")
    busy, pages, brought = examining.run_checkpoint(driver, "PASSIVE") or (True, 0, 0)
    assert (busy, pages > 0, brought == pages) == (False, True, True)


def test_a_vacuum_needs_twice_the_size_of_the_file(
    driver: sqlite3.Connection, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """maintenance OP-21: what lies beside the file is not counted, and may be missing."""
    needed = 2 * file.stat().st_size
    files = (file, file.with_name("a.db-wal"))
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=needed - 1))
    with pytest.raises(
        Conflict, match=f"needs {needed} free bytes beside the database, and there are {needed - 1}"
    ) as no:
        examining.rebuilt(driver, files)
    assert (no.value.code, no.value.details["needed"], no.value.details["free"]) == ("no_space", needed, needed - 1)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=needed))
    driver.execute("DELETE FROM t")
    driver.execute("DROP TABLE t")
    examining.rebuilt(driver, files)
    assert file.stat().st_size * 2 < needed
    examining.rebuilt(driver, ())
