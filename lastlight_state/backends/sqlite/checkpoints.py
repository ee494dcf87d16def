"""Checkpoints of the write-ahead log while no connection commits, for SQLite versions that may otherwise lose commits.

In those versions, a checkpoint can begin while another connection's commit restarts the log. It may then mistake pages
of the new log for pages that it has already copied (`known_faults.WAL_RESET`). This cannot happen while the writers'
lock is held. The modes FULL, RESTART and TRUNCATE take that lock; but if they do not get it in time, SQLite makes a
PASSIVE checkpoint without it. So none of these modes is used with such a version. Instead one connection holds the lock
by ``BEGIN IMMEDIATE``, and another makes a PASSIVE checkpoint meanwhile. An ordinary commit then starts the log anew.

SQLite's automatic checkpoints are off for such a version: after a commit, this module checks the length of the log.
SQLite also makes a checkpoint when the last connection is closed and when WAL mode is left, but under a lock of the
whole file.
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

#: True if this version of SQLite has the fault.
NEEDED = known_faults.WAL_RESET.affects(sqlite3.sqlite_version)

#: The sizes of the log's header and of the header before each page, and the position of the page size.
_HEADER, _FRAME, _PAGE_SIZE = 32, 24, slice(8, 12)
#: Positions in the log's header and before each page of two numbers (salts) that are new whenever the log restarts.
_SALTS, _SALTS_OF_FRAME = slice(16, 24), slice(8, 16)

_PAUSE_SECONDS = 0.005
#: The seconds that writers wait for readers of a growing log, for each multiple of the log's usual length.
_WAIT_SECONDS, _LONGEST_WAIT = 0.01, 1.0
#: The fraction of its usual length by which the log grows between two checkpoints while readers keep it from
#: restarting.
_PARTS = 4


class WriteAheadLog:
    """The write-ahead log of a file, and a check whether a checkpoint is due. With ``pages`` 0, none is ever due.

    The check runs after each commit, so it only reads a few bytes: the header of the log's page number ``pages``. That
    header keeps its old content until the log reaches this length again.
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
        except OSError:  # the log does not exist
            return False

    @property
    def grows_on(self) -> bool:
        """True if a checkpoint of this log was made, but readers kept it from restarting."""
        return self._next != self.pages

    def record_checkpoint(self, pages: int) -> None:
        """Record that a checkpoint was made of a log with this number of pages.

        The next checkpoint is due when the log has grown further, or has restarted.
        """
        self._next = pages + max(1, self.pages // _PARTS)

    @property
    def salts(self) -> bytes:
        """Return the log's salts, two numbers that change each time the log restarts."""
        try:
            with files.beside(self._database)[0].open("rb") as file:
                return file.read(_HEADER)[_SALTS]
        except OSError:
            return b""

    def __del__(self) -> None:
        self.forget()  # for a store that nobody closed

    def forget(self) -> None:
        """Close the log's file, because SQLite makes a new one after its last connection was closed."""
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
    """Copy a log whose checkpoint is due into the database file. ``writer`` must be idle.

    After a driver's error it stays due.
    """
    with _Writers(writer):
        _, pages, _ = _copy_pages(reader, 0)
        if log.grows_on:
            _copy_pages(reader, min(_LONGEST_WAIT, _WAIT_SECONDS * pages / log.pages))
    log.record_checkpoint(pages)


def make_checkpoint(
    log: WriteAheadLog, writer: Any, reader: Any, mode: str, seconds: float
) -> tuple[bool, int, int] | None:
    """Make a checkpoint in one of SQLite's modes. Return the row of its pragma, or None for a file without a log.

    Waits for readers as the mode demands, for at most ``seconds``. If the log is truncated, one page remains.
    """
    end = time.monotonic() + seconds
    with _Writers(writer):
        busy, pages, copied = _copy_pages(reader, 0 if mode == "PASSIVE" else seconds, is_complete=True)
    if pages < 0:
        return None
    if mode in ("PASSIVE", "FULL"):
        return busy or (mode == "FULL" and copied < pages), pages, copied
    started = pages == 0 or _started_anew(log, writer, reader, end, cut=mode == "TRUNCATE")
    return (False, 0, 0) if started and mode == "TRUNCATE" else (not started, pages, copied)


class _Writers:
    """A block during which all writers wait. The connection must be in no transaction."""

    def __init__(self, writer: Any) -> None:
        self._writer = writer

    def __enter__(self) -> None:
        self._writer.execute("BEGIN IMMEDIATE")

    def __exit__(self, *raised: object) -> None:
        self._writer.execute("ROLLBACK")


def _copy_pages(reader: Any, seconds: float, *, is_complete: bool = False) -> tuple[bool, int, int]:
    """Copy the pages that readers permit, for at most ``seconds``.

    With ``is_complete``, stop as soon as all are copied.
    """
    end = time.monotonic() + seconds
    while True:
        busy, pages, copied = reader.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
        left = end - time.monotonic()
        if left <= 0 or (is_complete and copied == pages):
            return bool(busy), pages, copied
        waiting.pause(min(left, _PAUSE_SECONDS))


def _started_anew(log: WriteAheadLog, writer: Any, reader: Any, end: float, *, cut: bool) -> bool:
    """Rewrite an unchanged page and commit it, until such a commit restarts the log.

    Returns False if readers keep the old log in use until ``end``.
    """
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
                _copy_pages(reader, 0)
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
    """Return the log of a file if SQLite must not make its own checkpoints with these settings; else None."""
    return WriteAheadLog(database, options.wal_autocheckpoint) if NEEDED and "journal_mode = WAL" in settings else None


def pragma(pages: int) -> str:
    """Return the connection setting that makes SQLite checkpoint automatically after this number of pages."""
    return f"wal_autocheckpoint = {0 if NEEDED else pages}"


def plain_connection(path: str) -> sqlite3.Connection:
    """Return a connection to a file with default settings, except the setting for automatic checkpoints."""
    connection = connect(path, isolation_level=None, check_same_thread=False)
    if NEEDED:
        connection.execute("PRAGMA wal_autocheckpoint = 0")
    return connection
