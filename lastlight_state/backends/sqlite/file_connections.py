"""Connections to one SQLite file: a writer and readers, kept open between units."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias, TypeVar
from urllib.parse import quote

from lastlight_state.backends import waiting
from lastlight_state.backends.base import Checkout, Mode, Options
from lastlight_state.backends.sqlite import checkpoints, files, locked_reads, untrusted
from lastlight_state.backends.sqlite.connections import Connections, undo
from lastlight_state.backends.sqlite.dbapi import connect, sqlite3
from lastlight_state.backends.sqlite.locked_reads import FileReader, Probe
from lastlight_state.backends.sqlite.pragmas import SYNCED, patience, pragmas, set_up
from lastlight_state.errors import BackendUnavailable, MisuseError

# Treatment of the parent's connections to SQLite files in a forked child.
#
# A child inherits SQLite's notes of the locks that the process holds, but not the locks. A new connection of the child
# to the same file would trust those notes, take no lock, and lose its commits when the parent closes the file. So
# before a child connects to such a file, it closes the connections that it inherited. They were idle, so closing them
# touches nothing of the parent's. A connection that was in use at the fork cannot be closed. The child then cannot use
# the file.

_File: TypeAlias = "tuple[int, int]"


@dataclass
class _Inherited:
    idle: list[sqlite3.Connection]
    in_use: list[object]


_inherited: dict[_File, list[_Inherited]] = {}


def inherit(path: Path, *, idle: Iterable[sqlite3.Connection], in_use: Iterable[object]) -> None:
    """Keep a forked child from closing the parent's connections to a file, also by garbage collection."""
    found = _identity(path)
    if found is not None:
        _inherited.setdefault(found, []).append(_Inherited(list(idle), list(in_use)))


def let_go(path: Path) -> None:
    """Close the connections to the file that this process inherited, before it opens a new one.

    Raises `MisuseError` if the parent was inside a unit on one of them.
    """
    found = _identity(path) if _inherited else None
    if found is None:
        return
    everything = _inherited.get(found, [])
    if any(inherited.in_use for inherited in everything):  # before closing any: SQLite's locks may be taken
        raise MisuseError("this process was forked while its parent was using the file: spawn it instead")
    for inherited in everything:
        while inherited.idle:
            inherited.idle.pop().close()


def _identity(path: Path) -> _File | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


_C = TypeVar("_C", bound=sqlite3.Connection)

#: The most units of coroutines that may wait for one commit together, if commits wait for the disk.
SHARING_WRITERS = 32
#: The seconds between two reads of a journal that names a second one.
_PAUSE_SECONDS = 0.01
_READS, _UNCHANGING = "mode=ro", "mode=ro&immutable=1"

_log = logging.getLogger("lastlight_state.backends")


class FileConnections(Connections):
    """A writer and readers of one file, kept open between units."""

    def __init__(self, path: Path, options: Options, copied: Callable[[], object]) -> None:
        super().__init__(options)
        self._path = path
        self._settings = tuple(pragmas(options, files.file_system(path)))
        self.log = checkpoints.log_of(path, options, self._settings)
        self._readers: list[sqlite3.Connection] = []
        #: The checkout that has each reader, or is about to open one. A reader is taken by an entry here.
        self._lent: dict[object, Checkout] = {}
        self._closed = False
        #: True if connections stay open between units.
        self._keeps = self._stays = not options.across_mounts
        self.shares = self._keeps and not options.foreign
        if self.shares and SYNCED in self._settings:
            self.writers = SHARING_WRITERS
        self._abandoned = FileReader(path, copied)
        self._beside = [str(beside) for beside in files.beside(path)]
        self._named, self._place = str(path), _place(path)
        self._glance = None
        if options.glance:
            self._glance = Probe(path, self._open_for_glance, is_ours=not (options.foreign or options.across_mounts))

    @property
    def is_disturbed(self) -> bool:
        return self._glance is not None and self._glance.is_disturbed

    @property
    def journal_mode(self) -> str | None:
        return self._glance.journal_mode if self._glance is not None else None

    def reader(self, checkout: Checkout) -> None:
        lent = self._lent
        for connection in reversed(self._readers):
            if lent.setdefault(connection, checkout) is checkout:
                if connection in self._readers:
                    checkout.attach(connection)
                    return
                lent.pop(connection, None)  # closed at this moment
        self._open_reader(checkout)

    def give_back_reader(self, checkout: Checkout) -> None:
        connection = checkout.driver
        if self._lent.get(connection) is not checkout:
            return
        if checkout.broken or self._closed or not self._keeps:
            self._close_reader(connection)
        else:
            self._lent.pop(connection, None)
            if not self._stays:  # closed while it was returned
                self._close_idle()

    def recover(self, checkout: Checkout) -> None:
        if checkout.mode.writes:
            super().recover(checkout)
        else:
            for connection, holder in self._lent.copy().items():
                if holder is checkout:
                    self._close_reader(connection)

    def close(self) -> None:
        self._stays, self._closed = False, True
        self._close_idle()
        if self._glance is not None:
            self._glance.forget()
        closing = Checkout(Mode.ONE)
        try:
            if self.line.enter(closing, self._options.queue_timeout):
                self._close_writer()
        finally:
            self.line.leave(closing)

    def detach_child(self) -> None:
        busy = self._user is not None
        writer = [self._writer] if self._writer is not None else []
        inherit(
            self._path,
            idle=[*(reader for reader in self._readers if reader not in self._lent), *([] if busy else writer)],
            in_use=[*self._lent, *([self._user, *writer] if busy else [])],
        )
        for checkout in [*self._lent.values(), *([self._user] if self._user is not None else [])]:
            checkout.driver = None  # a block that ends in the child must not use it
        self._readers, self._lent, self._writer = [], {}, None
        self._forget_log()

    def _lend_writer(self, checkout: Checkout) -> None:
        if self._keeps:
            files.create_private_file(self._path)
        files.refuse_unwritable(self._path)
        self._writer = self._connect(writes=True)
        checkout.attach(self._writer)

    def _take_back_writer(self, checkout: Checkout) -> None:
        if checkout.committed and self._writer is not None and not self._keeps:
            self._writer.close()
            self._writer = None
        else:
            self._discard(checkout)

    def _discard(self, cut_off: Checkout) -> None:
        self._forget_log()  # the log is gone once the last connection is closed
        writer = self._writer
        if writer is not None:
            undo(writer)
            writer.close()
            self._writer = None

    def _close_writer(self) -> None:
        if self._user is not None:
            self._discard(self._user)
            self._user = None
        writer, self._writer = self._writer, None
        self._forget_log()
        if writer is not None:
            _close_optimized(writer, self._options)

    def _open_reader(self, checkout: Checkout) -> None:
        self._dismiss_the_gone()
        self._lent[checkout] = checkout
        try:
            connection = self._connect(writes=False)
            self._lent[connection] = checkout
            self._readers.append(connection)
            if not (self._options.read_only and self._options.across_mounts):
                connection.execute("PRAGMA query_only = ON")
            checkout.attach(connection)
        finally:
            self._lent.pop(checkout, None)

    def _dismiss_the_gone(self) -> None:
        """Close the readers of interrupted units, because an open read keeps SQLite from restarting the log."""
        for connection, checkout in self._lent.copy().items():
            if checkout.is_gone:
                self._close_reader(connection)

    def _close_reader(self, connection: Any) -> None:
        if connection in self._readers:
            connection.close()
            try:
                self._readers.remove(connection)
            except ValueError:  # another thread closes it too
                pass
            finally:
                self._lent.pop(connection, None)
        self._lent.pop(connection, None)

    def _close_idle(self) -> None:
        closing = Checkout(Mode.READ)
        for reader in list(self._readers):
            if self._lent.setdefault(reader, closing) is closing:
                self._close_reader(reader)

    def _connect(self, *, writes: bool) -> sqlite3.Connection:
        let_go(self._path)
        if self._glance is not None:
            return self._glance.open_connection()
        access = _READS if self._options.read_only else "mode=rw"
        if self._keeps:
            return self._open_and_set_up(self._path, access, writes=writes)
        if not self._options.read_only:
            return untrusted.open_regular_file(self._path, self._opened_writer, self._set_up_writer)
        return self._abandoned.open_connection(self._open_locked, self._read)

    def _opened_writer(self) -> sqlite3.Connection:
        """Return a connection to a file. `open_regular_file` first checks that no FIFO lies next to the file."""
        _refuse_another_journal(self._beside[2], self._options.busy_timeout)
        return _open_database(self._place, "mode=rw", sqlite3.Connection, patience(self._options, writes=True))

    def _open_for_glance(self, path: Path, access: str) -> sqlite3.Connection:
        """Return a connection to the file or our private copy, by `open_regular_file` if others may write it."""
        options, is_copy = self._options, path.parent != files.real(self._path.parent)
        if (options.foreign or options.across_mounts) and not is_copy:
            return untrusted.open_regular_file(
                path, lambda: self._open_path(path, access), lambda made: self._set_up(made, writes=False)
            )
        return self._open_and_set_up(path, access, writes=False)

    def _open_locked(self) -> sqlite3.Connection | None:
        """Return a connection to another party's file that locks out writers; None if the file's writer crashed."""
        kind = locked_reads.WatchedLock if self._options.foreign else locked_reads.LockedConnection
        unchanging = partial(_open_database, self._place, _UNCHANGING, kind)
        connection = None
        try:
            connection = locked_reads.open_locked(self._path, unchanging, self._options.busy_timeout)
            return None if connection is None else self._set_up(connection, writes=False)
        except BaseException:  # a signal's, before the set-up has begun: the lock must not remain
            if connection is not None:
                connection.close()
            raise

    def _read(self, path: Path) -> sqlite3.Connection:
        """Return a connection with SQLite's own locks to another party's file, or to our private copy of it."""
        if path != self._path:
            return self._open_and_set_up(path, _READS, writes=False)
        return untrusted.open_regular_file(
            path, lambda: self._open_path(path, _READS), lambda made: self._set_up(made, writes=False)
        )

    def _set_up_writer(self, connection: sqlite3.Connection) -> sqlite3.Connection:
        return self._set_up(connection, writes=True)

    def _open_and_set_up(self, path: Path, access: str, *, writes: bool) -> sqlite3.Connection:
        return self._set_up(self._open_path(path, access), writes=writes)

    def _open_path(self, path: Path, access: str) -> sqlite3.Connection:
        files.refuse_beside(path)
        _refuse_another_journal(str(files.beside(path)[2]), self._options.busy_timeout)
        kind = untrusted.Watched if self._options.foreign else sqlite3.Connection
        return _open_database(_place(path), access, kind, patience(self._options, writes=False))

    def _size(self) -> int:
        """Return the total size in bytes of the database file and of the files next to it."""
        return files.size(self._named, *self._beside)

    def _set_up(self, connection: sqlite3.Connection, *, writes: bool) -> sqlite3.Connection:
        try:
            if self._options.foreign and isinstance(connection, untrusted.Watched):
                connection.watch(self._options.read_seconds or untrusted.MOST_SECONDS, self._size())
            elif self._options.across_mounts:
                untrusted.guard(connection, None if writes else self._options.read_seconds, self._size())
                untrusted.remember(connection)
            set_up(connection, self._settings, self._options, writes=writes)
        except BaseException as error:
            connection.close()
            if isinstance(error, sqlite3.Error) and not self._options.read_only:
                files.refuse_unwritable(self._path)  # SQLite would only say that it is read-only
            raise
        return connection


def _refuse_another_journal(journal: str, seconds: float) -> None:
    """Raise `BackendUnavailable` if the file's journal names a second journal for longer than a commit takes."""
    end = None
    while files.names_another(journal):
        end = end or waiting.until(seconds)
        if time.monotonic() >= end:
            name = Path(journal).name
            raise BackendUnavailable(
                f"{name} beside the database names another journal, which SQLite would open and might delete."
                " If a program of yours was killed while it committed to several attached files, open the database"
                " with that program; else move the journal away",
                reason="another_journal",
                path=journal,
            )
        waiting.pause(_PAUSE_SECONDS)


def _place(path: Path) -> str:
    return f"file://{quote(str(path))}"


def _open_database(place: str, access: str, kind: type[_C], timeout: float = 0) -> _C:
    return connect(
        f"{place}?{access}",
        uri=True,
        timeout=timeout,  # 0 until it is set up
        isolation_level=None,
        check_same_thread=False,
        cached_statements=512,
        factory=kind,
    )


def _close_optimized(connection: sqlite3.Connection, options: Options) -> None:
    try:
        if not options.read_only and connection.total_changes:  # a refused file gets no statistics either
            connection.execute("PRAGMA optimize")
    except sqlite3.Error as error:
        _log.debug("PRAGMA optimize at close: %s", error)
    connection.close()
