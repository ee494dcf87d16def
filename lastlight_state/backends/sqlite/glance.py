"""Reads a SQLite file without leaving a trace.

Opening a WAL database for reading makes its ``-wal`` and ``-shm`` files, and fails in a directory that may not be
written. A file with no WAL and no journal beside it has no live connection that has written: it is read as unchanging,
without locks and without side files. Whether that was true is asked again at the end. A file whose WAL or journal was
left by a process that died would be recovered, which writes beside it: a private copy is read instead. Only a file that
somebody uses is read in the ordinary way.
"""

from __future__ import annotations

import sqlite3
import stat
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

from lastlight_state.backends.sqlite import files, private_copies
from lastlight_state.backends.sqlite.private_copies import PrivateCopy
from lastlight_state.backends.sqlite.standing import standing_of
from lastlight_state.errors import BackendBusy

Sight: TypeAlias = "tuple[int, int, int]"

_FORMAT_AT, _WAL_FORMAT = 18, b"\2\2"
_READS, _AS_UNCHANGING = "mode=ro", "mode=ro&immutable=1"


class Glance:
    """One look at a file. ``connect`` opens a file with the access that it is given, in the words of SQLite's URIs.

    A file that is not ``is_ours`` is not looked for behind a link. ``journal_mode`` is ``"wal"`` where the file says
    so; read as unchanging, SQLite itself does not tell.
    """

    def __init__(self, path: Path, connect: Callable[[Path, str], sqlite3.Connection], *, is_ours: bool = True) -> None:
        self._path = files.real(path) if is_ours else files.real(path.parent) / path.name
        self._connect = connect
        self._before = _sight(self._path)
        self._turn = threading.Lock()
        self._copy: PrivateCopy | None = None
        self.journal_mode = _journal_mode(self._path) if self._before is not None else None

    @property
    def disturbed(self) -> bool:
        """Whether the file that was read as unchanging has changed, or got a writer."""
        return self._before is not None and _sight(self._path) != self._before

    def connected(self) -> sqlite3.Connection:
        """A connection that reads. All of them read the same copy, if there is one.

        Raises `BackendUnavailable` where a copy is needed and cannot be made.
        """
        if self._before is not None:
            return self._connect(self._path, _AS_UNCHANGING)
        with self._turn:
            if self._copy is None:
                self._copy = _copied(self._path)
            copy = self._copy
        return self._connect(self._path if copy is None else copy.path, _READS)

    def forget(self) -> None:
        """Remove the copy."""
        self._copy = None


def _copied(path: Path) -> PrivateCopy | None:
    """A copy of a file whose writer died; None for one that is used, or is missing."""
    standing = standing_of(path) if path.exists() else None
    if standing is None or not standing.left:
        return None
    try:
        return private_copies.taken(path, checked=False)
    except BackendBusy:  # somebody has begun to use it
        return None


def _sight(path: Path) -> Sight | None:
    """Identity, size and time of change of a file that nobody uses; None for one in use, a missing one, a folder."""
    try:
        if any(_holds(path.with_name(path.name + suffix)) for suffix in ("-wal", "-journal")):
            return None
        found = path.lstat()
    except OSError:  # such as for a name that is too long with its suffix
        return None
    if not stat.S_ISREG(found.st_mode):
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns


def _holds(path: Path) -> bool:
    """Whether there is such a file, and anything in it. An empty one is what somebody left who only read."""
    try:
        return path.stat(follow_symlinks=False).st_size > 0
    except FileNotFoundError:
        return False


def _journal_mode(path: Path) -> str | None:
    try:
        with open(path, "rb", opener=files.without_waiting) as file:
            file.seek(_FORMAT_AT)
            return "wal" if file.read(2) == _WAL_FORMAT else None
    except OSError:  # opening the database names the reason
        return None
