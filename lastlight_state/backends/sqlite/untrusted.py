"""Opens database files that another party may write: what is opened is that file, and holds plain tables.

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
import stat
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

from lastlight_state.backends import waiting
from lastlight_state.backends.facts import FORBIDDEN
from lastlight_state.backends.sqlite.dbapi import set_limits, sqlite3
from lastlight_state.errors import BackendBusy, BackendUnavailable
from lastlight_state.locks import Lock
from lastlight_state.special_files import mismatch

_Identity: TypeAlias = "tuple[int, int]"

_DESCRIPTORS = "/dev/fd"
#: Opens a directory for its descriptor alone: closing that drops no lock of this process.
_STEP = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
#: Opens a file so that nobody waits for the other end of a FIFO.
TO_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_TRIES, _PAUSE_SECONDS = 50, 0.002
#: While this process holds a lock on a file, SQLite takes a descriptor that it has for it already, and no new one tells
#: which file that is. To pass for it, another file would have to lie at the path for a moment so many times in a row.
_REUSED = 8
#: Steps of the virtual machine between two looks at the clock.
_STEPS = 10_000
#: Steps that a unit may need, whatever the file's size, and for each of its bytes: a row has some of these.
_LEAST_STEPS, _STEPS_A_BYTE = 2_000_000, 100
_LIMITS = {"LENGTH": 64 * 1024 * 1024, "EXPR_DEPTH": 100, "ATTACHED": 0, "TRIGGER_DEPTH": 1}
#: Switches off what a schema computes by functions that are not known to be harmless, where Python can (3.12): `guard`
#: does it then, and no setting is needed.
TRUSTED_SCHEMA = getattr(sqlite3, "SQLITE_DBCONFIG_TRUSTED_SCHEMA", None)
#: Keeps SQL from damaging the file and its shadow tables, where Python can switch that on (3.12).
_DEFENSIVE = getattr(sqlite3, "SQLITE_DBCONFIG_DEFENSIVE", None)
_REFUSED = frozenset({sqlite3.SQLITE_RECURSIVE, sqlite3.SQLITE_ATTACH})
#: No name that `remember` keeps is long. A virtual table has no page of its own.
#: 2 and 3 are columns that are computed, which only the word AS makes.
_FORBIDDEN = """
SELECT CASE WHEN length(name) > 1000 THEN 'long name' WHEN type = 'table' THEN 'virtual table' ELSE type END,
  substr(name, 1, 80) FROM sqlite_master
WHERE type NOT IN ('table', 'index') OR (type = 'table' AND rootpage = 0) OR length(name) > 1000
UNION ALL
SELECT 'computed column', substr(m.name || '.' || x.name, 1, 80)
FROM sqlite_master m, pragma_table_xinfo(m.name) x
WHERE m.type = 'table' AND m.rootpage > 0 AND m.sql GLOB '*[^a-zA-Z0-9_][aA][sS][^a-zA-Z0-9_]*' AND x.hidden IN (2, 3)
LIMIT 1
"""
#: Whether that may find anything. It is asked for each unit, and costs a fifth: no virtual table is made for it.
_SUSPICIOUS = """
SELECT 1 FROM sqlite_master
WHERE type NOT IN ('table', 'index') OR (type = 'table' AND rootpage = 0) OR length(name) > 1000
  OR (type = 'table' AND sql GLOB '*[^a-zA-Z0-9_][aA][sS][^a-zA-Z0-9_]*')
LIMIT 1
"""

#: How long a statement that reads a file of another program may take until its next row, where nobody says otherwise.
MOST_SECONDS = 300.0
#: The largest value that is read of a file of another program, in bytes, and rows between two looks at its size.
_ANY_SIZE = 2**60
_LARGEST_FOREIGN, _ROWS = 256 * 1024 * 1024, 65_536

_turn = Lock()
_R = TypeVar("_R")
_C = TypeVar("_C", bound=sqlite3.Connection)


def opened(
    path: Path,
    connect: Callable[[], sqlite3.Connection],
    set_up: Callable[[sqlite3.Connection], sqlite3.Connection],
) -> sqlite3.Connection:
    """Return a connection whose file is the regular one at the path, through no link in its place. Raises OSError.

    Raises `BackendBusy` for a file that is replaced again and again.
    """
    connection: sqlite3.Connection | None = None
    reused = 0
    try:
        with directory(path) as held:
            connection, descriptor = connected(_identity(held, path), held, connect)
            if descriptor is not None:
                return set_up(connection)  # reads the file
        connection.close()
        for _ in range(_TRIES):
            with directory(path) as held:
                expected = _identity(held, path)
            with _turn:
                before = _descriptors_of(expected)
                connection = connect()
                is_new = bool(_descriptors_of(expected) - before)
            is_in_place = _identity_or_none(path) == expected
            reused = reused + 1 if is_in_place and before and not is_new else 0
            if is_in_place and (is_new or reused == _REUSED):
                return set_up(connection)
            connection.close()
            if not reused:  # somebody has replaced it
                waiting.pause(_PAUSE_SECONDS)
    except BaseException:  # a signal's, anywhere: no lock must outlive the call
        if connection is not None:
            connection.close()
        raise
    raise BackendBusy("the file was replaced each time that it was opened", final=True, reason="replaced")


def connected(expected: _Identity, held: int, connect: Callable[[], _C]) -> tuple[_C, int | None]:
    """Return a new connection and its descriptor, if that is the next free one and of the expected file; else None.

    Another thread may take that number meanwhile: then nothing is told. ``held`` is any descriptor.
    """
    copies: list[int] = []
    with _turn:
        try:
            copies.extend(map(os.dup, (held,)))
            free = copies[0]
        finally:
            try:
                _close(copies)
            finally:
                _close(copies)
        connection = connect()
        return connection, free if _of_descriptor(str(free)) == expected else None


class Clock:
    """Ends what SQLite does after a moment, and after more steps than there can be in a file of this size.

    A table whose pages point to one another has no last row, and to sort it would take all memory long before.
    """

    def __init__(self, end: float, size: int) -> None:
        self._most = (_LEAST_STEPS + _STEPS_A_BYTE * size) // _STEPS
        self.begin(end)

    def begin(self, end: float) -> None:
        """Begin anew."""
        self._end, self._left = end, self._most

    def __call__(self) -> bool:
        """True if it is time to end."""
        self._left -= 1
        return self._left < 0 or time.monotonic() > self._end


class Watched(sqlite3.Connection):
    """A connection to a file of another program, whose statements end that give no row for too long."""

    seconds = 0.0
    clock: Clock | None = None

    def watch(self, seconds: float, size: int) -> None:
        """Refuse views and triggers from now on, and what takes so many seconds until its next row.

        So is what takes more steps than a file of this size has work for.
        """
        guard(self, None)
        set_limits(self, {"LENGTH": _LARGEST_FOREIGN, "ATTACHED": 0})
        self.seconds, self.clock = seconds, Clock(time.monotonic() + seconds, size)
        self.set_progress_handler(self.clock, _STEPS)

    def begin(self) -> None:
        """Begin to wait for a row."""
        if self.clock is not None:
            self.clock.begin(time.monotonic() + self.seconds)

    def execute(self, *given: Any) -> sqlite3.Cursor:
        self.begin()
        return super().execute(*given)


def watched(connection: Any, rows: Callable[[], Iterable[_R]], size: Callable[[], int]) -> Iterator[_R]:
    """Yield the rows of a statement, while each comes in time, and fewer than the file has bytes.

    A table whose pages point to one another has no last row. Raises `BackendUnavailable` for one.
    """
    is_watched = isinstance(connection, Watched)
    for number, row in enumerate(rows(), 1):
        yield row
        if is_watched:
            if number % _ROWS == 0 and number > size():
                raise BackendUnavailable("the file has more rows than bytes: it is damaged", reason="not_a_database")
            connection.begin()


def guard(connection: sqlite3.Connection, seconds: float | None, size: int = _ANY_SIZE) -> None:
    """Refuse views, triggers and other databases from now on; with ``seconds`` also limit values, time and steps."""
    connection.set_authorizer(_permitted)
    if _DEFENSIVE is not None:
        connection.setconfig(_DEFENSIVE, True)  # type: ignore[attr-defined,unused-ignore]
    if TRUSTED_SCHEMA is not None:
        connection.setconfig(TRUSTED_SCHEMA, False)  # type: ignore[attr-defined,unused-ignore]
    if seconds is None:
        return
    set_limits(connection, _LIMITS)
    connection.set_progress_handler(Clock(waiting.until(seconds), size), _STEPS)


def refuse_forbidden(connection: sqlite3.Connection) -> None:
    """Raise `BackendUnavailable` for a file that holds anything but tables and indexes over stored columns."""
    if connection.execute(_SUSPICIOUS).fetchone() is None:
        return
    found = connection.execute(_FORBIDDEN).fetchone()
    if found is not None:
        kind, name = found
        raise BackendUnavailable(f"the file holds a {kind} ({name!r}), which is not read", reason=FORBIDDEN)


def remember(connection: sqlite3.Connection) -> None:
    """Ask once about each name from now on: where nothing but our statements and `refuse_forbidden` runs."""
    connection.set_authorizer(_remembered)


def _permitted(action: int, _first: object, _second: object, _database: object, source: str | None) -> int:
    return sqlite3.SQLITE_DENY if source is not None or action in _REFUSED else sqlite3.SQLITE_OK


_remembered = lru_cache(maxsize=1024)(_permitted)


@contextmanager
def directory(path: Path) -> Iterator[int]:
    """Lend the directory of an absolute path for reading. Raises OSError for a link among the components.

    No descriptor is lost where a signal raises: each passes from the call that opens it to the list, and from the list
    to the call that closes it, with no instruction of Python in between.
    """
    held: int | None = None
    steps: list[int] = []
    try:
        for name in path.parts[:-1]:
            steps.extend(map(partial(os.open, flags=_STEP, dir_fd=held), (name,)))
            held = steps[-1]
        yield steps[-1]
    finally:
        try:
            _close(steps)
        finally:
            _close(steps)


def _close(descriptors: list[int]) -> None:
    """Close all, and take each from the list in the same moment."""
    deque(map(os.close, map(descriptors.pop, [-1] * len(descriptors))), maxlen=0)


def _identity(held: int, path: Path) -> _Identity:
    """Device and inode of the regular file of that name in the directory ``held``.

    What lies beside it under the names of a log or journal must be regular files, too: SQLite would wait at a FIFO.
    """
    name = path.name
    found = regular(held, name, path)
    for suffix in ("-wal", "-shm", "-journal"):
        try:
            regular(held, name + suffix, path)
        except FileNotFoundError:
            continue
    return found.st_dev, found.st_ino


def regular(held: int, name: str, path: Path) -> os.stat_result:
    """Return what a regular file in the directory ``held`` is like. Raises OSError for anything else."""
    found = os.stat(name, dir_fd=held, follow_symlinks=False)
    if stat.S_ISLNK(found.st_mode):
        raise OSError(errno.ELOOP, f"{name} is a symbolic link", str(path))
    if not stat.S_ISREG(found.st_mode):
        raise OSError(errno.EINVAL, f"{name}: {mismatch(found.st_mode)}", str(path))
    return found


def _identity_or_none(path: Path) -> _Identity | None:
    with suppress(OSError), directory(path) as held:
        return _identity(held, path)
    return None


def _descriptors_of(identity: _Identity) -> set[str]:
    """Return the descriptors of this process that are open on a file."""
    return {name for name in os.listdir(_DESCRIPTORS) if _of_descriptor(name) == identity}  # noqa: PTH208 - names, not paths


def _of_descriptor(name: str) -> _Identity | None:
    try:
        found = os.fstat(int(name))
    except OSError:
        return None
    return found.st_dev, found.st_ino
