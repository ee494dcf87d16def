"""Whole tables of SQLite, read and written for copies between databases."""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import closing
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

from lastlight_state.backends import waiting
from lastlight_state.backends.facts import Place, Upkeep
from lastlight_state.backends.sql.expressions import quote_name
from lastlight_state.backends.sqlite import files, untrusted
from lastlight_state.backends.sqlite.connections import Connections
from lastlight_state.backends.sqlite.dbapi import connect, error_name, sqlite3
from lastlight_state.backends.sqlite.driver import iterate_rows, translate
from lastlight_state.backends.sqlite.private_copies import place_of
from lastlight_state.errors import BackendBusy, BackendUnavailable

# Bulk inserts: several rows in one INSERT cost a third of one statement per row.

#: The rows in one statement. More gain nothing, and SQLite accepts at most 32,766 parameters.
_ROWS = 50
#: The end of an INSERT of one row, with a parameter for each column and nothing after them.
_PARAMETERS = re.compile(r"VALUES (\((?:\?, )*\?\))\s*$")


def insert_rows(driver: sqlite3.Connection, sql: str, rows: Sequence[Sequence[Any]]) -> None:
    """Insert the rows in their order. ``sql`` is an INSERT of one row. Raises the driver's errors."""
    several, whole = _several(sql), len(rows) - len(rows) % _ROWS
    if several is None:
        driver.executemany(sql, rows)
        return
    if whole:
        starts = range(0, whole, _ROWS)
        driver.executemany(several, (list(chain.from_iterable(rows[start : start + _ROWS])) for start in starts))
    if whole < len(rows):
        driver.executemany(sql, rows[whole:])


@lru_cache(maxsize=64)
def _several(sql: str) -> str | None:
    """Extend an INSERT of one row to many rows. Return None if ``sql`` cannot be extended."""
    found = _PARAMETERS.search(sql)
    if found is None or found[1].count("?") * _ROWS > 32_766:
        return None
    return sql.rstrip() + f", {found[1]}" * (_ROWS - 1)


T = TypeVar("T")

#: The seconds that a copy waits for a lock between two attempts.
_PAUSE_SECONDS = 0.02
_NUMBER = "INSERT INTO sqlite_sequence (name, seq) VALUES (:name, :seq)"
_RENUMBER = "UPDATE sqlite_sequence SET seq = :seq WHERE name = :name"
#: The errors of SQLite for a copy that cannot be written. The copy's disk is the cause, so waiting does not help.
_NO_ROOM = frozenset({"SQLITE_FULL", "SQLITE_IOERR_WRITE", "SQLITE_IOERR_FSYNC", "SQLITE_IOERR_TRUNCATE"})


class Moving(Upkeep):
    """The part of the backend that is used to copy data between databases."""

    _connections: Connections
    persist: Callable[..., Any]
    lock_seconds: float

    def stream(self, checkout: Any, sql: str, params: Any, columns: Sequence[Any]) -> Iterator[Sequence[Any]]:
        try:
            yield from untrusted.watch_rows(
                checkout.driver,
                lambda: iterate_rows(self._patiently(checkout, lambda: checkout.driver.execute(sql, params))),
                self._size,
            )
        except sqlite3.Error as error:
            raise translate(error) from error

    def _size(self) -> int:
        return files.size(*self.files)

    def load(self, checkout: Any, table: str, names: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
        listed, places = ", ".join(map(quote_name, names)), ", ".join("?" * len(names))
        try:
            checkout.driver.executemany(f"INSERT INTO {quote_name(table)} ({listed}) VALUES ({places})", rows)
        except sqlite3.Error as error:
            raise translate(error) from error

    def last_number(self, checkout: Any, table: str, column: str) -> int | None:
        try:
            found = checkout.driver.execute("SELECT seq FROM sqlite_sequence WHERE name = ?", (table,)).fetchone()
        except sqlite3.Error as error:
            raise translate(error) from error
        return None if found is None else int(found[0])

    def advance(self, checkout: Any, table: str, column: str, last: int | None) -> None:
        there = self.last_number(checkout, table, column)
        if last is None or (there is not None and there >= last):
            return
        try:
            checkout.driver.execute(_NUMBER if there is None else _RENUMBER, {"name": table, "seq": last})
        except sqlite3.Error as error:
            raise translate(error) from error

    def identity(self, checkout: Any) -> Hashable:
        if not self.files:
            return None
        found = self.files[0].stat()
        return found.st_dev, found.st_ino

    def place(self) -> Place | None:
        return place_of(self.files[0]) if self.files else None

    def lost_log(self, *, lacks_tables: bool) -> bool:
        if not self.files or self._connections.journal_mode != "wal":  # which can only be seen in an unused file
            return False
        return files.lost_log(self.files[0], lacks_tables=lacks_tables)

    def snapshot(self, checkout: Any, path: Path) -> bool:
        try:
            path.touch(mode=0o600, exist_ok=False)
            with closing(connect(path)) as copy:
                # Copies all pages in one step, as a snapshot. The driver itself would wait for a lock without limit.
                checkout.driver.backup(copy, progress=_until(waiting.until(self.lock_seconds)), sleep=_PAUSE_SECONDS)
        except (sqlite3.Error, OSError) as error:
            if error_name(error) in _NO_ROOM:
                raise _no_room(path) from error
            raise translate(error) from error
        with path.open("rb") as file:
            os.fsync(file.fileno())
        return True

    def _patiently(self, checkout: Any, run: Callable[[], T]) -> T:
        """Return the result of ``run``. If the file is locked, wait for the lock as a unit's statement does."""
        try:
            return run()
        except sqlite3.Error as error:
            found: T = self.persist(checkout, error, run)
            return found


def _until(end: float) -> Callable[[int, int, int], None]:
    """Return a progress callback that raises `BackendBusy` if a copy still waits for a lock at the time ``end``."""

    def refuse_past_end(status: int, *_: int) -> None:
        if status in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED) and time.monotonic() >= end:
            raise BackendBusy("the database is locked by another writer")
        waiting.refuse_ended()

    return refuse_past_end


def _no_room(path: Path) -> BackendUnavailable:
    free = shutil.disk_usage(path.parent).free
    problem = f"{path}: the copy cannot be written: {free} bytes are free there"
    return BackendUnavailable(problem, reason="no_room", path=str(path), free_bytes=free)
