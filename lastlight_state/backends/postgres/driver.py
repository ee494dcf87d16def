"""Translates driver errors to the library's errors by their SQLSTATE, never by their text."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
from psycopg.adapt import Transformer
from psycopg.pq import Format
from sqlalchemy.dialects.postgresql.psycopg import PGDialect_psycopg

from lastlight_state.backends.base import LOST
from lastlight_state.backends.facts import Unreadable
from lastlight_state.errors import (
    BackendBusy,
    BackendError,
    BackendUnavailable,
    Conflict,
    InvalidValue,
    ReadOnlyTransaction,
    StateError,
)


class Dialect(PGDialect_psycopg):
    """The SQLAlchemy dialect that compiles statements before the first connection exists.

    Without a connection, SQLAlchemy 2.0 doubles backslashes in literals, as servers before 9.1 need it. This dialect
    does not.
    """

    supports_statement_cache = True
    _backslash_escapes = False


# The rows of a cursor, with placeholders for values that the driver cannot load, such as the time ``infinity``.
#
# A result stays with its cursor, so the rows can be loaded a second time, value by value.


def fetch_rows(cursor: psycopg.Cursor[Any]) -> list[Any]:
    """Return all rows. A value that the driver cannot decode becomes `Unreadable`; errors of the server are raised."""
    try:
        return cursor.fetchall()
    except psycopg.Error as error:
        if error.sqlstate is not None or not isinstance(error, psycopg.DataError):
            raise
    except ValueError:  # raised by the JSON parser
        pass
    return _by_value(cursor)


def fetched_sets(cursor: psycopg.Cursor[Any]) -> list[Any]:
    """Return the rows of all statements that were sent to the server as one text."""
    rows = list(cursor.fetchall())
    while cursor.nextset():
        rows += cursor.fetchall()
    return rows


def _by_value(cursor: psycopg.Cursor[Any]) -> list[Any]:
    result = cursor.pgresult
    if result is None:
        return []
    loading = Transformer(cursor)
    loaders = [loading.get_loader(result.ftype(i), Format(result.fformat(i))) for i in range(result.nfields)]
    return [
        tuple(_load_value(loader, result.get_value(row, i)) for i, loader in enumerate(loaders))
        for row in range(result.ntuples)
    ]


def _load_value(loader: Any, data: bytes | None) -> Any:
    if data is None:
        return None
    try:
        return loader.load(data)
    except (psycopg.Error, ValueError):
        return Unreadable(bytes(data))


UNDEFINED = frozenset({"42P01", "42703", "3F000"})

_CONSTRAINTS = {"23505": "unique", "23503": "foreign_key", "23502": "not_null", "23514": "check"}
_BUSY = {
    "40001": "serialisation failure",
    "40P01": "deadlock",
    "55P03": "lock timeout",
    "CIINF": "Citus moved the schema meanwhile",  # a statement's intermediate result stayed on the former server
}
#: The SQLSTATEs of a prepared statement that belongs to another connection: only a transaction pooler mixes
#: connections.
_MIXED = frozenset({"42P05", "26000"})
_GONE = frozenset({"57P01", "57P02", "57P03", "57P04", "57P05", "25P03"})


def translate(error: Exception) -> StateError:
    """Return the library's error for a driver's error."""
    state = getattr(error, "sqlstate", None)
    if state is None:
        return _without_state(error)
    if state in _BUSY:
        return BackendBusy(f"the database is busy: {_BUSY[state]}")
    if state in _CONSTRAINTS:
        return Conflict(f"the database refused a row ({_CONSTRAINTS[state]})", code=_CONSTRAINTS[state])
    if state.startswith("LL"):
        return Conflict(str(error.diag.message_primary), code="refused_by_database")  # type: ignore[attr-defined]
    if state in _MIXED:
        return pooler_forgotten(f"statements were prepared on several connections ({state})")
    if state in _GONE or state.startswith("08"):
        return BackendUnavailable(f"the server closed the connection ({state})", repeats=1, reason=LOST)
    return _of_server(error, state)


def standby_met() -> BackendUnavailable:
    """Return the error for a server that became a standby, or for a standby reached instead of the primary.

    Nothing was stored there, so the unit may be retried on another connection.
    """
    return BackendUnavailable(
        "the server only reads now, as a standby does: the primary is elsewhere", repeats=1, reason="standby"
    )


def set_to_read_met() -> BackendUnavailable:
    """Return the error for a write on a primary that was set to read only.

    Nothing was stored, so the unit may be retried: another connection may reach another server, or the disk may have
    room again.
    """
    return BackendUnavailable(
        "the server was set to read only (default_transaction_read_only), perhaps because its disk is full",
        repeats=1,
        reason="set_to_read_only",
    )


def pooler_forgotten(seen: str) -> InvalidValue:
    """Return the error for connecting through a transaction pooler, such as PgBouncer, without the setting for it."""
    return InvalidValue("pooler", f"{seen}, as behind PgBouncer: set pooler='transaction'", permitted=("transaction",))


def _of_server(error: Exception, state: str) -> StateError:
    if state == "57014":
        return BackendUnavailable(
            "the statement was cancelled, by its timeout or by the server's operator", reason="statement_timeout"
        )
    if state.startswith("53"):
        return BackendUnavailable(f"the server has no room: connections, memory or disk ({state})")
    if state in ("28P01", "28000", "3D000"):
        return BackendUnavailable(
            f"the server refused the login ({state}): check user, password and database of the URL"
        )
    if state == "25006":
        return ReadOnlyTransaction("cannot write in a transaction, or on a server, that may only read")
    if state in ("22021", "22P05"):
        return InvalidValue("text", "must not contain a character that the database cannot store")
    if state == "42501":
        return BackendUnavailable(
            "the role lacks a right that this call needs: migrate as the owner, and see `lastlight-state grants`",
            reason="permission",
        )
    return BackendError(f"the database refused a statement ({state}): {str(error).splitlines()[0]}")


def _without_state(error: Exception) -> StateError:
    if isinstance(error, psycopg.errors.ConnectionTimeout):
        return BackendUnavailable("the server did not answer in time: check the URL, and that it runs", reason="pool")
    if isinstance(error, psycopg.OperationalError | psycopg.InterfaceError):
        said = " ".join(str(error).partition("\n")[0].split())  # for people: a refused login gives no other reason
        if "startup parameter" in said:  # libpq has no code for a refused connection
            return pooler_forgotten("the server refuses settings that are given at connect")
        if getattr(error, "pgconn", None) is not None:
            answer = said.rpartition("failed: ")[2]
            text = f"the database cannot be reached: {answer}; check its URL, that it exists, and that the server runs"
        else:
            text = f"the connection was lost ({said}): check that the server runs"
        return BackendUnavailable(text, repeats=1, reason=LOST)
    if isinstance(error, psycopg.DataError):
        return InvalidValue("value", str(error))
    return BackendError(f"the driver failed: {type(error).__name__}: {error}")


@contextmanager
def translate_errors() -> Iterator[None]:
    """Raise the library's error for an error of the driver in the block."""
    try:
        yield
    except psycopg.Error as error:
        raise translate(error) from error
