"""The databases of a benchmark: one for the library, an equal one for the bare driver."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from lastlight_state import StateStore
from lastlight_state.testing import ThrowawayPostgres

_PRAGMAS = (
    "journal_mode = WAL",
    "foreign_keys = ON",
    "recursive_triggers = ON",
    "busy_timeout = 5000",
    "cache_size = -16384",
    "mmap_size = 134217728",
    "temp_store = MEMORY",
)


@dataclass
class Bare:
    """A bare driver connection to one database."""

    name: str
    driver: Any

    def sql(self, text: str) -> str:
        """SQL written with ``?`` in the placeholders of the driver."""
        return text if self.name == "sqlite" else text.replace("?", "%s")

    def unit(self, *statements: tuple[str, Callable[[], Sequence[Any]]]) -> Callable[[], object]:
        """Hand-written driver code: BEGIN, these statements, COMMIT. A statement that returns rows is read."""
        begin = "BEGIN IMMEDIATE" if self.name == "sqlite" else "BEGIN"
        prepared = [(self.sql(text), values) for text, values in statements]
        execute = self.driver.execute

        def run() -> object:
            execute(begin)
            for text, values in prepared:
                cursor = execute(text, values())
                if cursor.description:
                    cursor.fetchall()
            return execute("COMMIT")

        return run

    def read(self, text: str, values: Callable[[], Sequence[Any]]) -> Callable[[], object]:
        """Hand-written driver code: one SELECT, in autocommit."""
        sql, execute = self.sql(text), self.driver.execute
        return lambda: execute(sql, values()).fetchall()

    def now(self) -> Any:
        """The present as this database's driver stores it."""
        moment = datetime.now(UTC)
        return moment.isoformat(timespec="milliseconds")[:23] + "Z" if self.name == "sqlite" else moment


@dataclass
class Side(Bare):
    """One database with a store and a bare driver connection to it."""

    url: str
    store: StateStore
    folder: Path


@contextmanager
def sides(names: Sequence[str], folder: Path) -> Iterator[list[Side]]:
    """A migrated database of each kind."""
    with ExitStack() as stack:
        yield [_side(name, folder, stack) for name in names]


def _side(name: str, folder: Path, stack: ExitStack) -> Side:
    if name == "sqlite":
        url = str(folder / "bench.db")
        store = stack.enter_context(StateStore.open(url, state_dir=folder))
        driver = sqlite_driver(url)
    else:
        from lastlight_state.testing.postgres import connect  # noqa: PLC0415 - an optional library

        url = stack.enter_context(stack.enter_context(ThrowawayPostgres.start()).database())
        store = stack.enter_context(StateStore.open(url, state_dir=folder, migrate=True))
        driver = connect(url)
    stack.callback(driver.close)
    return Side(name, driver, url, store, folder)


def sqlite_driver(path: str, synchronous: str = "NORMAL") -> Any:
    """A bare connection with the settings of the library's own."""
    driver = sqlite3.connect(path, isolation_level=None, cached_statements=512)
    for pragma in (*_PRAGMAS, f"synchronous = {synchronous}"):
        driver.execute(f"PRAGMA {pragma}")
    return driver
