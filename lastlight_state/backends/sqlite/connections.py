"""Connections to SQLite: the common base class, and connections to memory and of a caller's engine.

For a file, one writer and a few readers are kept open (`file_connections`). A database in memory is a single connection
that all units share. A caller's engine lends its own connections, which get the library's settings at each checkout.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from sqlalchemy.engine import Engine
from sqlalchemy.exc import SQLAlchemyError, TimeoutError as PoolTimeout

from lastlight_state.backends.base import Checkout, Mode, Options
from lastlight_state.backends.fair_lock import FairLock
from lastlight_state.backends.host_connections import hear
from lastlight_state.backends.sqlite import checkpoints, dbapi, files, group_commit, host_connections
from lastlight_state.backends.sqlite.checkpoints import WriteAheadLog
from lastlight_state.backends.sqlite.dbapi import connect, sqlite3
from lastlight_state.backends.sqlite.pragmas import permit_writes, pragmas, set_up
from lastlight_state.backends.waiting import all_in_use, line_too_long
from lastlight_state.errors import BackendUnavailable
from lastlight_state.unwinding import block

_log = logging.getLogger("lastlight_state.backends")


class Connections(ABC):
    """Lends connections. Only one writer at a time gets one; writers are served in the order of their requests."""

    #: True if waiting units may be committed together.
    shares = False
    #: The number of writing threads that is useful.
    writers = 1
    #: True if the writer's connection needs no work when it is returned.
    _stays = False

    def __init__(self, options: Options) -> None:
        self._options = options
        #: The queue of writers.
        self.line = FairLock()
        #: The checkout that uses the writer's connection, from before the loan until nothing is left to undo.
        self._user: Checkout | None = None
        #: The log whose checkpoints the library makes, if SQLite must not make them.
        self.log: WriteAheadLog | None = None
        #: The writer's connection, if one is kept open between units.
        self._writer: sqlite3.Connection | None = None

    @property
    def is_disturbed(self) -> bool:
        """True if a file that was read as unchanging was changed during the read."""
        return False

    @property
    def journal_mode(self) -> str | None:
        """Return the file's journal mode if SQLite cannot report it through the connection; else None."""
        return None

    @property
    def has_unfinished_unit(self) -> bool:
        """True if the writer's connection was left inside a unit and no writer waits who would roll it back."""
        return self._user is not None and not self.line

    def writer(self, checkout: Checkout) -> None:
        """Lend the writer's connection, in the order of requests.

        Raises `BackendBusy` after ``queue_timeout`` seconds.
        """
        try:
            if not self.line.enter(checkout, self._options.queue_timeout):
                raise line_too_long()  # noqa: TRY301 - what was taken is given back
            if checkout.group is not None:
                group_commit.refuse_unknown(checkout)
                if checkout.group is not None:
                    return
            if self._user is not None:
                self._discard(self._user)
            self._user = checkout
            kept = self._writer
            if kept is None:
                self._lend_writer(checkout)
            else:
                checkout.attach(kept)
        except BaseException:
            self.give_back_writer(checkout)
            raise

    def give_back_writer(self, checkout: Checkout) -> None:
        """Take the writer's connection back. Does nothing if it was returned before."""
        try:
            if self._user is checkout:
                if checkout.broken or not self._stays:
                    self._take_back_writer(checkout)
                self._user = None
        finally:
            self.line.leave(checkout)

    def recover(self, checkout: Checkout) -> None:
        """Take back the connection of an interrupted unit. The next writer rolls the unit back."""
        if checkout.mode.writes:
            self.line.leave(checkout)
        else:
            self.give_back_reader(checkout)

    @abstractmethod
    def reader(self, checkout: Checkout) -> None: ...

    @abstractmethod
    def give_back_reader(self, checkout: Checkout) -> None: ...

    @abstractmethod
    def close(self) -> None: ...

    def detach_child(self) -> None:  # noqa: B027 - only files have locks that a child would mistake for its own
        """Detach a forked child process from its parent's connections."""

    def second_connection(self, checkout: Checkout) -> AbstractContextManager[Any]:
        """Lend a second connection in addition to a checkout's. For cases in which `reader` cannot lend one."""
        raise NotImplementedError

    def _forget_log(self) -> None:
        if self.log is not None:
            self.log.forget()

    @abstractmethod
    def _lend_writer(self, checkout: Checkout) -> None: ...

    @abstractmethod
    def _take_back_writer(self, checkout: Checkout) -> None: ...

    @abstractmethod
    def _discard(self, cut_off: Checkout) -> None:
        """Roll back an interrupted unit on the writer's connection. Never lend that connection again."""


class SharedConnection(Connections):
    """A database in memory. It is one connection, used by one unit at a time, whether the unit reads or writes."""

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        self._connection = connect(":memory:", isolation_level=None, check_same_thread=False, cached_statements=512)
        set_up(self._connection, tuple(pragmas(options, None)), options, writes=True)

    def recover(self, checkout: Checkout) -> None:
        self.line.leave(checkout)

    def reader(self, checkout: Checkout) -> None:
        self.writer(checkout)

    def give_back_reader(self, checkout: Checkout) -> None:
        self.give_back_writer(checkout)

    def close(self) -> None:
        closing = Checkout(Mode.ONE)
        try:
            if self.line.enter(closing, self._options.queue_timeout):
                self._connection.close()
        finally:
            self.line.leave(closing)

    def _lend_writer(self, checkout: Checkout) -> None:
        checkout.attach(self._connection)

    def _take_back_writer(self, checkout: Checkout) -> None:
        if checkout.broken:
            self._discard(checkout)

    def _discard(self, cut_off: Checkout) -> None:
        """Roll back the unit but keep the connection, because it is the database. The unit must no longer use it."""
        undo(self._connection)
        permit_writes(cut_off)
        cut_off.driver = None


class EngineConnections(Connections):
    """The connections of a caller's engine.

    A checkout applies the settings that a unit needs; a return restores the caller's. On a database in memory readers
    wait for the writer, because they may share its connection.
    """

    def __init__(self, engine: Engine, options: Options) -> None:
        super().__init__(options)
        self._engine = engine
        path = file_of(engine)
        self._in_memory = path is None
        carrier = None if path is None else files.file_system(path)
        settings = tuple(pragmas(options, carrier))
        self.log = None if path is None else checkpoints.log_of(path.absolute(), options, settings)
        self._settings = host_connections.settings_of_connection(settings)
        #: True once the journal mode, which the file keeps, was set.
        self._once: tuple[str, ...] | None = host_connections.settings_of_file(settings)

    def recover(self, checkout: Checkout) -> None:
        if self._in_memory:
            self.line.leave(checkout)
        else:
            super().recover(checkout)

    def reader(self, checkout: Checkout) -> None:
        if self._in_memory:
            self.writer(checkout)
        else:
            self._lend_writer(checkout)

    def give_back_reader(self, checkout: Checkout) -> None:
        if self._in_memory:
            self.give_back_writer(checkout)
        else:
            self._take_back_writer(checkout)

    def close(self) -> None:
        """Do nothing, because the engine belongs to the caller."""
        self._forget_log()

    def _lend_writer(self, checkout: Checkout) -> None:
        owner = self._checkout()
        driver: Any = owner.dbapi_connection
        checkout.attach(driver, owner=owner)
        try:
            dbapi.refuse_another_library(driver)
            checkout.before = host_connections.BorrowedSettings(driver)
            checkout.before.leave_transactions_to_us(driver)
            if self._once is not None:
                self._set_up_once(driver, checkout.before)
            set_up(driver, self._settings, self._options, writes=checkout.mode.writes)
            hear(checkout, self._engine)
        except BaseException:
            checkout.broken = True
            if not checkout.mode.writes:
                self._take_back_writer(checkout)
            raise

    def _take_back_writer(self, checkout: Checkout) -> None:
        owner = checkout.owner
        if owner is None:
            return
        if checkout.mode.writes:
            self._forget_log()  # the log is gone once the engine has closed its last connection
        if not checkout.broken:
            checkout.broken = not checkout.before.put_back(checkout.driver)
        if checkout.broken:
            self._discard(checkout)
        else:
            checkout.owner = None
            owner.close()

    def _discard(self, cut_off: Checkout) -> None:
        self._forget_log()
        if cut_off.owner is not None:
            undo(cut_off.driver)
            cut_off.owner.invalidate()
            cut_off.owner = None

    @block
    def second_connection(self, checkout: Checkout) -> Iterator[Any]:
        """Lend a new connection, created as the engine creates its own.

        It bypasses the engine's pool, which may have no second connection.
        """
        pool = self._engine.pool.recreate()
        owner = pool.connect()
        if owner.dbapi_connection is checkout.driver:
            owner.detach()  # not closed: a database in memory has no other
            raise BackendUnavailable("the engine always gives the same connection", reason="pool")
        try:
            yield owner.dbapi_connection
        finally:
            owner.close()
            pool.dispose()

    def _set_up_once(self, driver: Any, habits: host_connections.BorrowedSettings) -> None:
        """Apply the settings that are stored in the file. Warn the caller of these changes and of missing settings."""
        before = host_connections.journal_mode(driver)
        set_up(driver, self._once or (), self._options, writes=False)
        self._once = None
        host_connections.warn_of_changes(habits, before, host_connections.journal_mode(driver))

    def _checkout(self) -> Any:
        try:
            return self._engine.raw_connection()
        except PoolTimeout as error:
            raise all_in_use() from error
        except SQLAlchemyError as error:
            raise getattr(error, "orig", None) or error from None


def file_of(engine: Engine) -> Path | None:
    """Return the file to which an engine connects; None for a database in memory."""
    name = (engine.url.database or "").removeprefix("file:").partition("?")[0]
    in_memory = name in ("", ":memory:") or engine.url.query.get("mode") == "memory"
    return None if in_memory else Path(name)


def undo(connection: sqlite3.Connection) -> None:
    """Roll back any unfinished work on the connection.

    A single statement with unread rows is in no transaction, but keeps the file locked until its cursor is deleted, and
    an exception's frames may keep that cursor alive. A ROLLBACK ends the statement, but needs a BEGIN before it.
    """
    try:
        if not connection.in_transaction:
            connection.execute("BEGIN")
        connection.execute("ROLLBACK")
    except sqlite3.Error as error:
        _log.debug("ROLLBACK of a unit that was cut off: %s", error)
