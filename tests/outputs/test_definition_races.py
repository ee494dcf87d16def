from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pydantic import create_model

from lastlight_state.testing import Database

DEFINER = Path(__file__).parents[1] / "support" / "outputs" / "definer.py"


def defined(database: Database, *, members: int, shapes: str = "", die_at: int = 0) -> list[Any]:
    words = [sys.executable, str(DEFINER), database.url, str(members), shapes, str(die_at)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=120, check=True)
    told: list[Any] = json.loads(done.stdout)
    return told


def columns(database: Database) -> set[str]:
    store = database.open()
    return {column.name for column in store.outputs.catalog.get("report").columns if column.field}


def test_eight_processes_that_define_one_new_key_get_equal_handles(fresh_database: Database) -> None:
    """outputs M-1, case 1."""
    told = defined(fresh_database, members=8)
    assert len(set(told)) == 1, told
    assert columns(fresh_database) == {"summary"}


def test_eight_processes_that_define_the_same_grown_key_add_the_column_once(fresh_database: Database) -> None:
    """outputs M-1, M-2, case 1."""
    defined(fresh_database, members=1)
    told = defined(fresh_database, members=8, shapes="score")
    assert len(set(told)) == 1, told
    assert columns(fresh_database) == {"summary", "score"}


def test_two_additive_shapes_at_once_leave_their_union(fresh_database: Database) -> None:
    """outputs M-1, case 2."""
    told = defined(fresh_database, members=8, shapes="score,weight")
    assert not [one for one in told if one is None or "Error" in one or "Mismatch" in one], told
    assert columns(fresh_database) == {"summary", "score", "weight"}


@pytest.mark.parametrize("statement", [1, 2, 3])
def test_a_definition_that_is_killed_leaves_everything_or_nothing(fresh_database: Database, statement: int) -> None:
    """outputs M-1, case 3: before the table, before its index, before its registry row."""
    assert defined(fresh_database, members=1, die_at=statement) == [None]
    store = fresh_database.open()
    model: Any = create_model("Report", summary=(str, ...))
    plan = store.outputs.catalog.plan("report", model)
    assert (plan.create, plan.differences) == (True, ())
    assert not store.outputs.catalog.list().items
    assert len(set(defined(fresh_database, members=1))) == 1
