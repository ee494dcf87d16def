"""Connections that belong to a caller: the settings that a unit changes on them, and how it restores them.

A unit of a store opened with ``engine=`` borrows a connection between two transactions, when every setting can be
changed. A block with ``connection=`` joins a transaction. Inside a transaction, the pragma for foreign keys has no
effect. But SQLite accepts foreign keys as an option of the connection, which Python can set from 3.12 on. On 3.11
foreign keys are switched on only if the driver has not begun the transaction yet, and off again when the caller's
transaction is over.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

from sqlalchemy import event
from sqlalchemy.engine import Connection

from lastlight_state.backends.base import Backend, Checkout
from lastlight_state.backends.facts import log_statements
from lastlight_state.backends.host_connections import hear
from lastlight_state.backends.sqlite import dbapi
from lastlight_state.backends.sqlite.dbapi import sqlite3
from lastlight_state.backends.sqlite.driver import fetch_rows, translate
from lastlight_state.errors import MisuseError

# A caller's connection of aiosqlite, used like the driver's own: each call runs on its thread and fetches all rows.
#
# It works like the one in `lastlight_state.backends.postgres.connections`.

T = TypeVar("T")


class AwaitedConnection:
    """The driver's connection that lies below a connection of SQLAlchemy's asynchronous engine."""

    def __init__(self, adapted: Any) -> None:
        self._adapted = adapted

    @property
    def in_transaction(self) -> bool:
        return bool(self._raw.in_transaction)

    def execute(self, sql: str, params: Any = ()) -> _Result:
        return self._run_call(lambda driver: _Result(driver.execute(sql, params)))

    def executemany(self, sql: str, params: Any) -> _Result:
        return self._run_call(lambda driver: _Result(driver.executemany(sql, params)))

    def setconfig(self, option: int, on: bool) -> None:
        self._run_call(lambda driver: driver.setconfig(option, on))

    def cursor(self) -> AwaitedConnection:
        """Return the connection itself. No separate cursor is needed, because every call fetches all rows."""
        return self

    def close(self) -> None:
        """Do nothing, because no cursor is open."""

    @property
    def _raw(self) -> Any:
        return self._adapted.driver_connection

    def _run_call(self, call: Callable[[Any], T]) -> T:
        def on_its_thread(raw: Any) -> Any:
            return raw._execute(lambda: call(raw._conn))

        try:
            made: T = self._adapted.run_async(on_its_thread)
        except ValueError as error:  # how aiosqlite reports a closed connection
            raise sqlite3.ProgrammingError(str(error)) from error
        return made


class _Result:
    """The rows that a statement returned, already fetched."""

    def __init__(self, cursor: sqlite3.Cursor) -> None:
        self._rows = iter(fetch_rows(cursor))
        self.rowcount = cursor.rowcount
        cursor.close()

    def __iter__(self) -> Iterator[Any]:
        return self._rows

    def fetchone(self) -> Any:
        return next(self._rows, None)

    def fetchall(self) -> list[Any]:
        return list(self._rows)


_log = logging.getLogger("lastlight_state.backends")

#: Settings that a unit changes. The sizes of cache and mapping stay the caller's; changing ``temp_store`` would drop
#: its temporary tables.
_DIFFERS = ("synchronous", "foreign_keys", "recursive_triggers", "wal_autocheckpoint", "busy_timeout")
#: Settings that our guards and deletes need.
_GUARDING = ("foreign_keys", "recursive_triggers")
_FOREIGN_KEYS = getattr(sqlite3, "SQLITE_DBCONFIG_ENABLE_FKEY", None)
_OWED = "lastlight_state.foreign_keys_off"

#: True if foreign keys can be switched on inside a transaction.
SWITCHES_INSIDE = hasattr(sqlite3.Connection, "setconfig")
#: Code that a caller must add if they cannot. For an asynchronous engine, use its ``sync_engine``.
LISTENER = 'sqlalchemy.event.listen(engine, "connect", lambda driver, _: driver.execute("PRAGMA foreign_keys = ON"))'


def settings_of_connection(settings: Iterable[str]) -> tuple[str, ...]:
    """Return the settings that a unit applies to a caller's connection as well as to the library's own."""
    return tuple(setting for setting in settings if _name(setting) in _DIFFERS)


def settings_of_file(settings: Iterable[str]) -> tuple[str, ...]:
    """Return the settings that are stored in the database file."""
    return tuple(setting for setting in settings if _name(setting) == "journal_mode")


def journal_mode(driver: Any) -> str | None:
    """Return the journal mode of a file that already has tables."""
    has_tables = driver.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchone()
    return _pragma_value(driver, "journal_mode") if has_tables else None


def warn_of_changes(habits: BorrowedSettings, before: str | None, after: str | None) -> None:
    """Warn a caller who opens a store with an engine of changes to the file, and of settings left to the caller."""
    if before != after:
        _log.warning(
            "the journal mode of your engine's file was %s and is %s from now on: open with the setting"
            " journal_mode=%s to keep it",
            *(before, after, before),
        )
    if not habits.pragmas["foreign_keys"] and not SWITCHES_INSIDE:
        _log.warning(
            "your engine's connections have PRAGMA foreign_keys off: with Python 3.11 connection= must join before the"
            " first write of a transaction, or have it on from the beginning: %s",
            LISTENER,
        )


class BorrowedSettings:
    """The changed settings of a caller's connection while a unit borrows the connection."""

    def __init__(self, driver: Any) -> None:
        self._isolation_level = driver.isolation_level
        self._begins_itself = getattr(driver, "autocommit", None) is False  # possible from Python 3.12 on
        self.pragmas: dict[str, Any] = {name: _pragma_value(driver, name) for name in _DIFFERS}

    def leave_transactions_to_us(self, driver: Any) -> None:
        """Stop the driver from beginning transactions by itself, so that only the library begins them."""
        driver.isolation_level = None
        if self._begins_itself:
            driver.autocommit = True

    def put_back(self, driver: Any) -> bool:
        """Restore the connection's settings. Returns True if all were restored."""
        try:
            for name, value in self.pragmas.items():
                driver.execute(f"PRAGMA {name} = {value}")
            driver.isolation_level = self._isolation_level
            if self._begins_itself:
                driver.autocommit = False
        except sqlite3.Error as error:
            _log.debug("settings of a caller's connection: %s", error)
            return False
        return True


def join_caller(connection: Connection, checkout: Checkout) -> None:
    """Put the checkout on a caller's connection, inside a transaction.

    Statements are logged like the backend's own, and the caller's event listeners are called for them. Raises
    `MisuseError` or `BackendBusy`.
    """
    driver: Any = connection.connection.dbapi_connection
    raw: Any = connection.connection.driver_connection
    dbapi.refuse_another_library(raw._conn if connection.dialect.is_async else raw)
    if connection.dialect.is_async:
        driver = AwaitedConnection(driver)
    checkout.joined, checkout.is_awaited = True, connection.dialect.is_async
    checkout.attach(driver, GuardSettings(connection, driver), driver.cursor())
    checkout.execute = log_statements(checkout.before.execute, checkout.backend)
    hear(checkout, connection)
    if not driver.in_transaction:  # the driver begins only at the first INSERT; a savepoint before that would commit
        try:
            driver.execute("BEGIN IMMEDIATE")
        except sqlite3.Error as error:
            leave(checkout)
            raise translate(error) from error


def places(checkout: Checkout, backend: Backend) -> tuple[str, str]:
    """Return the real paths of the caller's file and the store's.

    A database in memory is the store's only if its engine is, too.
    """
    [(theirs,)] = checkout.driver.execute("SELECT file FROM pragma_database_list WHERE name = 'main'").fetchall()
    ours = str(backend.files[0]) if backend.files else theirs
    return os.path.realpath(theirs) if theirs else "memory", os.path.realpath(ours) if ours else "memory"


def refuse_temporary(checkout: Checkout, names: str) -> None:
    """Raise `MisuseError` if a temporary table or view of the caller has a name that matches ``names``."""
    for (found,) in checkout.driver.execute("SELECT name FROM temp.sqlite_master WHERE type <> 'index'").fetchall():
        if re.search(names, found, re.IGNORECASE):
            raise MisuseError(f"connection= leads to other tables than the store: {found!r} is a temporary one there")


def leave(checkout: Checkout) -> None:
    """End an interrupted statement. While it has unread rows, the caller could not commit."""
    with suppress(sqlite3.Error):  # the caller has closed the connection
        checkout.before.close()
        checkout.owner.put_back()


class GuardSettings:
    """The settings that the library's guards need, on a connection whose transaction a block has joined.

    Switches on those that are off. If the transaction is too far for that, raises `MisuseError` and changes nothing.
    """

    def __init__(self, connection: Connection, driver: Any) -> None:
        self._driver = driver
        self._off = [name for name in _GUARDING if not _pragma_value(self._driver, name)]
        if "foreign_keys" in self._off and not self._switch_foreign_keys(on=True):
            line = LISTENER.replace("engine,", "engine.sync_engine,") if connection.dialect.is_async else LISTENER
            raise MisuseError(
                "connection= has PRAGMA foreign_keys off, and Python 3.11 cannot switch it on after the first write or"
                f" savepoint of a transaction: join before that, or have it on from the beginning: {line}",
                pragma="foreign_keys",
            )
        if "foreign_keys" in self._off and not SWITCHES_INSIDE:
            _put_back_later(connection)
        if "recursive_triggers" in self._off:
            self._driver.execute("PRAGMA recursive_triggers = ON")

    def put_back(self) -> None:
        """Restore the connection's settings while its transaction is still open."""
        if "recursive_triggers" in self._off:
            self._driver.execute("PRAGMA recursive_triggers = OFF")
        if "foreign_keys" in self._off and SWITCHES_INSIDE:
            self._switch_foreign_keys(on=False)

    def _switch_foreign_keys(self, *, on: bool) -> bool:
        """Switch foreign keys on or off. Return True if the setting now has the requested value."""
        if SWITCHES_INSIDE:
            self._driver.setconfig(_FOREIGN_KEYS, on)
        else:
            self._driver.execute(f"PRAGMA foreign_keys = {'ON' if on else 'OFF'}")
        return bool(_pragma_value(self._driver, "foreign_keys")) is on


def _put_back_later(connection: Connection) -> None:
    """Switch foreign keys off again when the caller begins another transaction or returns the connection.

    SQLAlchemy restores isolation levels in the same way. A listener on the pool would not do: other threads could call
    it while it is still being added.
    """
    pooled: Any = connection.connection
    pooled.info[_OWED] = True
    if pooled._connection_record is not None:  # None for a detached connection, which returns to no pool
        pooled._connection_record.finalize_callback.append(partial(_settle, pooled.info))
    if not event.contains(connection, "begin", _before_another):
        event.listen(connection, "begin", _before_another)


def _before_another(connection: Connection) -> None:
    pooled = connection.connection
    _settle(pooled.info, pooled.dbapi_connection)


def _settle(info: dict[Any, Any], driver: Any) -> None:
    if info.pop(_OWED, False):
        driver.execute("PRAGMA foreign_keys = OFF")


def _name(setting: str) -> str:
    return setting.partition(" = ")[0]


def _pragma_value(driver: Any, pragma: str) -> Any:
    return driver.execute(f"PRAGMA {pragma}").fetchone()[0]
