"""Translates SQLite's errors to the library's errors by their names, never by their texts."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from typing import Any

from lastlight_state.backends.facts import FORBIDDEN, NOT_REGULAR
from lastlight_state.backends.sqlite.dbapi import STAYS_ON_ROWS, error_name, sqlite3, text_or_unreadable
from lastlight_state.errors import (
    BackendBusy,
    BackendError,
    BackendUnavailable,
    Conflict,
    MisuseError,
    ReadOnlyTransaction,
    StateError,
)
from lastlight_state.special_files import reason_of

# The rows of a cursor, with placeholders for text that is not UTF-8.
#
# The driver stays on a row whose text it cannot decode. So the row can be read again with a ``text_factory`` that
# decodes what it can. By default texts are read without one: Python code would be called for each of them.


def fetch_rows(cursor: sqlite3.Cursor) -> list[Any]:
    """Return all rows. A text that is not valid UTF-8 becomes `Unreadable`; other errors of the driver are raised."""
    rows: list[Any] = []
    try:
        rows.extend(cursor)  # keeps the rows before an error; fetchall() would drop them
    except sqlite3.OperationalError as error:
        rows.extend(_rest(cursor, error))
    return rows


def iterate_rows(cursor: sqlite3.Cursor) -> Iterator[Any]:
    """Yield the rows one by one. Errors are treated as by `fetch_rows`."""
    try:
        yield from cursor
    except sqlite3.OperationalError as error:
        yield from _rest(cursor, error)


def _rest(cursor: sqlite3.Cursor, error: sqlite3.OperationalError) -> Iterator[Any]:
    """Yield the rows from the one that could not be decoded. Raises the error if it came from the database."""
    if getattr(error, "sqlite_errorcode", None) is not None or not STAYS_ON_ROWS:
        raise error
    connection = cursor.connection
    usual, connection.text_factory = connection.text_factory, text_or_unreadable
    try:
        yield from cursor
    finally:
        connection.text_factory = usual


_CHECK_RIGHTS = "check that it is a file, and the rights to it and to its directory"
_CONSTRAINTS = {
    "SQLITE_CONSTRAINT_UNIQUE": "unique",
    "SQLITE_CONSTRAINT_PRIMARYKEY": "unique",
    "SQLITE_CONSTRAINT_ROWID": "unique",
    "SQLITE_CONSTRAINT_FOREIGNKEY": "foreign_key",
    "SQLITE_CONSTRAINT_NOTNULL": "not_null",
    "SQLITE_CONSTRAINT_CHECK": "check",
}


def translate(error: Exception) -> StateError:
    """Return the library's error for an error of the driver or the operating system."""
    if isinstance(error, OSError):
        said = {"reason": NOT_REGULAR} if error.errno in (errno.ELOOP, errno.EINVAL) else {}
        reason = reason_of(error, error.filename)
        return BackendUnavailable(f"the database file cannot be opened: {reason}; {_CHECK_RIGHTS}", **said)
    name = error_name(error)
    if name is None:
        return (
            MisuseError(f"the driver refused the call: {error}")
            if isinstance(error, sqlite3.ProgrammingError)
            else _other_error(error, "")
        )
    if name == "SQLITE_CONSTRAINT_TRIGGER":
        return Conflict(str(error), code="refused_by_database")
    if name in _CONSTRAINTS:
        return Conflict(f"the database refused a row ({_CONSTRAINTS[name]})", code=_CONSTRAINTS[name])
    return _of_file(error, name)


def read_only_met(driver: Any) -> BackendUnavailable | None:
    """Return the error for a failed write on a connection that can only read.

    Return None if the pragma ``query_only`` caused it.
    """
    if driver.execute("PRAGMA query_only").fetchone()[0]:
        return None
    path = driver.execute("SELECT file FROM pragma_database_list WHERE name = 'main'").fetchone()[0]
    found = [path + end for end in ("", "-wal", "-shm", "-journal")]
    named = [name for name in found if os.access(name, os.F_OK) and not os.access(name, os.W_OK)]
    if not named:
        return BackendUnavailable("the database file could not be written when this connection was opened", repeats=1)
    return BackendUnavailable(
        f"the database cannot be written: this process may only read {', '.join(named)}; reads go on, and writes when"
        " it has the right to write there"
    )


def is_locked(error: Exception) -> bool:
    """True if another connection holds the file's lock, so that a retry may succeed."""
    name = error_name(error) or ""
    return name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")) and name != "SQLITE_BUSY_SNAPSHOT"


def _of_file(error: Exception, name: str) -> StateError:
    if name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
        return BackendBusy("the database is locked by another writer")
    if name == "SQLITE_FULL":
        return BackendUnavailable(
            "the disk is full: nothing of this call is stored, and reads go on; make room on the file system of the"
            " database, and writes go on without opening it again"
        )
    if name.startswith("SQLITE_IOERR"):
        return BackendUnavailable(f"input or output failed ({name})", repeats=6)
    if name == "SQLITE_READONLY":
        return ReadOnlyTransaction("cannot write on a connection that may only read")
    if name == "SQLITE_READONLY_ROLLBACK":
        return BackendUnavailable(
            "a writer died inside a transaction and left its journal beside the file, which cannot be read until the"
            " journal is rolled back: keep the two together, and open the database once for writing"
        )
    if name.startswith(("SQLITE_READONLY", "SQLITE_PERM", "SQLITE_CANTOPEN")):
        return BackendUnavailable(
            f"the database file cannot be opened or written ({name}); {_CHECK_RIGHTS}. In a directory or on a file"
            " system that is read-only, let `lastlight-state` look at it, or open a copy in another place"
        )
    if name.startswith(("SQLITE_NOTADB", "SQLITE_CORRUPT")):
        return BackendUnavailable(
            f"the file is not a sound SQLite database ({name}): check the path, or restore a backup",
            reason="not_a_database",
        )
    if name == "SQLITE_INTERRUPT":
        return BackendUnavailable("the file took longer to read than a unit may take", reason="statement_timeout")
    if name == "SQLITE_AUTH":
        return BackendUnavailable("the file has a view or a trigger in place of a table", reason=FORBIDDEN)
    return _other_error(error, name)


def _other_error(error: Exception, name: str) -> StateError:
    return BackendError(f"the database refused a statement ({name or type(error).__name__}): {error}")
