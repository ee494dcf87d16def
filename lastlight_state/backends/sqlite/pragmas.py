"""The settings of a SQLite connection, derived from the options and from the file system that holds the file."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import lru_cache
from typing import Any, TypeVar

from lastlight_state.backends import waiting
from lastlight_state.backends.base import Checkout, Options
from lastlight_state.backends.known_faults import SAVEPOINT_IN_MEMORY
from lastlight_state.backends.sqlite import checkpoints, files, untrusted
from lastlight_state.backends.sqlite.dbapi import sqlite3
from lastlight_state.backends.sqlite.driver import is_locked
from lastlight_state.errors import NotSupported

T = TypeVar("T")

#: Writers wait for a file's lock in pieces of this length, so that a wait can be cancelled in between.
PIECE_SECONDS = 0.25
#: The pause before another attempt if SQLite reports at once that a file is locked.
_PAUSE_SECONDS = 0.01
#: Two processes that open a new file first may meet "locked" while one of them creates its log, whatever the timeout
#: is.
_SET_UP_SECONDS = 0.1

#: The setting that makes each commit wait for the disk.
SYNCED = "synchronous = FULL"

_log = logging.getLogger("lastlight_state.backends")


def pragmas(options: Options, carrier: str | None) -> Iterator[str]:
    """Yield the settings in the order in which they must be applied.

    ``carrier`` is the type of file system; None means memory. On a network or VM-mounted file system, the shared memory
    of WAL mode cannot be trusted, and a mapped page may vanish.
    """
    remote = carrier is not None and files.is_remote(carrier)
    if carrier is not None and not options.read_only:
        yield f"journal_mode = {_journal_mode(options, carrier)}"
    if options.across_mounts:
        yield from _of_one_unit(options)
    else:
        yield SYNCED if remote or options.durability == "full" else "synchronous = NORMAL"
        yield "foreign_keys = ON"
        yield "recursive_triggers = ON"
        yield checkpoints.pragma(options.wal_autocheckpoint)
        yield "cache_size = -16384"
        yield f"mmap_size = {0 if remote else 134217728}"
        yield f"temp_store = {'DEFAULT' if SAVEPOINT_IN_MEMORY.affects(sqlite3.sqlite_version) else 'MEMORY'}"
    if options.across_mounts or options.foreign:  # others have written the file
        if untrusted.TRUSTED_SCHEMA is None:
            yield "trusted_schema = OFF"
        yield "cell_size_check = ON"


def _of_one_unit(options: Options) -> Iterator[str]:
    """Yield the settings that a one-unit connection needs in addition to a usual SQLite build's defaults."""
    if not options.read_only and _default("SYNCHRONOUS", "2") != "2":
        yield SYNCED
    if _default("MMAP_SIZE", "0") != "0":
        yield "mmap_size = 0"


@lru_cache(maxsize=8)
def _default(name: str, usual: str) -> str:
    """Return the default value that was compiled into this SQLite for a setting."""
    with closing(sqlite3.connect(":memory:")) as connection:
        for (option,) in connection.execute("PRAGMA compile_options"):
            if option.startswith(f"DEFAULT_{name}="):
                return str(option).partition("=")[2]
    return usual


def piece(options: Options, *, writes: bool) -> float:
    """Return for how many seconds SQLite itself waits for a lock in one attempt. Then the library tries again."""
    return min(options.busy_timeout, PIECE_SECONDS) if writes else options.busy_timeout


def busy_timeout(seconds: float) -> str:
    """Return the setting for how long SQLite itself waits for a lock."""
    return f"PRAGMA busy_timeout = {int(seconds * 1000)}"


def set_up(connection: sqlite3.Connection, settings: tuple[str, ...], options: Options, *, writes: bool) -> None:
    """Apply the settings. Raises `NotSupported` if the file stays in another journal mode.

    All settings together wait for a lock as long as one statement does.
    """
    if not options.across_mounts:  # its connections are opened with this setting
        connection.execute(busy_timeout(_seconds_left(min(options.busy_timeout, PIECE_SECONDS))))
    end = None
    for setting in settings:
        if options.across_mounts and not setting.startswith("journal_mode"):  # needs no lock there
            connection.execute(f"PRAGMA {setting}")
            continue
        end = end or waiting.until(max(options.busy_timeout, _SET_UP_SECONDS)) - _PAUSE_SECONDS
        answer = _answer(connection, f"PRAGMA {setting}", end)
        name, _, wanted = setting.partition(" = ")
        if name == "journal_mode" and answer[0].upper() != wanted:
            raise NotSupported(
                f"the database stays in journal mode {answer[0]}, {wanted.lower()} is not to be had where it lies:"
                f" open it with the setting journal_mode={answer[0]}",
                journal_mode=answer[0],
            )
    if not options.across_mounts:
        connection.execute(busy_timeout(piece(options, writes=writes)))


def refuse_writes(checkout: Checkout) -> None:
    """Make SQLite refuse writes on this connection until `permit_writes`.

    For a reading unit whose connection a caller gets.
    """
    if not checkout.driver.execute("PRAGMA query_only").fetchone()[0]:
        checkout.refuses_writes = True
        checkout.driver.execute("PRAGMA query_only = ON")


def permit_writes(checkout: Checkout) -> None:
    """Restore the connection to its state before `refuse_writes`."""
    if checkout.refuses_writes:
        checkout.refuses_writes = False
        checkout.driver.execute("PRAGMA query_only = OFF")


def hurry(checkout: Checkout, options: Options) -> None:
    """Make a reading unit's waits for locks end at its thread's deadline, until `wait_as_usual`."""
    left = waiting.shorter_wait(options.busy_timeout)
    if left is not None:
        checkout.hurries = True
        checkout.driver.execute(busy_timeout(left))


def wait_as_usual(checkout: Checkout, options: Options) -> None:
    """Restore the connection to its state before `hurry`."""
    checkout.hurries = False
    checkout.driver.execute(busy_timeout(piece(options, writes=False)))


def _journal_mode(options: Options, carrier: str) -> str:
    if options.journal_mode:
        return options.journal_mode.upper()
    if options.across_mounts:
        return "DELETE"
    if files.is_remote(carrier):
        _log.warning("the database file lies on %s: rollback journal and full sync instead of WAL", carrier)
        return "DELETE"
    return "WAL"


def tried_again(run: Callable[[], T], error: sqlite3.Error, end: float) -> T:
    """Retry ``run`` after ``error``, while the file is locked and until the time ``end``. Returns its result.

    Raises the last error, or `BackendBusy` if the call was cancelled.
    """
    while is_locked(error) and time.monotonic() < end:
        waiting.pause(_PAUSE_SECONDS)
        try:
            return run()
        except sqlite3.Error as again:
            error = again
    raise error


def patience(options: Options, *, writes: bool) -> float:
    """Return the seconds that SQLite waits for a lock on a one-unit connection, at most until the deadline."""
    return _seconds_left(piece(options, writes=writes)) if options.across_mounts else 0


def _seconds_left(seconds: float) -> float:
    """Return these seconds, or the time until the call's deadline if that is shorter."""
    return max(0.0, min(seconds, waiting.until(seconds) - time.monotonic()))


def _answer(connection: sqlite3.Connection, pragma: str, end: float) -> tuple[str, ...]:
    """Run a pragma and return its row."""

    def run_pragma() -> Any:
        return connection.execute(pragma).fetchone() or ("",)

    try:
        return tuple(run_pragma())
    except sqlite3.Error as error:
        return tuple(tried_again(run_pragma, error, end))
