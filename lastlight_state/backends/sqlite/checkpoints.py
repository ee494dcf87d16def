"""Checkpoints of the write-ahead log, made while nobody commits, for versions of SQLite that lose commits otherwise.

In those versions a checkpoint that begins while another connection commits, and by that starts the log anew, may take
pages of the new log for pages that it has copied (`known_faults.WAL_RESET`). It cannot happen while the writers' lock
is held. The modes FULL, RESTART and TRUNCATE take that lock, but where they do not get it in time SQLite makes a
PASSIVE checkpoint without it. So none of these is asked of such a version. Instead one connection holds the lock by
``BEGIN IMMEDIATE``, and another makes a PASSIVE checkpoint meanwhile. What ends the old log is an ordinary commit.

SQLite's automatic checkpoints are off there: after a commit the log itself is asked how long it is. Closing the last
connection makes a checkpoint, too, under a lock of the whole file; so does leaving WAL mode.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from lastlight_state.backends import known_faults, waiting
from lastlight_state.backends.base import Options
from lastlight_state.backends.sqlite import files
from lastlight_state.backends.sqlite.dbapi import connect, sqlite3

#: Whether this version of SQLite needs it.
NEEDED = known_faults.WAL_RESET.affects(sqlite3.sqlite_version)

#: Of the log: the sizes of its header and of what precedes each page, and where the header has the size of a page.
_HEADER, _FRAME, _PAGE_SIZE = 32, 24, slice(8, 12)
#: Two numbers that are new whenever the log starts anew: where they stand in its header, and before each page.
_SALTS, _SALTS_OF_FRAME = slice(16, 24), slice(8, 16)

_PAUSE_SECONDS = 0.005
#: For how long writers wait for readers of a log that grows on, in seconds for each time that it has its usual length.
_WAIT_SECONDS, _LONGEST_WAIT = 0.01, 1.0
#: The parts of the usual length by which the log grows between two checkpoints, while readers keep it from ending.
_PARTS = 4


class WriteAheadLog:
    """The log beside a file, and whether it has so many pages that a checkpoint is due. ``pages`` 0: it never is.

    To be asked after each commit, so it costs one read of a few bytes: the place of the page that makes a checkpoint
    due holds what it held before, until the log has become as long again.
    """

    def __init__(self, database: Path, pages: int) -> None:
        self.pages = self._next = pages
        self._database = database
        self._file: int | None = None
        self._salts = self._seen = b""
        self._at = 0

    def is_due(self) -> bool:
        """True if a checkpoint is due."""
        if not self.pages:
            return False
        file = self._file
        try:
            if file is None:
                file = self._file = os.open(files.beside(self._database)[0], os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
            if self._next == self.pages and os.pread(file, _FRAME, self._at) == self._seen:
                return False
            return self._is_long(file)
        except OSError:  # no log
            return False

    @property
    def grows_on(self) -> bool:
        """True if a checkpoint was made of this log, and readers kept it from starting anew."""
        return self._next != self.pages

    def tried(self, pages: int) -> None:
        """Remember a checkpoint of a log of so many pages. The next is due when it has grown on, or started anew."""
        self._next = pages + max(1, self.pages // _PARTS)

    @property
    def salts(self) -> bytes:
        """Return what tells the log from the one before it."""
        try:
            with files.beside(self._database)[0].open("rb") as file:
                return file.read(_HEADER)[_SALTS]
        except OSError:
            return b""

    def __del__(self) -> None:
        self.forget()  # of a store that nobody closed

    def forget(self) -> None:
        """Close the file of the log, which is another one after its last connection was closed."""
        file, self._file = self._file, None
        if file is not None:
            os.close(file)

    def _is_long(self, file: int) -> bool:
        header = os.pread(file, _HEADER, 0)
        if len(header) < _HEADER:
            return False
        if header[_SALTS] != self._salts:
            self._salts, self._next = header[_SALTS], self.pages
        at = _HEADER + (self._next - 1) * (_FRAME + int.from_bytes(header[_PAGE_SIZE], "big"))
        frame = os.pread(file, _FRAME, at)
        if frame[_SALTS_OF_FRAME] == self._salts:
            return True
        if self._next == self.pages:
            self._at, self._seen = at, frame
        return False


def bring_in(log: WriteAheadLog, writer: Any, reader: Any) -> None:
    """Copy a log that is due into its file, with the ``writer`` idle. Raises the driver's errors; then it stays due."""
    with _Writers(writer):
        _, pages, _ = _copied(reader, 0)
        if log.grows_on:
            _copied(reader, min(_LONGEST_WAIT, _WAIT_SECONDS * pages / log.pages))
    log.tried(pages)


def made(log: WriteAheadLog, writer: Any, reader: Any, mode: str, seconds: float) -> tuple[bool, int, int] | None:
    """Make a checkpoint in one of SQLite's modes, and return what its pragma says; None for a file without a log.

    Readers are waited for as long as the mode says, for so many seconds at most. A log that is given back keeps a page.
    """
    end = time.monotonic() + seconds
    with _Writers(writer):
        busy, pages, copied = _copied(reader, 0 if mode == "PASSIVE" else seconds, is_complete=True)
    if pages < 0:
        return None
    if mode in ("PASSIVE", "FULL"):
        return busy or (mode == "FULL" and copied < pages), pages, copied
    started = pages == 0 or _started_anew(log, writer, reader, end, cut=mode == "TRUNCATE")
    return (False, 0, 0) if started and mode == "TRUNCATE" else (not started, pages, copied)


class _Writers:
    """Keeps all writers waiting while the block lasts. The connection is in no transaction."""

    def __init__(self, writer: Any) -> None:
        self._writer = writer

    def __enter__(self) -> None:
        self._writer.execute("BEGIN IMMEDIATE")

    def __exit__(self, *raised: object) -> None:
        self._writer.execute("ROLLBACK")


def _copied(reader: Any, seconds: float, *, is_complete: bool = False) -> tuple[bool, int, int]:
    """Copy what readers let through, for so many seconds; ``is_complete``: or until all is copied."""
    end = time.monotonic() + seconds
    while True:
        busy, pages, copied = reader.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
        left = end - time.monotonic()
        if left <= 0 or (is_complete and copied == pages):
            return bool(busy), pages, copied
        waiting.pause(min(left, _PAUSE_SECONDS))


def _started_anew(log: WriteAheadLog, writer: Any, reader: Any, end: float, *, cut: bool) -> bool:
    """Commit a page as it is, until the log starts with it. False if readers of the old log stay until the end."""
    before, pause = log.salts, _PAUSE_SECONDS
    limit = writer.execute("PRAGMA journal_size_limit").fetchone()[0]
    try:
        if cut:
            writer.execute("PRAGMA journal_size_limit = 0")
        while True:
            _rewrite_first_page(writer)
            if log.salts != before:
                return True
            if time.monotonic() + pause > end:
                return False
            waiting.pause(pause)
            pause *= 2
            with _Writers(writer):
                _copied(reader, 0)
    finally:
        writer.execute(f"PRAGMA journal_size_limit = {limit}")


def _rewrite_first_page(writer: Any) -> None:
    writer.execute("BEGIN IMMEDIATE")
    try:
        version = writer.execute("PRAGMA user_version").fetchone()[0]
        writer.execute(f"PRAGMA user_version = {version}")
        writer.execute("COMMIT")
    except BaseException:
        if writer.in_transaction:
            writer.execute("ROLLBACK")
        raise


def log_of(database: Path, options: Options, settings: tuple[str, ...]) -> WriteAheadLog | None:
    """Return the log of a file with these settings, if SQLite must not make its checkpoints."""
    return WriteAheadLog(database, options.wal_autocheckpoint) if NEEDED and "journal_mode = WAL" in settings else None


def pragma(pages: int) -> str:
    """Return the setting of a connection for automatic checkpoints, by the number of pages that somebody asked for."""
    return f"wal_autocheckpoint = {0 if NEEDED else pages}"


def plain_connection(path: str) -> sqlite3.Connection:
    """Return a connection to a file as it is, without a setting of ours but the one for automatic checkpoints."""
    connection = connect(path, isolation_level=None, check_same_thread=False)
    if NEEDED:
        connection.execute("PRAGMA wal_autocheckpoint = 0")
    return connection
