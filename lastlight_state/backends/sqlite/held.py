"""Reading a database file that another party may write, so that SQLite opens that one file and nothing beside it.

SQLite opens a journal or log that lies beside a file, whatever it is by then: it waits at a FIFO for ever, and a log's
index that is cut short while it is mapped ends the process. So SQLite is told that the file does not change. Then it
looks for no journal, and takes no lock. The lock of a reader is taken here, on SQLite's own descriptor and where SQLite
has it, so that a writer waits as for any reader. It is a lock of the descriptor (OFD): other locks of this process on
the file neither pass for it nor end with it.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import struct
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from lastlight_state.backends import patience
from lastlight_state.backends.sqlite import door
from lastlight_state.errors import BackendBusy

#: Where SQLite's ``os.h`` puts its locks.
_PENDING, _RESERVED, _SHARED, _SHARED_LENGTH = 0x40000000, 0x40000001, 0x40000002, 510
_SET, _GET = getattr(fcntl, "F_OFD_SETLK", None), getattr(fcntl, "F_OFD_GETLK", None)
#: Whether this system has locks of a descriptor.
IS_POSSIBLE = _SET is not None and _GET is not None
_LOCK = "hhqqi"
_IS_TAKEN = (errno.EAGAIN, errno.EACCES)
#: How often SQLite may open another file, or take a descriptor that it has, before that is no accident.
_MOST_MISSES = 5
_PAUSE_SECONDS, _MISSED_SECONDS = 0.01, 0.001


class Connection(door.Watched):
    """A connection to a file that nobody changes until it is closed."""

    descriptor: int | None = None

    def close(self) -> None:
        held, self.descriptor = self.descriptor, None
        if held is not None:  # SQLite may keep the descriptor for its next connection
            with suppress(OSError):
                _set(held, fcntl.F_UNLCK, _SHARED, _SHARED_LENGTH)
        super().close()


class NotPossible(Exception):
    """The file cannot be held: its file system has no such locks, or it is not told which descriptor SQLite has."""


def opened(path: Path, connect: Callable[[], Connection], seconds: float) -> Connection | None:
    """A connection that reads the regular file at an absolute path; None where a writer that died left a journal.

    ``connect`` opens the file as unchanging. Raises OSError for a link or anything else in the place of the file or its
    journal, `BackendBusy` for one that is locked for so many seconds, and `NotPossible`.
    """
    end, misses = patience.until(seconds), 0
    while True:
        with door.directory(path) as held:
            try:
                return _attempt(held, path, connect)
            except _Missed:
                misses += 1
                if misses == _MOST_MISSES:
                    raise NotPossible from None
                pause = _MISSED_SECONDS
            except BlockingIOError:
                pause = _PAUSE_SECONDS
        if time.monotonic() + pause > end:
            raise BackendBusy("the database is locked by another writer")
        patience.pause(pause)


class _Missed(Exception):
    """Another file was opened, or the file grew meanwhile."""


def _attempt(held: int, path: Path, connect: Callable[[], Connection]) -> Connection | None:
    found = door.regular(held, path.name, path)
    connection, descriptor = door.connected((found.st_dev, found.st_ino), held, connect)
    try:
        if not _is_left(held, path, _hold(connection, descriptor, found.st_size)):
            return connection
    except BaseException:
        connection.close()
        raise
    connection.close()
    return None


def _hold(connection: Connection, descriptor: int | None, size: int) -> int:
    """Lock what the connection has opened, if it still has the size by which SQLite has counted its pages."""
    if descriptor is None:
        raise _Missed
    _take(descriptor)
    connection.descriptor = descriptor
    if os.fstat(descriptor).st_size != size:
        raise _Missed
    return descriptor


def _take(descriptor: int) -> None:
    """Lock a file as SQLite does for a reader. Raises BlockingIOError where a writer keeps readers out."""
    _set(descriptor, fcntl.F_RDLCK, _PENDING, 1)
    try:
        _set(descriptor, fcntl.F_RDLCK, _SHARED, _SHARED_LENGTH)
    finally:
        _set(descriptor, fcntl.F_UNLCK, _PENDING, 1)


def _is_left(held: int, path: Path, descriptor: int) -> bool:
    """Whether a journal or log lies beside the file that has to be brought into it, and nobody is about to."""
    with suppress(FileNotFoundError):
        if door.regular(held, f"{path.name}-wal", path).st_size > 0:
            return True
    with suppress(FileNotFoundError):
        journal = os.open(f"{path.name}-journal", door.TO_READ, dir_fd=held)
        try:
            if not stat.S_ISREG(os.fstat(journal).st_mode):
                raise OSError(errno.EINVAL, f"expected a regular file: {path.name}-journal", str(path))
            return os.read(journal, 1) not in (b"", b"\0") and not _is_reserved(descriptor)
        finally:
            os.close(journal)
    return False


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
        raise NotPossible from error
