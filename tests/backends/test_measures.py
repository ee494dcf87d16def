from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from support.each import with_each

from lastlight_state.backends import open_backend
from lastlight_state.backends.base import Mode, Options
from lastlight_state.backends.facts import Measures
from lastlight_state.errors import StateError
from lastlight_state.testing.databases import Database
from lastlight_state.testing.postgres import connect

DEFAULT = Options()


def measures_of(url: str | Path, options: Options = DEFAULT, tables: tuple[str, ...] = ()) -> Measures:
    with closing(open_backend(url, options)) as backend:
        checkout = backend.acquire(Mode.READ)
        try:
            return backend.measures(checkout, tables)
        finally:
            backend.release(checkout)


def test_only_the_tables_that_are_there_are_told(fresh_database: Database) -> None:
    found = measures_of(fresh_database.url, tables=("workflow_runs", "no_such_table"))
    assert list(found.tables) == ["workflow_runs"]


def test_space_that_deleted_rows_left_is_free(tmp_path: Path) -> None:
    """maintenance OP-10."""
    path = tmp_path / "a.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE t (x)")
        connection.execute("INSERT INTO t VALUES (zeroblob(100000))")
        connection.execute("DELETE FROM t")
        connection.commit()
    found = measures_of(path, Options(read_only=True))
    assert (found.free_pages or 0) > 20
    assert found.free_bytes == (found.free_pages or 0) * 4096
    assert found.size_bytes == path.stat().st_size


def test_the_write_ahead_log_is_measured_beside_the_file(fresh_database: Database) -> None:
    """maintenance OP-10."""
    store = fresh_database.open()
    store.workflows.overrides.put("wf", enabled=False)
    found = measures_of(fresh_database.url)
    if fresh_database.name == "sqlite":
        assert found.wal_bytes == Path(fresh_database.url + "-wal").stat().st_size
    else:
        assert found.wal_bytes is None


@with_each("glance", [True, False])
def test_the_journal_mode_is_that_of_the_file(glance: bool, tmp_path: Path) -> None:
    """maintenance OP-10."""
    for mode in ("wal", "delete"):
        path = tmp_path / f"{mode}.db"
        with closing(sqlite3.connect(path)) as connection:
            connection.execute(f"PRAGMA journal_mode = {mode}")
            connection.execute("CREATE TABLE t (x)")
        found = measures_of(path, Options(read_only=True, glance=glance))
        assert found.settings["journal_mode"] == mode


def test_a_database_in_memory_has_no_log_beside_it() -> None:
    assert measures_of(":memory:").wal_bytes == 0


def test_tables_of_another_schema_are_not_counted(postgres_url: str) -> None:
    with connect(postgres_url) as raw:
        raw.execute("CREATE SCHEMA mine")
        raw.execute("CREATE TABLE mine.t (x int)")
        raw.execute("CREATE TABLE u (x int)")
    assert list(measures_of(postgres_url, tables=("t", "u")).tables) == ["u"]
    assert list(measures_of(postgres_url, Options(schema="mine"), tables=("t", "u")).tables) == ["t"]


def test_a_table_that_was_never_analysed_has_no_estimate(postgres_url: str) -> None:
    with connect(postgres_url) as raw:
        raw.execute("CREATE TABLE t (x int)")
        assert measures_of(postgres_url, tables=("t",)).tables["t"].rows is None
        raw.execute("ANALYZE t")
        assert measures_of(postgres_url, tables=("t",)).tables["t"].rows == 0


def test_what_the_database_refuses_is_an_error_of_the_library(fresh_database: Database) -> None:
    backend = fresh_database.open().backend
    checkout = backend.acquire(Mode.READ)
    checkout.driver.close()
    try:
        with pytest.raises(StateError):
            backend.measures(checkout, ())
    finally:
        checkout.broken = True
        backend.release(checkout)
