"""Rows have types: a statement returns what its record says, and mypy refuses a column that is missing."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages
from typing import Any, NotRequired, get_origin, get_type_hints

import pytest
import sqlalchemy as sa

import lastlight_state
from lastlight_state.backends.base import Backend
from lastlight_state.db.lists.filters import Filtered
from lastlight_state.db.lists.listing import Listing
from lastlight_state.db.rows.records import Record, needed_columns
from lastlight_state.db.rows.statements import Family, Statement, every_column_of
from lastlight_state.db.rows.writes import Chain, cache_statements
from lastlight_state.files.mailbox.shared.queries import TolerantSelect
from lastlight_state.journal.models import SIGNALS
from lastlight_state.journal.records import Sandbox, Signal
from lastlight_state.journal.sandboxes import put as sandbox
from lastlight_state.journal.signals.statements import take
from lastlight_state.messaging.models import MESSAGES
from lastlight_state.messaging.records import MessagingMessage
from lastlight_state.testing import Database
from lastlight_state.workflows.claims.lists import Ranges
from lastlight_state.workflows.questions.inbox import Inbox
from lastlight_state.workflows.questions.question_rows import QuestionRows

ROOT = Path(__file__).parents[2]

WRONG = """
from lastlight_state.db.repository import Repository
from lastlight_state.db.rows.records import Page
from lastlight_state.db.rows.statements import statement_of
from lastlight_state.db.units.unit import Unit
from lastlight_state.messaging.message_statements import Draft
from lastlight_state.messaging.message_statements import GET
from lastlight_state.messaging.records import MessagingMessage, MessagingSession
from lastlight_state.messaging.session_statements import LIST
from lastlight_state.messaging.models import MESSAGES
from lastlight_state.workflows.shared.run_rows import lock
from lastlight_state.workflows.runs.statements import NewRun, RunFacts

def sound(unit: Unit) -> MessagingMessage | None:
    return unit.row(GET, {"message_id": 1})

def misspelt(unit: Unit) -> str | None:
    row = unit.row(GET)
    return row and row.contents

def another_table(unit: Unit) -> MessagingSession | None:
    return unit.row(GET)

def untyped(unit: Unit) -> MessagingMessage | None:
    return unit.row(statement_of(MESSAGES.select()))

def of_a_list(repository: Repository) -> Page[MessagingMessage]:
    return repository._page(LIST, None, 1, None)

def incomplete() -> Draft:
    return {"role": "user", "content": "x"}

def misspelt_in_a_locked_run(unit: Unit) -> str:
    return lock(unit, "r").state

def incomplete_beside_others(row: RunFacts) -> NewRun:
    return {**row, "phase_history": "[]"}
"""


def typed() -> Iterator[tuple[str, Statement[Any]]]:
    """The statements that say what rows they return, by the names of their constants."""
    for module in walk_packages(lastlight_state.__path__, "lastlight_state."):
        for name, found in vars(import_module(module.name)).items():
            for one in _parts(found):
                if isinstance(one, Statement | Family | Filtered | Listing | TolerantSelect) and one.row is not None:
                    yield f"{module.name}.{name}", _statement(one)
                elif isinstance(one, Chain) and one.whole.row is not None:
                    yield f"{module.name}.{name}", one.whole


def _parts(found: object) -> Iterator[object]:
    """What a constant consists of: the statements of a table of them, of an inbox, of the rows of questions."""
    if isinstance(found, Inbox | QuestionRows):
        found = vars(found)
    if not isinstance(found, dict):
        yield found
        return
    for one in found.values():
        yield from one.values() if isinstance(one, dict) else (one,)


def _statement(
    one: Statement[Any] | Family[Any] | Filtered[Any] | Listing[Any] | TolerantSelect[Any],
) -> Statement[Any]:
    """A statement of those that a constant makes."""
    match one:
        case Family():
            return one.of(["a"])[0]
        case Ranges():
            return one.of({}, False, 1)[0]
        case Filtered():
            return one.of({})[0]
        case Listing():
            return one.statement({}, paged=False)
        case TolerantSelect():
            return _statement(one._of(None))
        case Statement():
            return one


def _differing(statement: Statement[Any], backend: Backend) -> set[str]:
    """Return the columns that one of the two has alone. A type may have some that not each of its statements has."""
    kind: Any = statement.row
    names = [cell.name for cell in statement.on(backend)._cells]
    if kind is tuple:
        return set()
    if issubclass(kind, Record):
        return {*names} ^ {*needed_columns(kind)}
    if issubclass(kind, tuple):  # made by position
        return set() if names == [*kind._fields] else {*names} | {*kind._fields}
    told = get_type_hints(kind, include_extras=True)
    optional = {name for name, hint in told.items() if get_origin(hint) is NotRequired}
    shown = {cell.name for cell in statement.on(backend)._cells}
    return (shown - told.keys()) | (told.keys() - optional - shown)


def test_a_statement_returns_the_columns_that_its_type_has(database: Database) -> None:
    """house H-70: with their names, each of them."""
    backend = database.open()._scope.backend
    found = list(typed())
    assert len(found) > 200
    wrong = [(name, sorted(_differing(statement, backend))) for name, statement in found]
    assert [(name, columns) for name, columns in wrong if columns] == []


def test_a_statement_that_is_kept_by_its_arguments_names_its_type() -> None:
    """house H-70: a lone statement, and each part of a chain."""
    assert (take(frozenset({"run_id"})).row, sandbox(frozenset(), None).row) == (Signal, Sandbox)
    chain = cache_statements(
        lambda: Chain(sa.delete(SIGNALS).returning(SIGNALS.c.seq), into=SIGNALS, values={}, row=tuple)
    )()
    assert (chain.head.row, chain.whole.row) == (None, tuple)


def test_a_column_that_a_row_lacks_is_an_error_of_the_type_checker(tmp_path: Path) -> None:
    """house H-70: misspelt, of another table, of a statement without a type, of another list, and left out."""
    file = tmp_path / "wrong.py"
    file.write_text(WRONG, "utf-8")
    # In a process of its own: mypy leaves a million objects, which each later collection of garbage would look at.
    words = [str(file), "--config-file", str(ROOT / "pyproject.toml"), "--cache-dir", str(ROOT / ".mypy_cache")]
    done = subprocess.run([sys.executable, "-m", "mypy", *words], cwd=ROOT, capture_output=True, text=True, check=False)
    told, problems = done.stdout, done.stderr
    lines = {int(line.split(":")[1]) for line in told.splitlines() if ": error:" in line}
    at = {number for number, line in enumerate(WRONG.splitlines(), 1) if line.startswith("    return")}
    sound = WRONG.splitlines().index('    return unit.row(GET, {"message_id": 1})') + 1
    assert lines == at - {sound}, told + problems


def test_a_column_that_no_record_shows_is_an_error_when_the_library_loads() -> None:
    """house H-70."""
    every = set(MESSAGES.columns.keys())
    assert {column.name for column in every_column_of(MessagingMessage, MESSAGES)} == every
    short = type("Short", (Record,), {"__annotations__": {"id": int}})
    with pytest.raises(TypeError, match="Short has no field for content, platform_message_id, role"):
        every_column_of(short, MESSAGES)
    assert [column.name for column in every_column_of(short, MESSAGES, hidden=every - {"id"})] == ["id"]
