"""Connections that belong to a caller: the settings that a unit changes on them, and how it puts them back.

A unit of a store that is opened with ``engine=`` borrows a connection between two transactions, where every setting can
be changed. A block with ``connection=`` joins a transaction. There SQLite takes the pragma for foreign keys and does
nothing. It takes the same as an option of the connection, which Python can give from 3.12 on. On 3.11 they are switched
on only where the driver has not begun yet, and off when the caller's transaction is over.
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

from lastlight_state.backends.base import Backend, Checkout, Mode
from lastlight_state.backends.facts import logged
from lastlight_state.backends.host_connections import hear
from lastlight_state.backends.sqlite import dbapi
from lastlight_state.backends.sqlite.dbapi import sqlite3
from lastlight_state.backends.sqlite.driver import fetched, translate
from lastlight_state.errors import MisuseError

# A caller's connection of aiosqlite, used as the driver's own is: each call is made on its thread, with all its rows.
#
# As `lastlight_state.backends.postgres.connections`.

T = TypeVar("T")


class AwaitedConnection:
    """The driver's connection below one of SQLAlchemy's."""

    def __init__(self, adapted: Any) -> None:
        self._adapted = adapted

    @property
    def in_transaction(self) -> bool:
        return bool(self._raw.in_transaction)

    def execute(self, sql: str, params: Any = ()) -> _Result:
        return self._made(lambda driver: _Result(driver.execute(sql, params)))

    def executemany(self, sql: str, params: Any) -> _Result:
        return self._made(lambda driver: _Result(driver.executemany(sql, params)))

    def setconfig(self, option: int, on: bool) -> None:
        self._made(lambda driver: driver.setconfig(option, on))

    def cursor(self) -> AwaitedConnection:
        """Return the connection itself: no rows are left unread, so a cursor would have nothing of its own."""
        return self

    def close(self) -> None:
        """Do nothing: there is nothing to close."""

    @property
    def _raw(self) -> Any:
        return self._adapted.driver_connection

    def _made(self, call: Callable[[Any], T]) -> T:
        def on_its_thread(raw: Any) -> Any:
            return raw._execute(lambda: call(raw._conn))

        try:
            made: T = self._adapted.run_async(on_its_thread)
        except ValueError as error:  # so aiosqlite says that it is closed
            raise sqlite3.ProgrammingError(str(error)) from error
        return made


class _Result:
    """The result of a statement."""

    def __init__(self, cursor: sqlite3.Cursor) -> None:
        self._rows = iter(fetched(cursor))
        self.rowcount = cursor.rowcount
        cursor.close()

    def __iter__(self) -> Iterator[Any]:
        return self._rows

    def fetchone(self) -> Any:
        return next(self._rows, None)

    def fetchall(self) -> list[Any]:
        return list(self._rows)


_log = logging.getLogger("lastlight_state.backends")

#: What a unit has otherwise. How much is cached and mapped stays the caller's; ``temp_store`` would empty its tables.
_DIFFERS = ("synchronous", "foreign_keys", "recursive_triggers", "wal_autocheckpoint", "busy_timeout")
#: What our guards and deletes rest on.
_GUARDING = ("foreign_keys", "recursive_triggers")
_FOREIGN_KEYS = getattr(sqlite3, "SQLITE_DBCONFIG_ENABLE_FKEY", None)
_OWED = "lastlight_state.foreign_keys_off"

#: Whether foreign keys can be switched on inside a transaction.
SWITCHES_INSIDE = hasattr(sqlite3.Connection, "setconfig")
#: What a caller adds where they cannot; of an asynchronous engine its ``sync_engine``.
LISTENER = 'sqlalchemy.event.listen(engine, "connect", lambda driver, _: driver.execute("PRAGMA foreign_keys = ON"))'


def settings_of_connection(settings: Iterable[str]) -> tuple[str, ...]:
    """Return those of our settings that a unit has on a caller's connection too."""
    return tuple(setting for setting in settings if _name(setting) in _DIFFERS)


def settings_of_file(settings: Iterable[str]) -> tuple[str, ...]:
    """Return those of our settings that stay with the file."""
    return tuple(setting for setting in settings if _name(setting) == "journal_mode")


def journal_mode(driver: Any) -> str | None:
    """Return the journal mode of a file that has tables."""
    has_tables = driver.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchone()
    return _asked(driver, "journal_mode") if has_tables else None


def warn_of_changes(habits: BorrowedSettings, before: str | None, after: str | None) -> None:
    """Tell a caller whose engine a store is opened with what it cannot know, or must do."""
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
    """The settings of a caller's connection when a unit borrows it."""

    def __init__(self, driver: Any) -> None:
        self._isolation_level = driver.isolation_level
        self._begins_itself = getattr(driver, "autocommit", None) is False  # from Python 3.12 on
        self.pragmas: dict[str, Any] = {name: _asked(driver, name) for name in _DIFFERS}

    def leave_transactions_to_us(self, driver: Any) -> None:
        """Keep the driver from beginning transactions of its own."""
        driver.isolation_level = None
        if self._begins_itself:
            driver.autocommit = True

    def put_back(self, driver: Any) -> bool:
        """Make the connection what it was, and return whether it is."""
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


def joined(connection: Connection, backend: Backend) -> Checkout:
    """Return a checkout on a caller's connection, which is inside a transaction.

    The log is told of statements as the backend says, and so are the caller's listeners. Raises `MisuseError`,
    `BackendBusy`.
    """
    driver: Any = connection.connection.dbapi_connection
    raw: Any = connection.connection.driver_connection
    dbapi.refuse_another_library(raw._conn if connection.dialect.is_async else raw)
    if connection.dialect.is_async:
        driver = AwaitedConnection(driver)
    checkout = Checkout.of(driver, Mode.WRITE, owner=GuardSettings(connection, driver))
    checkout.is_awaited = connection.dialect.is_async
    checkout.before = driver.cursor()
    checkout.execute = logged(checkout.before.execute, backend)
    hear(checkout, connection)
    if not driver.in_transaction:  # the driver begins at the first INSERT only, and a savepoint before would commit
        try:
            driver.execute("BEGIN IMMEDIATE")
        except sqlite3.Error as error:
            leave(checkout)
            raise translate(error) from error
    return checkout


def places(checkout: Checkout, backend: Backend) -> tuple[str, str]:
    """Return the real paths of the files; a database in memory is only the store's if its engine is."""
    [(theirs,)] = checkout.driver.execute("SELECT file FROM pragma_database_list WHERE name = 'main'").fetchall()
    ours = str(backend.files[0]) if backend.files else theirs
    return os.path.realpath(theirs) if theirs else "memory", os.path.realpath(ours) if ours else "memory"


def refuse_temporary(checkout: Checkout, names: str) -> None:
    """Raise `MisuseError` where a temporary table or view of the caller has a name that matches ``names``."""
    for (found,) in checkout.driver.execute("SELECT name FROM temp.sqlite_master WHERE type <> 'index'").fetchall():
        if re.search(names, found, re.IGNORECASE):
            raise MisuseError(f"connection= leads to other tables than the store: {found!r} is a temporary one there")


def leave(checkout: Checkout) -> None:
    """End a statement that was cut off: as long as its rows are not all read, the caller could not commit."""
    with suppress(sqlite3.Error):  # the caller has closed the connection
        checkout.before.close()
        checkout.owner.put_back()


class GuardSettings:
    """The settings that our guards rest on, on a connection whose transaction a block has joined.

    What is off is switched on. Raises `MisuseError` where it is too late for that; then nothing is changed.
    """

    def __init__(self, connection: Connection, driver: Any) -> None:
        self._driver = driver
        self._off = [name for name in _GUARDING if not _asked(self._driver, name)]
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
        """Make the connection what it was, inside its transaction."""
        if "recursive_triggers" in self._off:
            self._driver.execute("PRAGMA recursive_triggers = OFF")
        if "foreign_keys" in self._off and SWITCHES_INSIDE:
            self._switch_foreign_keys(on=False)

    def _switch_foreign_keys(self, *, on: bool) -> bool:
        """Switch foreign keys, and return whether foreign keys are as asked now."""
        if SWITCHES_INSIDE:
            self._driver.setconfig(_FOREIGN_KEYS, on)
        else:
            self._driver.execute(f"PRAGMA foreign_keys = {'ON' if on else 'OFF'}")
        return bool(_asked(self._driver, "foreign_keys")) is on


def _put_back_later(connection: Connection) -> None:
    """Switch foreign keys off again when the caller begins another transaction or gives the connection back.

    SQLAlchemy puts isolation levels back in the same way. A listener of the pool would be called by other threads while
    it is added.
    """
    pooled: Any = connection.connection
    pooled.info[_OWED] = True
    if pooled._connection_record is not None:  # None for one that was detached, which goes back to no pool
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


def _asked(driver: Any, pragma: str) -> Any:
    return driver.execute(f"PRAGMA {pragma}").fetchone()[0]
