"""Opens database files that another party may write.

Checks that SQLite opened the right file and that it has only tables. After a path was checked and before SQLite opens
it, another party can put a link in the file's place. So this module finds the file that SQLite opened among the
process's descriptors. It compares that file with the one at the path, without following a link.

A view can compute without end, and a query for column names cannot tell it from a table. While SQLite compiles a
statement, it calls an authorizer and reports from which view or trigger an access comes. All such accesses are refused,
whenever the schema may have changed. A clock stops any other statement that takes too long.
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
#: Opens a directory only for its descriptor: closing that drops none of this process's locks.
_STEP = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
#: Opens a file without waiting for the other end of a FIFO.
TO_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_TRIES, _PAUSE_SECONDS = 50, 0.002
#: How often SQLite may reuse a descriptor before the file is accepted. While this process holds a lock on a file,
#: SQLite reuses a descriptor, and no new one shows which file it opened. For a wrong file to be accepted, it would have
#: to lie at the path for a moment this many times in a row.
_REUSED = 8
#: Steps of the virtual machine between two checks of the clock.
_STEPS = 10_000
#: Steps that a unit may need for any file, and steps for each byte of the file: each row takes several.
_LEAST_STEPS, _STEPS_A_BYTE = 2_000_000, 100
_LIMITS = {"LENGTH": 64 * 1024 * 1024, "EXPR_DEPTH": 100, "ATTACHED": 0, "TRIGGER_DEPTH": 1}
#: An option that stops a schema from computing functions that are not known to be harmless, if Python can set it
#: (3.12). `guard` sets it then, and no pragma is needed.
TRUSTED_SCHEMA = getattr(sqlite3, "SQLITE_DBCONFIG_TRUSTED_SCHEMA", None)
#: Keeps SQL from damaging the file and its shadow tables, if Python can switch that on (3.12).
_DEFENSIVE = getattr(sqlite3, "SQLITE_DBCONFIG_DEFENSIVE", None)
_REFUSED = frozenset({sqlite3.SQLITE_RECURSIVE, sqlite3.SQLITE_ATTACH})
#: Finds tables with long names, which `remember` must not cache, and virtual tables, which have no page of their own.
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
#: Checks whether that query may find anything. It runs for each unit, and costs a fifth, because it uses no virtual
#: table.
_SUSPICIOUS = """
SELECT 1 FROM sqlite_master
WHERE type NOT IN ('table', 'index') OR (type = 'table' AND rootpage = 0) OR length(name) > 1000
  OR (type = 'table' AND sql GLOB '*[^a-zA-Z0-9_][aA][sS][^a-zA-Z0-9_]*')
LIMIT 1
"""

#: The seconds until its next row that a statement on another program's file may take, unless an option says otherwise.
MOST_SECONDS = 300.0
#: The largest value that is read from another program's file, in bytes, and the rows between two checks of its size.
_ANY_SIZE = 2**60
_LARGEST_FOREIGN, _ROWS = 256 * 1024 * 1024, 65_536

_turn_lock = Lock()
_R = TypeVar("_R")
_C = TypeVar("_C", bound=sqlite3.Connection)


def open_regular_file(
    path: Path,
    connect: Callable[[], sqlite3.Connection],
    set_up: Callable[[sqlite3.Connection], sqlite3.Connection],
) -> sqlite3.Connection:
    """Return a connection to the regular file at the path. A link put in its place is not followed. Raises OSError.

    Raises `BackendBusy` if the file is replaced again and again.
    """
    connection: sqlite3.Connection | None = None
    reused = 0
    try:
        with directory(path) as held:
            connection, descriptor = open_with_descriptor(_identity(held, path), held, connect)
            if descriptor is not None:
                return set_up(connection)  # reads the file
        connection.close()
        for _ in range(_TRIES):
            with directory(path) as held:
                expected = _identity(held, path)
            with _turn_lock:
                before = _descriptors_of(expected)
                connection = connect()
                is_new = bool(_descriptors_of(expected) - before)
            is_in_place = _identity_or_none(path) == expected
            reused = reused + 1 if is_in_place and before and not is_new else 0
            if is_in_place and (is_new or reused == _REUSED):
                return set_up(connection)
            connection.close()
            if not reused:  # the file was replaced
                waiting.pause(_PAUSE_SECONDS)
    except BaseException:  # a signal's, anywhere: no lock must remain
        if connection is not None:
            connection.close()
        raise
    raise BackendBusy("the file was replaced each time that it was opened", final=True, reason="replaced")


def open_with_descriptor(expected: _Identity, held: int, connect: Callable[[], _C]) -> tuple[_C, int | None]:
    """Return a new connection and the descriptor of its file.

    The descriptor is None if it is not known to be the expected file's: SQLite normally gets the next free number, but
    another thread may take that number first. ``held`` is any open descriptor.
    """
    copies: list[int] = []
    with _turn_lock:
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
    """Stops SQLite after a time limit, and after more steps than a file of this size can need.

    The limit on steps is for a table whose pages refer to each other in a circle: it has no last row, and sorting it
    would fill all memory long before the time limit.
    """

    def __init__(self, end: float, size: int) -> None:
        self._most = (_LEAST_STEPS + _STEPS_A_BYTE * size) // _STEPS
        self.begin(end)

    def begin(self, end: float) -> None:
        """Restart the clock and the count of steps."""
        self._end, self._left = end, self._most

    def __call__(self) -> bool:
        """True if the statement must be stopped."""
        self._left -= 1
        return self._left < 0 or time.monotonic() > self._end


class Watched(sqlite3.Connection):
    """A connection to another program's file. A statement is stopped if its next row does not arrive in time."""

    seconds = 0.0
    clock: Clock | None = None

    def watch(self, seconds: float, size: int) -> None:
        """Refuse views and triggers from now on. Stop a statement whose next row takes longer than this many seconds.

        Also stops a statement that takes more steps than a file of this size can need.
        """
        guard(self, None)
        set_limits(self, {"LENGTH": _LARGEST_FOREIGN, "ATTACHED": 0})
        self.seconds, self.clock = seconds, Clock(time.monotonic() + seconds, size)
        self.set_progress_handler(self.clock, _STEPS)

    def begin(self) -> None:
        """Start measuring the time until the next row."""
        if self.clock is not None:
            self.clock.begin(time.monotonic() + self.seconds)

    def execute(self, *given: Any) -> sqlite3.Cursor:
        self.begin()
        return super().execute(*given)


def watch_rows(connection: Any, rows: Callable[[], Iterable[_R]], size: Callable[[], int]) -> Iterator[_R]:
    """Yield a statement's rows, as long as each arrives in time and there are fewer rows than the file has bytes.

    A table whose pages refer to each other in a circle has no last row; it raises `BackendUnavailable`.
    """
    is_watched = isinstance(connection, Watched)
    for number, row in enumerate(rows(), 1):
        yield row
        if is_watched:
            if number % _ROWS == 0 and number > size():
                raise BackendUnavailable("the file has more rows than bytes: it is damaged", reason="not_a_database")
            connection.begin()


def guard(connection: sqlite3.Connection, seconds: float | None, size: int = _ANY_SIZE) -> None:
    """Refuse views, triggers and other databases from now on. With ``seconds``, also limit values, time and steps."""
    connection.set_authorizer(_authorize_action)
    if _DEFENSIVE is not None:
        connection.setconfig(_DEFENSIVE, True)  # type: ignore[attr-defined,unused-ignore]
    if TRUSTED_SCHEMA is not None:
        connection.setconfig(TRUSTED_SCHEMA, False)  # type: ignore[attr-defined,unused-ignore]
    if seconds is None:
        return
    set_limits(connection, _LIMITS)
    connection.set_progress_handler(Clock(waiting.until(seconds), size), _STEPS)


def refuse_forbidden(connection: sqlite3.Connection) -> None:
    """Raise `BackendUnavailable` for a file that holds anything but tables, and indexes on stored columns."""
    if connection.execute(_SUSPICIOUS).fetchone() is None:
        return
    found = connection.execute(_FORBIDDEN).fetchone()
    if found is not None:
        kind, name = found
        raise BackendUnavailable(f"the file holds a {kind} ({name!r}), which is not read", reason=FORBIDDEN)


def remember(connection: sqlite3.Connection) -> None:
    """Cache the authorizer's decision for each name from now on.

    Only for connections that run no statements except the library's own.
    """
    connection.set_authorizer(_remembered)


def _authorize_action(action: int, _first: object, _second: object, _database: object, source: str | None) -> int:
    return sqlite3.SQLITE_DENY if source is not None or action in _REFUSED else sqlite3.SQLITE_OK


_remembered = lru_cache(maxsize=1024)(_authorize_action)


@contextmanager
def directory(path: Path) -> Iterator[int]:
    """Open the directory of an absolute path for reading. Raises OSError if a component of the path is a link.

    A signal cannot leak a descriptor. The descriptor goes straight from the call that opens it into the list, and from
    the list to the call that closes it, with no Python instruction in between.
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
    """Close all descriptors in the list.

    Each is removed from the list by the same operation that passes it to the close.
    """
    deque(map(os.close, map(descriptors.pop, [-1] * len(descriptors))), maxlen=0)


def _identity(held: int, path: Path) -> _Identity:
    """Return device and inode of the regular file with that name in the open directory ``held``.

    Files next to it with the names of a log or journal must be regular, too, because SQLite would wait for a FIFO.
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
    """Return the stat of a regular file in the open directory ``held``. Raises OSError for anything else."""
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
    """Return this process's descriptors that refer to this open file."""
    return {name for name in os.listdir(_DESCRIPTORS) if _of_descriptor(name) == identity}  # noqa: PTH208 - names, not paths


def _of_descriptor(name: str) -> _Identity | None:
    try:
        found = os.fstat(int(name))
    except OSError:
        return None
    return found.st_dev, found.st_ino
