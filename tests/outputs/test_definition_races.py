from __future__ import annotations

import signal
from typing import Any

import pytest
from pydantic import create_model
from support.workflows.crew import Crew

from lastlight_state.testing import Database

DEFINE = """
import os
from support.outputs.definer import define

url, field, die_at = arguments
ready()
if die_at and not (child := os.fork()):
    define(url, field, die_at)
    os._exit(0)
result = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) if die_at else define(url, field)
"""


def defined(crew: Crew, database: Database, *, members: int, shapes: str = "") -> list[Any]:
    """What processes that are let go together get: number n defines ``summary`` and shape n (modulo their number)."""
    fields = shapes.split(",")
    return crew.race(DEFINE, *([database.url, fields[n % len(fields)], 0] for n in range(members)))


def columns(database: Database) -> set[str]:
    store = database.open()
    return {column.name for column in store.outputs.catalog.get("report").columns if column.field}


def test_eight_processes_that_define_one_new_key_get_equal_handles(fresh_database: Database, crew: Crew) -> None:
    """outputs M-1."""
    told = defined(crew, fresh_database, members=8)
    assert len(set(told)) == 1, told
    assert columns(fresh_database) == {"summary"}


def test_eight_processes_that_define_the_same_grown_key_add_the_column_once(
    fresh_database: Database, crew: Crew
) -> None:
    """outputs M-1, M-2."""
    defined(crew, fresh_database, members=1)
    told = defined(crew, fresh_database, members=8, shapes="score")
    assert len(set(told)) == 1, told
    assert columns(fresh_database) == {"summary", "score"}


def test_two_additive_shapes_at_once_leave_their_union(fresh_database: Database, crew: Crew) -> None:
    """outputs M-1."""
    told = defined(crew, fresh_database, members=8, shapes="score,weight")
    assert not [one for one in told if one is None or "Error" in one or "Mismatch" in one], told
    assert columns(fresh_database) == {"summary", "score", "weight"}


@pytest.mark.parametrize("statement", [1, 2, 3])
def test_a_definition_that_is_killed_leaves_everything_or_nothing(
    fresh_database: Database, crew: Crew, statement: int
) -> None:
    """outputs M-1, case 3: before the table, before its index, before its registry row."""
    assert crew.race(DEFINE, [fresh_database.url, "", statement]) == [-signal.SIGKILL]
    store = fresh_database.open()
    model: Any = create_model("Report", summary=(str, ...))
    plan = store.outputs.catalog.plan("report", model)
    assert (plan.create, plan.differences) == (True, ())
    assert not store.outputs.catalog.list().items
    assert len(set(defined(crew, fresh_database, members=1))) == 1
