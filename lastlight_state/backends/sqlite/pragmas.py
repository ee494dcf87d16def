"""The settings of a SQLite connection, which follow from the options and from the file system that carries the file."""

from __future__ import annotations

import logging
import sqlite3
import time
from collections.abc import Iterator

from lastlight_state.backends.base import Options
from lastlight_state.backends.sqlite import files
from lastlight_state.errors import NotSupported

#: Those who write wait in pieces of this length for the lock of a file, and may be interrupted in between.
PIECE_SECONDS = 0.25

_PAUSES = (0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28)

_log = logging.getLogger("lastlight_state.backends")


def pragmas(options: Options, carrier: str | None, *, writes: bool = False) -> Iterator[str]:
    """The settings in the order they must be given. ``carrier`` names the file system, None is for memory.

    On a network or VM-mounted one, WAL's shared memory cannot be trusted, and a mapped page may vanish under us.
    """
    remote = options.across_mounts or (carrier is not None and files.is_remote(carrier))
    yield busy_timeout(options, writes=writes)
    if carrier is not None and not options.read_only:
        yield f"journal_mode = {_journal_mode(options, carrier)}"
    yield f"synchronous = {'FULL' if remote or options.durability == 'full' else 'NORMAL'}"
    yield "foreign_keys = ON"
    yield "recursive_triggers = ON"
    yield f"wal_autocheckpoint = {options.wal_autocheckpoint}"
    yield "cache_size = -16384"
    yield f"mmap_size = {0 if remote else 134217728}"
    yield "temp_store = MEMORY"
    if options.across_mounts:
        yield "trusted_schema = OFF"  # another side wrote the file


def busy_timeout(options: Options, *, writes: bool) -> str:
    """The setting for how long one statement waits."""
    seconds = min(options.busy_timeout, PIECE_SECONDS) if writes else options.busy_timeout
    return f"busy_timeout = {int(seconds * 1000)}"


def set_up(connection: sqlite3.Connection, settings: tuple[str, ...]) -> None:
    """Apply the settings. Raises `NotSupported` when the file stays in another journal mode."""
    for setting in settings:
        answer = _patiently(connection, f"PRAGMA {setting}")
        name, _, wanted = setting.partition(" = ")
        if name == "journal_mode" and answer[0].upper() != wanted:
            raise NotSupported(
                f"the database stays in journal mode {answer[0]}, {wanted.lower()} is not to be had where it lies:"
                f" open it with the setting journal_mode={answer[0]}",
                journal_mode=answer[0],
            )


def _journal_mode(options: Options, carrier: str) -> str:
    if options.journal_mode:
        return options.journal_mode.upper()
    if options.across_mounts:
        return "DELETE"
    if files.is_remote(carrier):
        _log.warning("the database file lies on %s: rollback journal and full sync instead of WAL", carrier)
        return "DELETE"
    return "WAL"


def _patiently(connection: sqlite3.Connection, pragma: str) -> tuple[str, ...]:
    """The row that the pragma answers with. Entering WAL mode can meet "locked" on a new file, busy timeout or not."""
    pauses = iter(_PAUSES)
    while True:
        try:
            return tuple(connection.execute(pragma).fetchone() or ("",))
        except sqlite3.OperationalError as error:
            pause = next(pauses, None)
            if pause is None or not error.sqlite_errorname.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
                raise
            time.sleep(pause)
