"""Reads a database file that another party may write, so that SQLite opens that file and no file next to it.

SQLite opens any journal or log next to a file, even if another party has replaced it. It waits for ever for a FIFO, and
if a log's index is truncated while it is mapped, the process crashes. So SQLite is told that the file does not change.
It then looks for no journal and takes no lock. This module takes the reader's lock instead, on SQLite's own descriptor
and at SQLite's own lock bytes, so that a writer waits as for any reader. It is an open file description (OFD) lock:
other locks of this process on the file neither replace nor release it.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import struct
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

from lastlight_state.backends import waiting
from lastlight_state.backends.sqlite import files, private_copies, untrusted
from lastlight_state.backends.sqlite.dbapi import error_name, sqlite3
from lastlight_state.backends.sqlite.private_copies import PrivateCopy, state_of
from lastlight_state.errors import BackendBusy
from lastlight_state.locks import Lock

#: The lock bytes of SQLite, as in its ``os.h``.
_PENDING, _RESERVED, _SHARED, _SHARED_LENGTH = 0x40000000, 0x40000001, 0x40000002, 510
_LENGTH = _SHARED + _SHARED_LENGTH - _PENDING
_SET, _GET = getattr(fcntl, "F_OFD_SETLK", None), getattr(fcntl, "F_OFD_GETLK", None)
#: True if this system has OFD locks.
IS_POSSIBLE = _SET is not None and _GET is not None
_LOCK = "hhqqi"
_IS_TAKEN = (errno.EAGAIN, errno.EACCES)
#: How often SQLite may open another file, or reuse a descriptor, before that counts as an error.
_MOST_MISSES = 5
_PAUSE_SECONDS, _MISSED_SECONDS = 0.01, 0.001


class LockedConnection(sqlite3.Connection):
    """A connection to a file that is locked against changes until the connection is closed.

    All its reads see the same state, without a transaction.
    """

    descriptor: int | None = None

    def close(self) -> None:
        held, self.descriptor = self.descriptor, None
        try:
            if held is not None:  # SQLite may keep the descriptor for its next connection
                _set(held, fcntl.F_UNLCK, _PENDING, _LENGTH)
        except (OSError, LockUnavailable):
            pass
        finally:
            super().close()


class WatchedLock(LockedConnection, untrusted.Watched):
    """A connection to another program's file that is locked against changes until the connection is closed."""


class LockUnavailable(Exception):
    """Raised if the file cannot be locked: it has no OFD locks, or SQLite's descriptor of it is unknown."""


def open_locked(path: Path, connect: Callable[[], LockedConnection], seconds: float) -> LockedConnection | None:
    """Return a connection that reads the regular file at an absolute path, or None if the file must be copied.

    It must be copied if a crashed writer left a journal next to it, or if it is in WAL mode. ``connect`` opens the file
    as unchanging. Raises OSError if the file or its journal is a link or not a regular file, `BackendBusy` for a file
    that stays locked for ``seconds``, and `LockUnavailable`.
    """
    end, misses = waiting.until(seconds), 0
    while True:
        connection = None
        try:
            with untrusted.directory(path) as held:
                connection = _attempt(held, path, connect)
        except _Missed:
            misses += 1
            if misses == _MOST_MISSES:
                raise LockUnavailable from None
            pause = _MISSED_SECONDS
        except BlockingIOError:
            pause = _PAUSE_SECONDS
        except BaseException:  # a signal's, while the directory is closed: the lock must not remain
            if connection is not None:
                connection.close()
            raise
        else:
            return connection
        if time.monotonic() + pause > end:
            raise BackendBusy("the database is locked by another writer")
        waiting.pause(pause)


class _Missed(Exception):
    """Raised if SQLite opened another file than expected, or if the file grew after SQLite opened it."""


def _attempt(held: int, path: Path, connect: Callable[[], LockedConnection]) -> LockedConnection | None:
    found = untrusted.regular(held, path.name, path)
    connection, descriptor = untrusted.open_with_descriptor((found.st_dev, found.st_ino), held, connect)
    try:
        if not _is_left(held, path, _hold(connection, descriptor, found.st_size)):
            return connection
    except BaseException:
        connection.close()
        raise
    connection.close()
    return None


def _hold(connection: LockedConnection, descriptor: int | None, size: int) -> int:
    """Lock the file that the connection opened. Raises `_Missed` if its size changed since SQLite counted its pages."""
    if descriptor is None:
        raise _Missed
    connection.descriptor = descriptor  # before the lock: a signal may raise in between
    _take(descriptor)
    if os.fstat(descriptor).st_size != size:
        raise _Missed
    return descriptor


def _take(descriptor: int) -> None:
    """Lock a file as SQLite's readers do. Raises BlockingIOError if a writer keeps readers out."""
    _set(descriptor, fcntl.F_RDLCK, _PENDING, 1)
    try:
        _set(descriptor, fcntl.F_RDLCK, _SHARED, _SHARED_LENGTH)
    finally:
        _set(descriptor, fcntl.F_UNLCK, _PENDING, 1)


def _is_left(held: int, path: Path, descriptor: int) -> bool:
    """True if a journal or log next to the file must be applied to it, and no process is about to do so.

    Always true for a file in WAL mode, because its writers do not wait for readers.
    """
    name = path.name
    if os.pread(descriptor, len(_WAL_FORMAT), _FORMAT_AT) == _WAL_FORMAT:
        return True
    try:
        if untrusted.regular(held, f"{name}-wal", path).st_size > 0:
            return True
    except FileNotFoundError:
        pass
    try:
        journal = os.open(f"{name}-journal", untrusted.TO_READ, dir_fd=held)
    except FileNotFoundError:
        return False
    try:
        if not stat.S_ISREG(os.fstat(journal).st_mode):
            raise OSError(errno.EINVAL, f"expected a regular file: {name}-journal", str(path))
        return os.read(journal, 1) not in (b"", b"\0") and not _is_reserved(descriptor)
    finally:
        os.close(journal)


def _is_reserved(descriptor: int) -> bool:
    asked = struct.pack(_LOCK, fcntl.F_WRLCK, os.SEEK_SET, _RESERVED, 1, 0)
    answer = struct.unpack(_LOCK, fcntl.fcntl(descriptor, _GET or 0, asked))
    return bool(answer[0] != fcntl.F_UNLCK)


def _set(descriptor: int, kind: int, begin: int, length: int) -> None:
    try:
        fcntl.fcntl(descriptor, _SET or 0, struct.pack(_LOCK, kind, os.SEEK_SET, begin, length, 0))
    except OSError as error:
        if error.errno in _IS_TAKEN:
            raise BlockingIOError(error.errno, error.strerror) from error
        raise LockUnavailable from error


# Reads a file whose writer died inside a transaction, without writing the file or its journal.
#
# SQLite finds the dead writer's journal and must roll it back before anybody reads. A read-only connection cannot do
# that. So a private copy of the file and its journal is rolled back, checked, and read until the file changes again.
# Its owner's next write recovers the file itself. A file in WAL mode is read in the same way.

_Connect: TypeAlias = Callable[[Path], sqlite3.Connection]
_Hold: TypeAlias = "Callable[[], sqlite3.Connection | None]"


class FileReader:
    """Connects to one file for reading. If the file's writer crashed or the file is in WAL mode, it connects to a copy.

    ``copied`` is called after each copy.
    """

    def __init__(self, path: Path, copied: Callable[[], object]) -> None:
        self._path = path
        self._copied = copied
        self._copy: PrivateCopy | None = None

    def open_connection(self, hold: _Hold, connect: _Connect) -> sqlite3.Connection:
        """Return a connection for reading. Raises `BackendBusy`, and `BackendUnavailable` for a damaged file.

        ``hold`` connects to the file and locks it, or returns None if the file must be copied. If locks are
        unavailable, ``connect`` is used instead.
        """
        copy = self._copy
        if copy is not None and copy.mark == private_copies.stamps_of(self._path):
            return connect(copy.path)
        found = self._open_in_place(hold, connect)
        if found is not None:
            return found
        self._copy = copy = private_copies.take_copy(self._path, checked=True)
        self._copied()
        return connect(copy.path)

    def _open_in_place(self, hold: _Hold, connect: _Connect) -> sqlite3.Connection | None:
        if IS_POSSIBLE:
            try:
                return hold()
            except LockUnavailable:
                pass  # SQLite's own locks are used then
        try:
            return _probe_connection(connect(self._path))
        except sqlite3.Error as error:
            if not self._needs_recovery(error):
                raise
        return None

    def _needs_recovery(self, error: sqlite3.Error) -> bool:
        name = error_name(error) or ""
        if name.startswith(("SQLITE_READONLY", "SQLITE_CANTOPEN")):
            return any(mark is not None for mark in private_copies.stamps_of(self._path)[1:])
        return False


def _probe_connection(connection: sqlite3.Connection) -> sqlite3.Connection:
    """Read once through the connection, to check that it works, and return it. If the read fails, close it."""
    try:
        connection.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchall()
    except BaseException:
        connection.close()
        raise
    return connection


# Reads a SQLite file without leaving a trace.
#
# Opening a WAL database for reading creates its ``-wal`` and ``-shm`` files, and fails in a read-only directory. A file
# with no WAL and no journal beside it has no live connection that has written. It is read as unchanging, without locks
# and without side files. Whether that was true is checked again at the end. A file whose WAL or journal was left by a
# dead process would be recovered, which writes beside it; so a private copy is read instead. Only a file in use is read
# in the ordinary way.

FileStamp: TypeAlias = "tuple[int, int, int]"

_FORMAT_AT, _WAL_FORMAT = 18, b"\2\2"
_READS, _AS_UNCHANGING = "mode=ro", "mode=ro&immutable=1"


class Probe:
    """A single read of a file. ``connect`` opens a file with the given access, a parameter of SQLite's URIs.

    A file that is not ``is_ours`` is not opened through a link. ``journal_mode`` is ``"wal"`` if the file's header says
    so, because SQLite does not report it for a file that is read as unchanging.
    """

    def __init__(self, path: Path, connect: Callable[[Path, str], sqlite3.Connection], *, is_ours: bool = True) -> None:
        self._path = files.real(path) if is_ours else files.real(path.parent) / path.name
        self._connect = connect
        self._before = _sight(self._path)
        self._turn_lock = Lock()
        self._copy: PrivateCopy | None = None
        self._is_read = False
        self.journal_mode = _journal_mode(self._path) if self._before is not None else None

    @property
    def is_disturbed(self) -> bool:
        """True if the file that was read as unchanging has changed, or has been opened by a writer."""
        return self._before is not None and _sight(self._path) != self._before

    def open_connection(self) -> sqlite3.Connection:
        """Return a connection for reading. Once a copy was made, all connections read that copy.

        Raises `BackendUnavailable` if a copy is needed and cannot be made.
        """
        if self._before is not None:
            try:
                made = self._connect(self._path, _AS_UNCHANGING)
            except sqlite3.DatabaseError:
                if self._is_read or not self.is_disturbed:
                    raise
                self._before = None  # a writer came before the first read: read it as a file in use
            else:
                self._is_read = True
                return made
        with self._turn_lock:
            if self._copy is None:
                self._copy = _copy_if_crashed(self._path)
            copy = self._copy
        return self._connect(self._path if copy is None else copy.path, _READS)

    def forget(self) -> None:
        """Delete the copy."""
        self._copy = None


def _copy_if_crashed(path: Path) -> PrivateCopy | None:
    """Return a copy of a file whose writer crashed. Return None for a file that is in use or missing."""
    standing = state_of(path) if path.exists() else None
    if standing is None or not standing.left:
        return None
    try:
        return private_copies.take_copy(path, checked=False)
    except BackendBusy:  # a process has begun to use it
        return None


def _sight(path: Path) -> FileStamp | None:
    """Return inode, size and modification time of a regular file.

    Return None if it is missing, another kind of file, or in use.
    """
    try:
        if any(_holds(path.with_name(path.name + suffix)) for suffix in ("-wal", "-journal")):
            return None
        found = path.lstat()
    except OSError:  # such as for a name that its suffix makes too long
        return None
    if not stat.S_ISREG(found.st_mode):
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns


def _holds(path: Path) -> bool:
    """True if the file exists and is not empty. An empty one may be left by a process that only read."""
    try:
        return path.stat(follow_symlinks=False).st_size > 0
    except FileNotFoundError:
        return False


def _journal_mode(path: Path) -> str | None:
    try:
        with open(path, "rb", opener=files.without_waiting) as file:
            file.seek(_FORMAT_AT)
            return "wal" if file.read(2) == _WAL_FORMAT else None
    except OSError:  # opening the database reports the reason
        return None
