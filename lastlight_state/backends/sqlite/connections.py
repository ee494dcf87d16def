"""Connections to SQLite: what all ways of having them share, and those that are not to a file of ours.

A file of ours keeps one writer and a few readers open (`file_connections`). A database in memory is a single connection
that all units share. A caller's engine lends its own connections, which get our settings at each checkout.
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
    """Lends connections. Writers come one at a time, in the order they asked."""

    #: Whether units that wait may be committed together.
    shares = False
    #: How many threads it pays to have for writing.
    writers = 1
    #: Whether nothing needs to be done with the writer's connection when it is given back.
    _stays = False

    def __init__(self, options: Options) -> None:
        self._options = options
        #: Those who want to write.
        self.line = FairLock()
        #: Who has the writer's connection, from before it is lent until nothing is left to undo on it.
        self._user: Checkout | None = None
        #: The log that a checkpoint is made of where SQLite must not do that by itself.
        self.log: WriteAheadLog | None = None
        #: The writer's connection, where one is kept between units and lent as it is.
        self._writer: sqlite3.Connection | None = None

    @property
    def disturbed(self) -> bool:
        """Return whether a file that was read as unchanging has changed after all."""
        return False

    @property
    def journal_mode(self) -> str | None:
        """Return the file's journal mode where a connection cannot tell it."""
        return None

    @property
    def unfinished(self) -> bool:
        """Return whether the writer's connection was left in the middle of something, and nobody waits to end that."""
        return self._user is not None and not self.line

    def writer(self, checkout: Checkout) -> None:
        """Lend the connection that may write, after those who asked before.

        Raises `BackendBusy` when they take longer than the setting ``queue_timeout``.
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
                checkout.lend(kept)
        except BaseException:
            self.give_back_writer(checkout)
            raise

    def give_back_writer(self, checkout: Checkout) -> None:
        """End a writer's turn. Nothing happens when it has ended."""
        try:
            if self._user is checkout:
                if checkout.broken or not self._stays:
                    self._take_back_writer(checkout)
                self._user = None
        finally:
            self.line.leave(checkout)

    def recover(self, checkout: Checkout) -> None:
        """Take back what a unit had that was cut off; the next writer finds out what it left."""
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

    def forked(self) -> None:  # noqa: B027 - only files have locks that a child would mistake for its own
        """Leave the parent's connections alone in a child process."""

    def another(self, checkout: Checkout) -> AbstractContextManager[Any]:
        """Lend a connection beside that of a checkout, where `reader` cannot."""
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
        """Undo what somebody left on the writer's connection who is gone, and lend that connection no more."""


class SharedConnection(Connections):
    """A database in memory: one connection, one unit at a time, readers included."""

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
        checkout.lend(self._connection)

    def _take_back_writer(self, checkout: Checkout) -> None:
        if checkout.broken:
            self._discard(checkout)

    def _discard(self, cut_off: Checkout) -> None:
        """Undo the unit and keep the connection, which is the database. The unit must not touch it any more."""
        undo(self._connection)
        permit_writes(cut_off)
        cut_off.driver = None


class EngineConnections(Connections):
    """A caller's engine. Each checkout gets the settings that a unit needs; each return puts the caller's back.

    On a database in memory readers wait for the writer, because they may share its connection.
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
        #: The file's journal mode, which stays, is set once.
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
        """Leave the engine to the caller."""
        self._forget_log()

    def _lend_writer(self, checkout: Checkout) -> None:
        owner = self._checkout()
        driver: Any = owner.dbapi_connection
        checkout.lend(driver, owner=owner)
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
            self._forget_log()  # which is gone once the engine has closed its last connection
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
    def another(self, checkout: Checkout) -> Iterator[Any]:
        """Lend a new connection, made as those of the engine are. The engine's pool may have no other to give."""
        pool = self._engine.pool.recreate()
        owner = pool.connect()
        if owner.dbapi_connection is checkout.driver:
            owner.detach()  # not closed: it is the only one
            raise BackendUnavailable("the engine always gives the same connection", reason="pool")
        try:
            yield owner.dbapi_connection
        finally:
            owner.close()
            pool.dispose()

    def _set_up_once(self, driver: Any, habits: host_connections.BorrowedSettings) -> None:
        """Set what stays with the file, and tell the caller of it and of what is missing."""
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
    """Return the file that an engine connects to, None for a database in memory."""
    name = (engine.url.database or "").removeprefix("file:").partition("?")[0]
    in_memory = name in ("", ":memory:") or engine.url.query.get("mode") == "memory"
    return None if in_memory else Path(name)


def undo(connection: sqlite3.Connection) -> None:
    """Undo whatever the connection is in the middle of.

    A lone statement whose rows were not all read is in no transaction, and keeps the file locked all the same: until
    its cursor dies, which an exception's frames may keep. A ROLLBACK ends it; that needs a BEGIN before it.
    """
    try:
        if not connection.in_transaction:
            connection.execute("BEGIN")
        connection.execute("ROLLBACK")
    except sqlite3.Error as error:
        _log.debug("ROLLBACK of a unit that was cut off: %s", error)
