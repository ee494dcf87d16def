"""Drivers' errors become ours by their codes alone."""

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest
from support.each import with_each
from support.guards import statements_of

from lastlight_state.backends.base import Mode
from lastlight_state.backends.postgres import driver as postgres_errors
from lastlight_state.backends.sqlite import driver as sqlite_errors
from lastlight_state.db.schema.guards import Guard
from lastlight_state.errors import (
    BackendBusy,
    BackendError,
    BackendUnavailable,
    Conflict,
    InvalidValue,
    MisuseError,
    ReadOnlyTransaction,
    StateError,
)
from lastlight_state.testing import Database

SECRET = "what a customer wrote"


def sqlite_error(name: str, kind: type[sqlite3.Error] = sqlite3.OperationalError) -> sqlite3.Error:
    error = kind(SECRET)
    error.sqlite_errorname = name
    return error


@with_each(
    ("name", "expected", "facts"),
    [
        ("SQLITE_BUSY", BackendBusy, {}),
        ("SQLITE_BUSY_SNAPSHOT", BackendBusy, {}),
        ("SQLITE_LOCKED_SHAREDCACHE", BackendBusy, {}),
        ("SQLITE_FULL", BackendUnavailable, {"outcome": "none"}),
        ("SQLITE_IOERR_WRITE", BackendUnavailable, {"outcome": "none", "repeats": 6}),
        ("SQLITE_CANTOPEN", BackendUnavailable, {"outcome": "none"}),
        ("SQLITE_READONLY_DBMOVED", BackendUnavailable, {"outcome": "none"}),
        ("SQLITE_PERM", BackendUnavailable, {"outcome": "none"}),
        ("SQLITE_NOTADB", BackendUnavailable, {"outcome": "none", "reason": "not_a_database"}),
        ("SQLITE_CORRUPT_INDEX", BackendUnavailable, {"outcome": "none", "reason": "not_a_database"}),
        ("SQLITE_READONLY", ReadOnlyTransaction, {}),
        ("SQLITE_CONSTRAINT_UNIQUE", Conflict, {}),
        ("SQLITE_CONSTRAINT_PRIMARYKEY", Conflict, {}),
        ("SQLITE_CONSTRAINT_FOREIGNKEY", Conflict, {}),
        ("SQLITE_CONSTRAINT_NOTNULL", Conflict, {}),
        ("SQLITE_CONSTRAINT_CHECK", Conflict, {}),
        ("SQLITE_CONSTRAINT_ROWID", Conflict, {}),
        ("SQLITE_READONLY_ROLLBACK", BackendUnavailable, {"outcome": "none"}),
    ],
)
def test_sqlites_error_names(name: str, expected: type[StateError], facts: dict[str, Any]) -> None:
    """house H-50: error kinds come from ``sqlite_errorname``."""
    error = sqlite_errors.translate(sqlite_error(name))
    assert type(error) is expected
    assert error.details == facts
    assert SECRET not in str(error)


@with_each(
    ("state", "expected", "facts"),
    [
        ("40001", BackendBusy, {}),
        ("40P01", BackendBusy, {}),
        ("55P03", BackendBusy, {}),
        ("57P01", BackendUnavailable, {"outcome": "none", "repeats": 1, "reason": "connection"}),
        ("57P02", BackendUnavailable, {"outcome": "none", "repeats": 1, "reason": "connection"}),
        ("57P03", BackendUnavailable, {"outcome": "none", "repeats": 1, "reason": "connection"}),
        ("57P05", BackendUnavailable, {"outcome": "none", "repeats": 1, "reason": "connection"}),
        ("25P03", BackendUnavailable, {"outcome": "none", "repeats": 1, "reason": "connection"}),
        ("08006", BackendUnavailable, {"outcome": "none", "repeats": 1, "reason": "connection"}),
        ("57014", BackendUnavailable, {"outcome": "none", "reason": "statement_timeout"}),
        ("53100", BackendUnavailable, {"outcome": "none"}),
        ("53300", BackendUnavailable, {"outcome": "none"}),
        ("28P01", BackendUnavailable, {"outcome": "none"}),
        ("57P04", BackendUnavailable, {"outcome": "none", "repeats": 1, "reason": "connection"}),
        ("28000", BackendUnavailable, {"outcome": "none"}),
        ("3D000", BackendUnavailable, {"outcome": "none"}),
        (
            "22P05",
            InvalidValue,
            {"where": "text", "problem": "must not contain a character that the database cannot store"},
        ),
        ("42501", BackendUnavailable, {"outcome": "none", "reason": "permission"}),
        ("25006", ReadOnlyTransaction, {}),
        ("23505", Conflict, {}),
        ("23503", Conflict, {}),
        ("23502", Conflict, {}),
        ("23514", Conflict, {}),
        (
            "22021",
            InvalidValue,
            {"where": "text", "problem": "must not contain a character that the database cannot store"},
        ),
    ],
)
def test_postgres_sqlstates(state: str, expected: type[StateError], facts: dict[str, Any]) -> None:
    """house H-50: error kinds come from SQLSTATE."""
    error = postgres_errors.translate(psycopg.errors.lookup(state)(SECRET))
    assert type(error) is expected
    assert error.details == facts
    assert SECRET not in str(error)


def test_a_result_that_a_move_on_citus_took_away_is_a_busy_database() -> None:
    """tenants TN-15: the transaction is undone, and its unit is repeated."""

    class IntermediateResultNotFound(psycopg.DatabaseError):
        sqlstate = "CIINF"

    assert type(postgres_errors.translate(IntermediateResultNotFound(SECRET))) is BackendBusy


def test_a_locked_file_is_waited_for_unless_the_reader_itself_keeps_an_old_state(tmp_path: Path) -> None:
    """backends B-50: no wait ends that."""
    with (
        closing(sqlite3.connect(tmp_path / "a.db", timeout=0, isolation_level=None)) as first,
        closing(sqlite3.connect(tmp_path / "a.db", timeout=0, isolation_level=None)) as second,
    ):
        first.execute("PRAGMA journal_mode = WAL")
        first.execute("CREATE TABLE t (x)")
        second.execute("BEGIN")
        second.execute("SELECT * FROM t").fetchall()
        first.execute("BEGIN IMMEDIATE")
        first.execute("INSERT INTO t VALUES (1)")
        with pytest.raises(sqlite3.OperationalError) as locked:
            second.execute("INSERT INTO t VALUES (2)")
        first.execute("COMMIT")
        with pytest.raises(sqlite3.OperationalError) as old:
            second.execute("INSERT INTO t VALUES (2)")
    assert [sqlite_errors.is_locked(caught.value) for caught in (locked, old)] == [True, False]


@with_each(
    ("translate", "error", "expected"),
    [
        (sqlite_errors.translate, PermissionError(13, "Permission denied"), BackendUnavailable),
        (sqlite_errors.translate, sqlite3.ProgrammingError("Cannot operate on a closed database."), MisuseError),
        (sqlite_errors.translate, sqlite_error("SQLITE_ERROR"), BackendError),
        (sqlite_errors.translate, sqlite3.OperationalError("without a name"), BackendError),
        (postgres_errors.translate, psycopg.OperationalError("connection refused"), BackendUnavailable),
        (postgres_errors.translate, psycopg.InterfaceError("the connection is closed"), BackendUnavailable),
        (postgres_errors.translate, psycopg.DataError("NUL"), InvalidValue),
        (postgres_errors.translate, psycopg.ProgrammingError("cannot adapt"), BackendError),
        (postgres_errors.translate, psycopg.errors.lookup("42601")("syntax"), BackendError),
    ],
)
def test_what_has_no_code_or_no_place_of_its_own(
    translate: Callable[[Exception], StateError], error: Exception, expected: type[StateError]
) -> None:
    """house H-51."""
    assert type(translate(error)) is expected


REFUSED = [
    ("unique", "INSERT INTO workflow_overrides (name, enabled, updated_at) VALUES ('w', {on}, {at})"),
    ("not_null", "INSERT INTO workflow_overrides (name, enabled, updated_at) VALUES (NULL, {on}, {at})"),
    (
        "foreign_key",
        "INSERT INTO messaging_messages (session_id, role, content, timestamp) VALUES ('-', 'user', '-', {at})",
    ),
]


@with_each(("code", "sql"), REFUSED, ids=[code for code, _ in REFUSED])
def test_what_the_databases_refuse_has_one_code_on_both(database: Database, code: str, sql: str) -> None:
    """house H-51: driver errors are translated in one place."""
    store = database.open()
    words = {"on": "1" if database.name == "sqlite" else "true", "at": "'2026-02-03T00:00:00.000Z'"}
    with store.transaction() as tx:
        driver = tx._scope.unit.driver
        if code == "unique":
            driver.execute(sql.format(**words))
        with pytest.raises(store.backend.driver_errors) as raised:
            driver.execute(sql.format(**words))
        driver.execute("ROLLBACK")
        driver.execute("BEGIN")
    error = store.backend.translate(raised.value)
    assert (type(error), error.code) == (Conflict, code)


def test_what_a_guard_refuses_is_told_in_its_own_words(fresh_database: Database) -> None:
    """house H-37, H-51."""
    store = fresh_database.open()
    store.workflows.overrides.put("w", enabled=False)
    with store.transaction() as tx:
        for statement in statements_of(
            Guard("w_kept", "workflow_overrides", "delete", "it's kept"), store.backend.name
        ):
            tx.connection.exec_driver_sql(statement)
    checkout = store.backend.acquire(Mode.WRITE)
    with pytest.raises(store.backend.driver_errors) as raised:
        checkout.driver.execute("DELETE FROM workflow_overrides")
    store.backend.rollback(checkout)
    store.backend.release(checkout)
    error = store.backend.translate(raised.value)
    assert (type(error), error.code, str(error)) == (Conflict, "refused_by_database", "it's kept")
