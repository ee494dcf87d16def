"""Reads a SQLite file without leaving side files.

Opening a WAL database for reading makes its ``-wal`` and ``-shm`` files, and fails in a directory that may not be
written. A file with no WAL and no journal beside it has no live connection that has written: it is read as unchanging,
without locks and without side files. Whether that was true is asked again at the end.
"""

from __future__ import annotations

import stat
from pathlib import Path
from typing import TypeAlias

Sight: TypeAlias = "tuple[int, int, int]"

_FORMAT_AT, _WAL_FORMAT = 18, b"\2\2"


class Glance:
    """Identity, size and time of the file before it was opened. ``possible``: it can be read as unchanging.

    ``journal_mode`` is ``"wal"`` where the file says so; read as unchanging, SQLite itself does not tell.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._before = _sight(path)
        self.possible = self._before is not None
        self.journal_mode = _journal_mode(path) if self.possible else None

    @property
    def disturbed(self) -> bool:
        """Whether the file that was read as unchanging has changed, or got a writer."""
        return self.possible and _sight(self._path) != self._before


def _sight(path: Path) -> Sight | None:
    """Identity, size and time of change of a file that nobody uses; None for one in use, a missing one, a folder."""
    try:
        if any(path.with_name(path.name + suffix).exists() for suffix in ("-wal", "-journal")):
            return None
        found = path.stat()
    except OSError:  # such as for a name that is too long with its suffix
        return None
    if not stat.S_ISREG(found.st_mode):
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns


def _journal_mode(path: Path) -> str | None:
    try:
        with path.open("rb") as file:
            file.seek(_FORMAT_AT)
            return "wal" if file.read(2) == _WAL_FORMAT else None
    except OSError:  # opening the database names the reason
        return None
