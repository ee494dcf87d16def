"""The door for database files that another party may write: what is opened is that file, and holds plain tables.

A check of a path and SQLite's own opening of it are two moments, and between them a link can be put in its place. So
the file that SQLite has opened is looked up among the descriptors of this process, and compared with the one that lies
at the path without following a link.

A view can compute without end, and looks like a table to whoever asks for its columns. SQLite asks an authorizer while
it compiles a statement, and says which view or trigger an access comes from: all of those are refused, whenever the
schema may have changed. A clock ends what takes too long all the same.
"""

from __future__ import annotations

import errno
import os
import sqlite3
import stat
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TypeAlias

from lastlight_state.backends import patience
from lastlight_state.backends.sqlite.errors import FORBIDDEN
from lastlight_state.errors import BackendBusy, BackendUnavailable

_Identity: TypeAlias = "tuple[int, int]"

_DESCRIPTORS = "/dev/fd"
#: Opens a directory for its descriptor alone: closing that drops no lock of this process.
_STEP = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_TRIES, _PAUSE_SECONDS = 50, 0.002
#: While this process holds a lock on a file, SQLite takes a descriptor that it has for it already, and no new one tells
#: which file that is. To pass for it, another file would have to lie at the path for a moment so many times in a row.
_REUSED = 8
#: Steps of the virtual machine between two looks at the clock.
_STEPS = 10_000
_LIMITS = {
    sqlite3.SQLITE_LIMIT_LENGTH: 64 * 1024 * 1024,
    sqlite3.SQLITE_LIMIT_EXPR_DEPTH: 100,
    sqlite3.SQLITE_LIMIT_ATTACHED: 0,
    sqlite3.SQLITE_LIMIT_TRIGGER_DEPTH: 1,
}
_REFUSED = frozenset({sqlite3.SQLITE_RECURSIVE, sqlite3.SQLITE_ATTACH})
#: A virtual table has no page of its own. 2 and 3 are columns that are computed.
_FORBIDDEN = """
SELECT CASE WHEN type = 'table' THEN 'virtual table' ELSE type END, substr(name, 1, 80) FROM sqlite_master
WHERE type NOT IN ('table', 'index') OR (type = 'table' AND rootpage = 0)
UNION ALL
SELECT 'computed column', substr(m.name || '.' || x.name, 1, 80)
FROM sqlite_master m, pragma_table_xinfo(m.name) x WHERE m.type = 'table' AND m.rootpage > 0 AND x.hidden IN (2, 3)
LIMIT 1
"""

_turn = threading.Lock()


def opened(
    path: Path,
    connect: Callable[[], sqlite3.Connection],
    set_up: Callable[[sqlite3.Connection], sqlite3.Connection],
) -> sqlite3.Connection:
    """A connection whose file is the regular one at the path, through no link in its place. Raises OSError.

    Raises `BackendBusy` for a file that is replaced again and again.
    """
    reused = 0
    for _ in range(_TRIES):
        expected = _identity(path)
        with _turn:
            before = _descriptors_of(expected)
            connection = connect()
            is_new = bool(_descriptors_of(expected) - before)
        is_in_place = _identity_or_none(path) == expected
        reused = reused + 1 if is_in_place and before and not is_new else 0
        if is_in_place and (is_new or reused == _REUSED):
            return set_up(connection)  # reads the file
        connection.close()
        if not reused:  # somebody has replaced it
            patience.pause(_PAUSE_SECONDS)
    raise BackendBusy("the file was replaced each time that it was opened", final=True, reason="replaced")


def guard(connection: sqlite3.Connection, seconds: float | None) -> None:
    """Refuse views, triggers and other databases from now on; with ``seconds`` also limit sizes and the time."""
    connection.set_authorizer(_permitted)
    if seconds is None:
        return
    for kind, most in _LIMITS.items():
        connection.setlimit(kind, most)
    end = patience.until(seconds)
    connection.set_progress_handler(lambda: time.monotonic() > end, _STEPS)


def refuse_forbidden(connection: sqlite3.Connection) -> None:
    """Raise `BackendUnavailable` for a file that holds anything but tables and indexes over stored columns."""
    found = connection.execute(_FORBIDDEN).fetchone()
    if found is not None:
        kind, name = found
        raise BackendUnavailable(f"the file holds a {kind} ({name!r}), which is not read", reason=FORBIDDEN)


def _permitted(action: int, _first: object, _second: object, _database: object, source: str | None) -> int:
    return sqlite3.SQLITE_DENY if source is not None or action in _REFUSED else sqlite3.SQLITE_OK


def _identity(path: Path) -> _Identity:
    """Device and inode of the regular file at an absolute path. Raises OSError for a link among the components.

    What lies beside it under the names of a log or journal must be regular files, too: SQLite would wait at a FIFO.
    """
    held = os.open(path.anchor, _STEP)
    try:
        for name in path.parts[1:-1]:
            inner = os.open(name, _STEP, dir_fd=held)
            left, held = held, inner
            os.close(left)
        found = _regular(held, path.name, path)
        for suffix in ("-wal", "-shm", "-journal"):
            with suppress(FileNotFoundError):
                _regular(held, path.name + suffix, path)
    finally:
        os.close(held)
    return found.st_dev, found.st_ino


def _regular(held: int, name: str, path: Path) -> os.stat_result:
    found = os.stat(name, dir_fd=held, follow_symlinks=False)
    if stat.S_ISLNK(found.st_mode):
        raise OSError(errno.ELOOP, f"{name} is a symbolic link", str(path))
    if not stat.S_ISREG(found.st_mode):
        raise OSError(errno.EINVAL, f"{name} is no regular file", str(path))
    return found


def _identity_or_none(path: Path) -> _Identity | None:
    with suppress(OSError):
        return _identity(path)
    return None


def _descriptors_of(identity: _Identity) -> set[str]:
    """The descriptors of this process that are open on a file."""
    return {name for name in os.listdir(_DESCRIPTORS) if _of_descriptor(name) == identity}  # noqa: PTH208 - names, not paths


def _of_descriptor(name: str) -> _Identity | None:
    with suppress(OSError):
        found = os.fstat(int(name))
        return found.st_dev, found.st_ino
    return None
