"""Connections to SQLite: how each is set up, and the three ways of having them.

A file of ours keeps one writer and a few readers open. A database in memory is a single connection that all units
share. A caller's engine lends its own connections, which get our settings at each checkout.
"""

from __future__ import annotations

import logging
import sqlite3
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

from sqlalchemy.engine import Engine

from lastlight_state.backends import files
from lastlight_state.backends.base import Lease, Mode, Options
from lastlight_state.backends.locks import FairLock
from lastlight_state.backends.sqlite_glance import Glance
from lastlight_state.errors import BackendBusy

BUSY_SECONDS = 5.0
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

    def writer(self, mode: Mode) -> Lease:
        """The connection that may write, after those who asked before. Raises `BackendBusy` after a minute."""
        if not self._queue.acquire(QUEUE_SECONDS):
            raise BackendBusy("waited too long for the other writers of this process")
        try:
            return self._open_writer(mode)
        except BaseException:
            self._queue.release()
            raise

    def give_back_writer(self, lease: Lease) -> None:
        """End a writer's turn."""
        try:
            self._close_writer(lease)
        finally:
            self._queue.release()

    @abstractmethod
    def reader(self, mode: Mode) -> Lease: ...

    @abstractmethod
    def give_back_reader(self, lease: Lease) -> None: ...

    @abstractmethod
    def close(self) -> None: ...

    @abstractmethod
    def _open_writer(self, mode: Mode) -> Lease: ...

    @abstractmethod
    def _close_writer(self, lease: Lease) -> None: ...


class FileConnections(Connections):
    """A writer and readers of one file, kept open between units."""

    def __init__(self, path: Path, options: Options) -> None:
        super().__init__()
        self._path = path
        self._options = options
        self._pragmas = tuple(pragmas(options, path))
        self._writer: sqlite3.Connection | None = None
        self._readers: list[sqlite3.Connection] = []
        self._guard = threading.Lock()
        self._closed = False
        self._glance = Glance(path) if options.glance and options.read_only else None

    @property
    def disturbed(self) -> bool:
        return self._glance is not None and self._glance.disturbed

    @property
    def journal_mode(self) -> str | None:
        return self._glance.journal_mode if self._glance is not None else None

    def reader(self, mode: Mode) -> Lease:
        try:
            return Lease(self._readers.pop(), mode)
        except IndexError:
            connection = self._connect()
            connection.execute("PRAGMA query_only = ON")
            return Lease(connection, mode)

    def give_back_reader(self, lease: Lease) -> None:
        with self._guard:
            if not (self._closed or lease.broken):
                self._readers.append(lease.driver)
                return
        lease.driver.close()

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

    def _open_writer(self, mode: Mode) -> Lease:
        if self._writer is None:
            self._writer = self._connect()
        return Lease(self._writer, mode)

    def _close_writer(self, lease: Lease) -> None:
        if lease.broken or self._closed:
            self._writer = None
            lease.driver.close()

    def _connect(self) -> sqlite3.Connection:
        if not self._options.read_only:
            files.create_private_file(self._path)
        access = "mode=ro" if self._options.read_only else "mode=rw"
        if self._glance is not None and self._glance.possible:
            access = "mode=ro&immutable=1"
        connection = sqlite3.connect(
            f"file:{quote(str(self._path))}?{access}",
            uri=True,
            timeout=BUSY_SECONDS,
            isolation_level=None,
            check_same_thread=False,
            cached_statements=512,
        )
        set_up(connection, self._pragmas)
        return connection


class SharedConnection(Connections):
    """A database in memory: one connection, one unit at a time, readers included."""

    def __init__(self, options: Options) -> None:
        super().__init__()
        self._connection = sqlite3.connect(
            ":memory:", isolation_level=None, check_same_thread=False, cached_statements=512
        )
        set_up(self._connection, tuple(pragmas(options, None)))

    def reader(self, mode: Mode) -> Lease:
        return self.writer(mode)

    def give_back_reader(self, lease: Lease) -> None:
        self.give_back_writer(lease)

    def close(self) -> None:
        if self._queue.acquire(QUEUE_SECONDS):
            self._connection.close()
            self._queue.release()

    def _open_writer(self, mode: Mode) -> Lease:
        return Lease(self._connection, mode)

    def _close_writer(self, lease: Lease) -> None:
        """Kept: the database is this connection."""


class EngineConnections(Connections):
    """A caller's engine. Each checkout gets our settings; each return gives the driver's transactions back."""

    def __init__(self, engine: Engine, options: Options) -> None:
        super().__init__()
        self._engine = engine
        path = engine.url.database
        self._pragmas = tuple(pragmas(options, Path(path) if path and path != ":memory:" else None))

    def reader(self, mode: Mode) -> Lease:
        return self._open_writer(mode)

    def give_back_reader(self, lease: Lease) -> None:
        self._close_writer(lease)

    def close(self) -> None:
        """The engine is the caller's."""

    def _open_writer(self, mode: Mode) -> Lease:
        owner = self._engine.raw_connection()
        driver: Any = owner.dbapi_connection
        driver.isolation_level = None
        set_up(driver, self._pragmas)
        return Lease(driver, mode, owner=owner)

    def _close_writer(self, lease: Lease) -> None:
        if lease.broken:
            lease.owner.invalidate()
            return
        lease.driver.isolation_level = ""
        lease.owner.close()


def pragmas(options: Options, path: Path | None) -> Iterator[str]:
    """The settings of a connection, in the order they must be given."""
    journal, synchronous = _journal(options, path)
    yield f"busy_timeout = {int(BUSY_SECONDS * 1000)}"
    if not options.read_only:
        yield f"journal_mode = {journal}"
    yield f"synchronous = {synchronous}"
    yield "foreign_keys = ON"
    yield "recursive_triggers = ON"
    yield f"wal_autocheckpoint = {options.wal_autocheckpoint}"
    yield "cache_size = -16384"
    yield "mmap_size = 134217728"
    yield "temp_store = MEMORY"


def set_up(connection: sqlite3.Connection, settings: tuple[str, ...]) -> None:
    """Apply the settings. Entering WAL mode can meet "locked" on a new file although a busy timeout is set."""
    for setting in settings:
        for pause in (0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, None):
            try:
                connection.execute(f"PRAGMA {setting}")
                break
            except sqlite3.OperationalError as error:
                if pause is None or not error.sqlite_errorname.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
                    raise
                time.sleep(pause)


def _journal(options: Options, path: Path | None) -> tuple[str, str]:
    full = "FULL" if options.durability == "full" else "NORMAL"
    if options.journal_mode:
        return options.journal_mode.upper(), full
    if path is not None and files.is_remote(path):
        _log.warning("%s lies on %s: rollback journal and full sync", path, files.file_system(path))
        return "DELETE", "FULL"
    return "WAL", full


def _close_optimized(connection: sqlite3.Connection, options: Options) -> None:
    try:
        if not options.read_only:
            connection.execute("PRAGMA optimize")
    except sqlite3.Error as error:
        _log.debug("PRAGMA optimize at close: %s", error)
    connection.close()
