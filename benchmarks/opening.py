"""Importing the library, and opening a store on a current database."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator

from benchmarks.databases import _PRAGMAS, Side
from benchmarks.goals import goal
from benchmarks.measure import Result, compare
from lastlight_state import StateStore

#: What a program that opens a store cannot do without.
_BASE = "import sqlalchemy.orm, pydantic, pydantic_settings"
_COMMAND = "import sys; from lastlight_state.cli.program import run; sys.exit(run(sys.argv[1:]))"
_COMMANDS = ("check", "current", "ls", "stats", "history", "--help")


def process_results() -> Iterator[Result]:
    """Whole processes: importing the library, and its commands."""
    yield from _import_results()
    yield from _command_results()


def _import_results() -> Iterator[Result]:
    """Whole processes that import the library, against ones that import what it stands on."""
    for path, code in (
        ("import", "import lastlight_state"),
        ("import and use the store's name", "from lastlight_state import StateStore"),
    ):
        yield compare(path, "python", _process(code), _process(_BASE), goal=goal(path, "python"), calls=1)


def _command_results() -> Iterator[Result]:
    """Whole processes of the command line on a current, empty database, against importing what it stands on."""
    with tempfile.TemporaryDirectory() as folder:
        StateStore.open(state_dir=folder).close()
        for word in _COMMANDS:
            ours = _process(_COMMAND, word, "--state-dir", folder)
            yield compare(word, "command", ours, _process(_BASE), goal=goal(word, "command"), calls=1)


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


def _process(code: str, *words: str) -> Callable[[], object]:
    command = [sys.executable, "-c", code, *words]
    return lambda: subprocess.run(command, check=True, stdout=subprocess.DEVNULL)  # noqa: S603 - our own words
