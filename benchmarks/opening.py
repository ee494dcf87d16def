"""Importing the library, and opening a store on a current database."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator

from benchmarks.databases import _PRAGMAS, Side
from benchmarks.goals import goal
from benchmarks.measure import Result, compare
from lastlight_state import StateStore

_BASE = "import pydantic, sqlalchemy"


def import_results() -> Iterator[Result]:
    """Whole processes that import the library, against ones that import what it stands on."""
    for path, code in (
        ("import", "import lastlight_state"),
        ("import and use the store's name", "from lastlight_state import StateStore"),
    ):
        yield compare(path, "python", _process(code), _process(_BASE), goal=goal(path, "python"), calls=1, rounds=9)


def results(side: Side) -> Iterator[Result]:
    """Open and close."""
    if side.name == "sqlite":
        yield compare(
            "open a current database",
            side.name,
            lambda: StateStore.open(side.url).close(),
            lambda: _bare(side.url),
            goal=goal("open a current database", side.name),
            calls=50,
        )


def _bare(path: str) -> None:
    connection = sqlite3.connect(path, isolation_level=None)
    for pragma in _PRAGMAS:
        connection.execute(f"PRAGMA {pragma}")
    connection.close()


def _process(code: str) -> Callable[[], object]:
    return lambda: subprocess.run([sys.executable, "-c", code], check=True)  # noqa: S603 - our own words
