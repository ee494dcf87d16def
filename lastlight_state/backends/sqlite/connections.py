"""Connections to SQLite: how each is set up, and the three ways of having them.

A file of ours keeps one writer and a few readers open. A database in memory is a single connection that all units
share. A caller's engine lends its own connections, which get our settings at each checkout.
"""

from __future__ import annotations

import logging
import sqlite3
import threading
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any
from urllib.parse import quote

from sqlalchemy.engine import Engine
from sqlalchemy.exc import SQLAlchemyError, TimeoutError as PoolTimeout

from lastlight_state.backends.base import Checkout, Mode, Options
from lastlight_state.backends.sqlite import files, forks as sqlite_forks
from lastlight_state.backends.sqlite.glance import Glance
from lastlight_state.backends.sqlite.pragmas import BUSY_SECONDS, pragmas, set_up
from lastlight_state.backends.sqlite.queue import FairLock
from lastlight_state.errors import BackendBusy, BackendUnavailable

QUEUE_SECONDS = 60.0

_log = logging.getLogger("lastlight_state.backends")


class Connections(ABC):
    """Lends connections. Writers come one at a time, in the order they asked."""

    def __init__(self) -> None:
        self._queue = FairLock()

    @property
    def disturbed(self) -> bool:
        """Whether a file that was read as unchanging has changed after all."""
        return False

    @property
    def journal_mode(self) -> str | None:
        """The file's journal mode where a connection cannot tell it."""
        return None

    def writer(self, mode: Mode) -> Checkout:
        """The connection that may write, after those who asked before. Raises `BackendBusy` after a minute."""
        if not self._queue.acquire(QUEUE_SECONDS):
            raise BackendBusy("waited too long for the other writers of this process", final=True)
        try:
            return self._open_writer(mode)
        except BaseException:
            self._queue.release()
            raise

    def give_back_writer(self, checkout: Checkout) -> None:
        """End a writer's turn."""
        try:
            self._close_writer(checkout)
        finally:
            self._queue.release()

    @abstractmethod
    def reader(self, mode: Mode) -> Checkout: ...

    @abstractmethod
    def give_back_reader(self, checkout: Checkout) -> None: ...

    @abstractmethod
    def close(self) -> None: ...

    def forked(self) -> None:  # noqa: B027 - only files have locks that a child would mistake for its own
        """In a child process: leave the parent's connections alone."""

    @abstractmethod
    def _open_writer(self, mode: Mode) -> Checkout: ...

    @abstractmethod
    def _close_writer(self, checkout: Checkout) -> None: ...


class FileConnections(Connections):
    """A writer and readers of one file, kept open between units."""

    def __init__(self, path: Path, options: Options) -> None:
        super().__init__()
        self._path = path
        self._options = options
        self._pragmas = tuple(pragmas(options, files.file_system(path)))
        self._writer: sqlite3.Connection | None = None
        self._readers: list[sqlite3.Connection] = []
        #: The readers that are not among the idle ones, for the sake of a forked child.
        self._lent: set[sqlite3.Connection] = set()
        self._guard = threading.Lock()
        self._closed = False
        self._glance = Glance(path) if options.glance and options.read_only else None

    @property
    def disturbed(self) -> bool:
        return self._glance is not None and self._glance.disturbed

    @property
    def journal_mode(self) -> str | None:
        return self._glance.journal_mode if self._glance is not None else None

    def reader(self, mode: Mode) -> Checkout:
        try:
            connection = self._readers.pop()
        except IndexError:
            connection = self._connect()
            connection.execute("PRAGMA query_only = ON")
        self._lent.add(connection)
        return Checkout(connection, mode)

    def give_back_reader(self, checkout: Checkout) -> None:
        with self._guard:
            self._lent.discard(checkout.driver)
            if not (self._closed or checkout.broken):
                self._readers.append(checkout.driver)
                return
        checkout.driver.close()

    def close(self) -> None:
        with self._guard:
            self._closed = True
            held, self._readers = self._readers, []
        for reader in held:
            reader.close()
        if self._queue.acquire(QUEUE_SECONDS):
            writer, self._writer = self._writer, None
            if writer is not None:
                _close_optimized(writer, self._options)
            self._queue.release()

    def forked(self) -> None:
        writer = [self._writer] if self._writer is not None else []
        busy = self._queue.held
        sqlite_forks.inherit(
            self._path,
            idle=[*self._readers, *([] if busy else writer)],
            in_use=[*self._lent, *(writer if busy else [])],
        )
        self._readers, self._lent, self._writer = [], set(), None

    def _open_writer(self, mode: Mode) -> Checkout:
        if self._writer is None:
            files.create_private_file(self._path)
            files.refuse_unwritable(self._path)
            self._writer = self._connect()
        return Checkout(self._writer, mode)

    def _close_writer(self, checkout: Checkout) -> None:
        if checkout.broken or self._closed:
            self._writer = None
            checkout.driver.close()

    def _connect(self) -> sqlite3.Connection:
        sqlite_forks.let_go(self._path)
        access = "mode=ro" if self._options.read_only else "mode=rw"
        if self._glance is not None and self._glance.possible:
            access = "mode=ro&immutable=1"
        connection = sqlite3.connect(
            f"file://{quote(str(self._path))}?{access}",
            uri=True,
            timeout=BUSY_SECONDS,
            isolation_level=None,
            check_same_thread=False,
            cached_statements=512,
        )
        try:
            set_up(connection, self._pragmas)
        except BaseException as error:
            connection.close()
            if isinstance(error, sqlite3.Error) and not self._options.read_only:
                files.refuse_unwritable(self._path)  # SQLite says only that it may read
            raise
        return connection


class SharedConnection(Connections):
    """A database in memory: one connection, one unit at a time, readers included."""

    def __init__(self, options: Options) -> None:
        super().__init__()
        self._connection = sqlite3.connect(
            ":memory:", isolation_level=None, check_same_thread=False, cached_statements=512
        )
        set_up(self._connection, tuple(pragmas(options, None)))

    def reader(self, mode: Mode) -> Checkout:
        return self.writer(mode)

    def give_back_reader(self, checkout: Checkout) -> None:
        self.give_back_writer(checkout)

    def close(self) -> None:
        if self._queue.acquire(QUEUE_SECONDS):
            self._connection.close()
            self._queue.release()

    def _open_writer(self, mode: Mode) -> Checkout:
        return Checkout(self._connection, mode)

    def _close_writer(self, checkout: Checkout) -> None:
        """Kept: the database is this connection."""


class EngineConnections(Connections):
    """A caller's engine. Each checkout gets our settings; each return gives the driver's own transactions back.

    On a database in memory readers wait for the writer, because they may share its connection.
    """

    def __init__(self, engine: Engine, options: Options) -> None:
        super().__init__()
        self._engine = engine
        path = _file_of(engine)
        self._in_memory = path is None
        self._pragmas = tuple(pragmas(options, None if path is None else files.file_system(path)))

    def reader(self, mode: Mode) -> Checkout:
        return self.writer(mode) if self._in_memory else self._open_writer(mode)

    def give_back_reader(self, checkout: Checkout) -> None:
        if self._in_memory:
            self.give_back_writer(checkout)
        else:
            self._close_writer(checkout)

    def close(self) -> None:
        """The engine is the caller's."""

    def _open_writer(self, mode: Mode) -> Checkout:
        owner = self._checkout()
        driver: Any = owner.dbapi_connection
        checkout = Checkout(driver, mode, owner=owner, before=driver.isolation_level)
        try:
            driver.isolation_level = None
            set_up(driver, self._pragmas)
        except BaseException:
            checkout.broken = True
            self._close_writer(checkout)
            raise
        return checkout

    def _close_writer(self, checkout: Checkout) -> None:
        if checkout.broken:
            checkout.owner.invalidate()
            return
        checkout.driver.isolation_level = checkout.before
        checkout.owner.close()

    def _checkout(self) -> Any:
        try:
            return self._engine.raw_connection()
        except PoolTimeout as error:
            raise BackendUnavailable("all connections of the pool stayed in use", reason="pool") from error
        except SQLAlchemyError as error:
            raise getattr(error, "orig", None) or error from None


def _file_of(engine: Engine) -> Path | None:
    """The file that an engine connects to, None for a database in memory."""
    name = (engine.url.database or "").removeprefix("file:").partition("?")[0]
    in_memory = name in ("", ":memory:") or engine.url.query.get("mode") == "memory"
    return None if in_memory else Path(name)


def _close_optimized(connection: sqlite3.Connection, options: Options) -> None:
    try:
        if not options.read_only:
            connection.execute("PRAGMA optimize")
    except sqlite3.Error as error:
        _log.debug("PRAGMA optimize at close: %s", error)
    connection.close()
