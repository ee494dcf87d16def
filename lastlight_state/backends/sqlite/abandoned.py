"""Reading a file whose writer died inside a transaction, without writing the file or its journal.

SQLite finds the dead writer's journal and must roll it back before anybody reads. A connection that may only read
cannot. So the file and its journal are copied to a private directory, the copy is rolled back and checked, and read
until the file changes again. Its owner's next write recovers the file itself.

Another process makes the copy: closing any descriptor of a file drops the locks that this process has on it.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import weakref
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import TypeAlias

from lastlight_state.backends.sqlite.errors import is_locked
from lastlight_state.errors import BackendBusy, BackendUnavailable

_Connect: TypeAlias = Callable[[Path], sqlite3.Connection]
_Mark: TypeAlias = "tuple[tuple[int, int, int] | None, ...]"

_SUFFIXES = ("", "-journal", "-wal")
#: A journal that ends so names another file, which SQLite would open and might delete. None of ours does.
_NAMES_ANOTHER = bytes.fromhex("d9d505f920a163d7")
_TRIES = 5
#: Copies regular files alone, whatever somebody puts in their place meanwhile.
_COPY = """
import os, shutil, stat, sys
for source, target in zip(sys.argv[1::2], sys.argv[2::2]):
    held = os.open(source, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(held).st_mode):
        sys.exit(1)
    with open(held, "rb") as read, open(target, "xb") as written:
        shutil.copyfileobj(read, written)
"""


class _Copy:
    """A private copy, removed when nobody refers to it any more. ``mark`` is what its original was like."""

    def __init__(self, mark: _Mark) -> None:
        self.mark = mark
        directory = tempfile.mkdtemp(prefix="lastlight-")
        self.path = Path(directory) / "copy.db"
        weakref.finalize(self, _remove, directory, os.getpid())


class Abandoned:
    """Connects to one file for reading: to the file itself, or to a copy if its writer died.

    ``copied`` is called after a copy was made.
    """

    def __init__(self, path: Path, copied: Callable[[], object]) -> None:
        self._path = path
        self._copied = copied
        self._copy: _Copy | None = None

    def connected(self, connect: _Connect) -> sqlite3.Connection:
        """A connection that can be read. Raises `BackendBusy`, and `BackendUnavailable` for a damaged file."""
        copy = self._copy
        if copy is not None and copy.mark == self._mark():
            return connect(copy.path)
        try:
            return _probed(connect(self._path))
        except sqlite3.Error as error:
            if not self._needs_recovery(error):
                raise
        return connect(self._take_copy().path)

    def _needs_recovery(self, error: sqlite3.Error) -> bool:
        name = getattr(error, "sqlite_errorname", "")
        if name.startswith(("SQLITE_READONLY", "SQLITE_CANTOPEN")):
            return any(mark is not None for mark in self._mark()[1:])
        return False

    def _take_copy(self) -> _Copy:
        for _ in range(_TRIES):
            before = self._mark()
            copy = _Copy(before)
            suffixes = [suffix for suffix, mark in zip(_SUFFIXES, before, strict=True) if mark is not None]
            pairs = [part for suffix in suffixes for part in (f"{self._path}{suffix}", f"{copy.path}{suffix}")]
            command = [sys.executable, "-I", "-c", _COPY, *pairs]
            done = subprocess.run(command, check=False, capture_output=True)  # noqa: S603 - our own interpreter
            if done.returncode == 0 and before == self._mark():
                _recover(copy.path)
                self._copy = copy
                self._copied()
                return copy
        raise BackendBusy("the file of a crashed writer changed while it was copied")

    def _mark(self) -> _Mark:
        """What changes when somebody writes the file or its journal."""
        return tuple(_mark_of(f"{self._path}{suffix}") for suffix in _SUFFIXES)


def _probed(connection: sqlite3.Connection) -> sqlite3.Connection:
    """The connection, after it has read the file once."""
    try:
        connection.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchall()
    except BaseException:
        connection.close()
        raise
    return connection


def _remove(directory: str, maker: int) -> None:
    """Remove a copy; not in a forked child, whose parent may still read it."""
    if os.getpid() == maker:
        shutil.rmtree(directory, ignore_errors=True)


def _mark_of(path: str) -> tuple[int, int, int] | None:
    try:
        found = os.stat(path, follow_symlinks=False)  # noqa: PTH116
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns


def _recover(copy: Path) -> None:
    """Roll the copy back to its last commit. Raises `BackendUnavailable` for one that is damaged."""
    journal = Path(f"{copy}-journal")
    if journal.exists() and journal.read_bytes()[-len(_NAMES_ANOTHER) :] == _NAMES_ANOTHER:
        raise BackendUnavailable(
            "the file's journal names another journal, which is not followed", reason="not_a_database"
        )
    try:
        with closing(sqlite3.connect(copy)) as connection:
            [(answer,)] = connection.execute("PRAGMA quick_check(1)").fetchall()
    except sqlite3.Error as error:
        if is_locked(error):
            raise BackendBusy("the copy of a crashed writer's file is locked") from error
        answer = str(error)
    if answer != "ok":
        raise BackendUnavailable(f"the file of a crashed writer cannot be read: {answer}", reason="not_a_database")
