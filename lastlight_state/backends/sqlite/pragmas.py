"""The settings of a SQLite connection, which follow from the options and from the file system that carries the file."""

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

#: Those who write wait in pieces of this length for the lock of a file, and may be interrupted in between.
PIECE_SECONDS = 0.25
#: Where SQLite says at once that a file is locked, so long is waited before it is asked again.
_PAUSE_SECONDS = 0.01
#: The first two who open a new file may meet "locked" while one of them makes its log, whatever the timeout is.
_SET_UP_SECONDS = 0.1

#: The setting with which each commit waits for the disk.
SYNCED = "synchronous = FULL"

_log = logging.getLogger("lastlight_state.backends")


def pragmas(options: Options, carrier: str | None) -> Iterator[str]:
    """Yield the settings in the order they must be given. ``carrier`` names the file system, None is for memory.

    On a network or VM-mounted one, WAL's shared memory cannot be trusted, and a mapped page may vanish under us.
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
    if options.across_mounts or options.foreign:  # somebody else wrote the file
        if untrusted.TRUSTED_SCHEMA is None:
            yield "trusted_schema = OFF"
        yield "cell_size_check = ON"


def _of_one_unit(options: Options) -> Iterator[str]:
    """Yield what a connection for one unit needs that SQLite does not do by itself, as it usually is built."""
    if not options.read_only and _default("SYNCHRONOUS", "2") != "2":
        yield SYNCED
    if _default("MMAP_SIZE", "0") != "0":
        yield "mmap_size = 0"


@lru_cache(maxsize=8)
def _default(name: str, usual: str) -> str:
    """Return the default that this SQLite was built with."""
    with closing(sqlite3.connect(":memory:")) as connection:
        for (option,) in connection.execute("PRAGMA compile_options"):
            if option.startswith(f"DEFAULT_{name}="):
                return str(option).partition("=")[2]
    return usual


def piece(options: Options, *, writes: bool) -> float:
    """Return how many seconds SQLite itself waits for a lock, before it is asked again."""
    return min(options.busy_timeout, PIECE_SECONDS) if writes else options.busy_timeout


def busy_timeout(seconds: float) -> str:
    """Return the setting for how long SQLite itself waits."""
    return f"PRAGMA busy_timeout = {int(seconds * 1000)}"


def set_up(connection: sqlite3.Connection, settings: tuple[str, ...], options: Options, *, writes: bool) -> None:
    """Apply the settings. Raises `NotSupported` when the file stays in another journal mode.

    All of them together wait for a lock as long as one statement does.
    """
    if not options.across_mounts:  # whose connections are opened with it
        connection.execute(busy_timeout(_left(min(options.busy_timeout, PIECE_SECONDS))))
    end = None
    for setting in settings:
        if options.across_mounts and not setting.startswith("journal_mode"):  # and so needs no lock
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
    """Refuse statements that write, of a unit that reads and hands its connection out, until `permit_writes`."""
    if not checkout.driver.execute("PRAGMA query_only").fetchone()[0]:
        checkout.refuses_writes = True
        checkout.driver.execute("PRAGMA query_only = ON")


def permit_writes(checkout: Checkout) -> None:
    """Make the connection what it was before `refuse_writes`."""
    if checkout.refuses_writes:
        checkout.refuses_writes = False
        checkout.driver.execute("PRAGMA query_only = OFF")


def hurry(checkout: Checkout, options: Options) -> None:
    """Let a unit that reads wait for a lock of its file until its thread's deadline at most, until `wait_as_usual`."""
    left = waiting.shortened(options.busy_timeout)
    if left is not None:
        checkout.hurries = True
        checkout.driver.execute(busy_timeout(left))


def wait_as_usual(checkout: Checkout, options: Options) -> None:
    """Make the connection what it was before `hurry`."""
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
    """Return what ``run`` gives when it is tried again after ``error`` said that the file is locked, until ``end``.

    Raises the last error, or `BackendBusy` when the call was cancelled.
    """
    while is_locked(error) and time.monotonic() < end:
        waiting.pause(_PAUSE_SECONDS)
        try:
            return run()
        except sqlite3.Error as again:
            error = again
    raise error


def patience(options: Options, *, writes: bool) -> float:
    """Return how many seconds SQLite waits for a lock on a connection for one unit: no longer than its call."""
    return _left(piece(options, writes=writes)) if options.across_mounts else 0


def _left(seconds: float) -> float:
    """Return these seconds, or what is left of them until the call's deadline."""
    return max(0.0, min(seconds, waiting.until(seconds) - time.monotonic()))


def _answer(connection: sqlite3.Connection, pragma: str, end: float) -> tuple[str, ...]:
    """Return the row that the pragma answers with."""

    def asked() -> Any:
        return connection.execute(pragma).fetchone() or ("",)

    try:
        return tuple(asked())
    except sqlite3.Error as error:
        return tuple(tried_again(asked, error, end))
