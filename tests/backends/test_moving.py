"""Whole tables as a copy reads and writes them, past the statements of repositories."""

from __future__ import annotations

import resource
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from support.each import with_each
from support.scratch import NOTES, scratch_tables

from lastlight_state import StateStore
from lastlight_state.backends.base import Backend, Checkout, Mode
from lastlight_state.backends.sqlite.driver import fetch_rows, iterate_rows
from lastlight_state.errors import BackendError, BackendUnavailable, Conflict, StateError
from lastlight_state.testing import Database

AT = "2026-02-03T00:00:00.000Z"
NAMES = ("number", "thing_id", "at", "text")


@pytest.fixture
def scratch(database: Database) -> Iterator[StateStore]:
    """A store with one thing, to which notes can refer."""
    store = database.open()
    with scratch_tables(store):
        with store.transaction() as tx:
            tx.connection.exec_driver_sql(f"INSERT INTO scratch_things (id, at) VALUES ('t', '{AT}')")
        yield store


@contextmanager
def writing(store: StateStore) -> Iterator[tuple[Backend, Checkout]]:
    """A unit that commits at the end, and undoes what failed."""
    backend = store.backend
    with Checkout(Mode.WRITE, backend) as checkout:
        try:
            yield backend, checkout
            backend.commit(checkout)
        finally:
            backend.rollback(checkout)


def load(store: StateStore, *rows: tuple[Any, ...], names: tuple[str, ...] = NAMES) -> None:
    with writing(store) as (backend, checkout):
        backend.load(checkout, "scratch_notes", names, iter(rows))


def stored(store: StateStore, most: int = 100) -> list[Any]:
    columns = list(NOTES.c)
    with writing(store) as (backend, checkout):
        listed = ", ".join(column.name for column in columns)
        sql = f"SELECT {listed} FROM scratch_notes WHERE number <= {most} ORDER BY number"
        return [(row[0], row[1], row[3]) for row in backend.stream(checkout, sql, {}, columns)]


def given(store: StateStore, table: str) -> int | None:
    with writing(store) as (backend, checkout):
        return backend.last_number(checkout, table, "number")


def test_rows_that_are_loaded_are_streamed_as_they_are(scratch: StateStore) -> None:
    """maintenance OP-53."""
    texts = [None, "", "a\tb\nc\rd\\e", r"\N", "é😀"]
    load(scratch, *((number, "t", AT, text) for number, text in enumerate(texts, 1)))
    assert stored(scratch) == [(number, "t", text) for number, text in enumerate(texts, 1)]
    assert stored(scratch, most=2) == [(1, "t", None), (2, "t", "")]


def test_rows_of_a_table_whose_name_is_a_word_of_sql_are_loaded(fresh_database: Database) -> None:
    """maintenance OP-53: tables of outputs may be called so."""
    store = fresh_database.open()
    with store.transaction() as tx:
        tx.connection.exec_driver_sql('CREATE TABLE "order" (number INTEGER)')
    with writing(store) as (backend, checkout):
        backend.load(checkout, "order", ("number",), iter([(1,), (2,)]))
    with writing(store) as (backend, checkout):
        backend.analyze(checkout, ["order"])
        column = sa.column("number", sa.Integer)
        assert list(backend.stream(checkout, 'SELECT number FROM "order"', {}, [column])) == [(1,), (2,)]


WRONG: list[tuple[type[StateError], str | None, Callable[[StateStore], object]]] = [
    (Conflict, "unique", lambda store: load(store, (1, "t", AT, "a"), (1, "t", AT, "b"))),
    (Conflict, "not_null", lambda store: load(store, (1, None, AT, "a"))),
    (BackendError, None, lambda store: load(store, (1, "t"), names=("number", "no_such_column"))),
]


@with_each(("kind", "code", "work"), WRONG, ids=["unique", "not null", "no column"])
def test_rows_that_the_database_refuses_are_the_librarys_error_and_none_is_loaded(
    scratch: StateStore, kind: type[StateError], code: str | None, work: Callable[[StateStore], object]
) -> None:
    """house H-51: driver errors are translated in one place."""
    with pytest.raises(kind) as raised:
        work(scratch)
    assert type(raised.value) is kind
    assert code in (None, raised.value.code)
    assert isinstance(raised.value.__cause__, scratch.backend.driver_errors)
    assert stored(scratch) == []


@pytest.mark.parametrize(
    "sql", ["SELECT number FROM no_such_table", "SELECT 7 / (number - 2) AS number FROM scratch_notes ORDER BY 1"]
)
def test_rows_that_cannot_be_read_are_the_librarys_error(scratch: StateStore, sql: str) -> None:
    """house H-51: also when some of them have been read; none is left out in silence."""
    if scratch.backend.name == "sqlite":
        sql = sql.replace("7 / (number - 2)", "abs(number - 9223372036854775807 - 3)")
    load(scratch, (1, "t", AT, ""), (2, "t", AT, ""))
    with pytest.raises(BackendError) as raised, writing(scratch) as (backend, checkout):
        list(backend.stream(checkout, sql, {}, [NOTES.c.number]))
    assert isinstance(raised.value.__cause__, scratch.backend.driver_errors)


def numbered(database: Database) -> StateStore:
    """A store with a table whose rows the database numbers."""
    store = database.open()
    kind = (
        "INTEGER PRIMARY KEY AUTOINCREMENT"
        if store.backend.name == "sqlite"
        else "BIGINT GENERATED BY DEFAULT AS IDENTITY"
    )
    with store.transaction() as tx:
        tx.connection.exec_driver_sql(f"CREATE TABLE numbered (number {kind}, word TEXT)")
    return store


def test_the_database_goes_on_counting_behind_what_was_loaded(fresh_database: Database) -> None:
    """maintenance OP-53: and never back."""
    store = numbered(fresh_database)
    assert given(store, "numbered") is None
    with writing(store) as (backend, checkout):
        backend.load(checkout, "numbered", ("number", "word"), iter([(7, "loaded")]))
    for last, expected in ((None, 8), (3, 9), (9, 10), (20, 21), (15, 22)):
        with writing(store) as (backend, checkout):
            backend.advance(checkout, "numbered", "number", last)
        with store.transaction() as tx:
            insert = "INSERT INTO numbered (word) VALUES ('counted') RETURNING number"
            assert tx.connection.exec_driver_sql(insert).scalar_one() == expected
        assert given(store, "numbered") == expected


def test_a_table_that_never_gave_a_number_begins_behind_what_was_given_elsewhere(fresh_database: Database) -> None:
    """maintenance OP-53."""
    store = numbered(fresh_database)
    with writing(store) as (backend, checkout):
        backend.advance(checkout, "numbered", "number", 5)
    with store.transaction() as tx:
        insert = "INSERT INTO numbered (word) VALUES ('counted') RETURNING number"
        assert tx.connection.exec_driver_sql(insert).scalar_one() == 6


def test_a_number_that_cannot_be_advanced_is_the_librarys_error(sqlite_database: Database) -> None:
    """house H-51."""
    store = numbered(sqlite_database)
    with Checkout(Mode.READ, store.backend) as checkout, pytest.raises(StateError) as raised:
        store.backend.advance(checkout, "numbered", "number", 5)
    assert isinstance(raised.value.__cause__, sqlite3.Error)
    assert given(store, "numbered") is None


def test_the_same_database_is_told_by_whoever_is_connected(scratch: StateStore, database: Database) -> None:
    """maintenance OP-53: nothing is copied onto itself."""
    told = []
    for store in (scratch, database.open()):
        with writing(store) as (backend, checkout):
            told.append(backend.identity(checkout))
    assert told[0] == told[1] is not None


def test_what_is_in_memory_is_nobodys_else() -> None:
    """maintenance OP-53."""
    with StateStore.open("sqlite://") as store, writing(store) as (backend, checkout):
        assert backend.identity(checkout) is None
        assert backend.place() is None
        assert backend.lost_log(lacks_tables=True) is False


def test_a_moment_is_not_written_over_a_file_that_is_there(sqlite_database: Database, tmp_path: Path) -> None:
    """house H-51."""
    store, target = sqlite_database.open(), tmp_path / "there.db"
    target.write_text("kept")
    with pytest.raises(BackendError, match="File exists"), writing(store) as (backend, checkout):
        backend.snapshot(checkout, target)
    assert target.read_text() == "kept"


def test_a_moment_is_written_to_a_file_for_its_owner_alone(sqlite_database: Database, tmp_path: Path) -> None:
    """backends B-9."""
    store, target = sqlite_database.open(), tmp_path / "new.db"
    store.workflows.overrides.put("w", enabled=False)
    with Checkout(Mode.READ, store.backend) as checkout:
        assert store.backend.snapshot(checkout, target)
    assert target.stat().st_mode & 0o777 == 0o600
    copied = sqlite3.connect(target)
    assert copied.execute("SELECT name FROM workflow_overrides").fetchall() == [("w",)]
    copied.close()


def test_a_moment_that_finds_no_room_says_how_much_there_is(sqlite_database: Database, tmp_path: Path) -> None:
    """maintenance OP-20: waiting for the disk of the copy does not help."""
    store, target = sqlite_database.open(), tmp_path / "new.db"
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    with Checkout(Mode.READ, store.backend) as checkout:
        resource.setrlimit(resource.RLIMIT_FSIZE, (8192, limits[1]))
        try:
            with pytest.raises(
                BackendUnavailable, match=r"the copy cannot be written: [0-9]+ bytes are free"
            ) as raised:
                store.backend.snapshot(checkout, target)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert (raised.value.details["reason"], raised.value.details["path"]) == ("no_room", str(target))


@pytest.mark.parametrize("sql", ["SELECT 1 FROM json_each('[1, 2]') UNION ALL SELECT abs(value) FROM json_each(?)"])
def test_an_error_between_two_rows_is_not_the_end_of_the_rows(sql: str) -> None:
    """house H-51: no row is left out in silence."""
    with closing(sqlite3.connect(":memory:")) as driver:
        for read in (fetch_rows, lambda cursor: list(iterate_rows(cursor))):
            cursor = driver.execute(sql, ("[-9223372036854775808, 5]",))
            with pytest.raises(sqlite3.OperationalError, match="integer overflow"):
                read(cursor)


def test_a_number_that_cannot_be_set_is_the_librarys_error(sqlite_database: Database) -> None:
    """maintenance OP-53."""
    store = numbered(sqlite_database)
    with writing(store) as (backend, checkout):
        checkout.driver.execute("PRAGMA query_only = ON")
        with pytest.raises(StateError, match="may only read"):
            backend.advance(checkout, "numbered", "number", 5)
        checkout.driver.execute("PRAGMA query_only = OFF")
    assert given(store, "numbered") is None
