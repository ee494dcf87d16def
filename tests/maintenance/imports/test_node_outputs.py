"""What tasks of the second original system produced, where their output tables are defined here."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from pydantic import BaseModel
from support.maintenance.node_databases import made, put

from lastlight_state.testing import Database


class Plan(BaseModel):
    """What a planner produces."""

    steps: list[str]
    is_urgent: bool | None
    hours: float
    title: str


_TABLE = """
CREATE TABLE plan (
  run_id TEXT NOT NULL, node_id TEXT NOT NULL, iteration INTEGER NOT NULL DEFAULT 0, steps TEXT, is_urgent INTEGER,
  hours INTEGER, title TEXT, PRIMARY KEY (run_id, node_id, iteration))
"""


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A database with one run and an empty output table."""
    path = made(tmp_path / "smithers.db")
    put(path, "runs", run_id="r1")
    with closing(sqlite3.connect(path)) as raw, raw:
        raw.execute(_TABLE)
    return path


def _put_plan(path: Path, node: str, *values: Any, iteration: int | None = 0) -> None:
    with closing(sqlite3.connect(path)) as raw, raw:
        raw.execute("INSERT INTO plan VALUES ('r1', ?, ?, ?, ?, ?, ?)", (node, iteration, *values))


def test_rows_come_into_an_output_table_that_is_defined_here(database: Database, source: Path) -> None:
    """maintenance OP-86: by the types of its columns; NULL in place of a truth value stays NULL.

    The run is running, as its source says, and the doctor finds no more than that no worker takes it (workflows W-216).
    """
    store = database.open(migrate=True)
    _put_plan(source, "n", '["a", "b"]', 1, 2, "t")
    _put_plan(source, "n", "[]", None, 0.5, "u", iteration=1)
    table = store.outputs.catalog.define("plan", Plan)
    plan = store.maintenance.imports.plan(source)
    done = store.maintenance.imports.run(source)
    assert (done.rows, done.noticed, plan.rows) == ({"plan": 2, "workflow_runs": 1}, {}, done.rows)
    first, second = (store.outputs.results.get(table, "r1", "n", iteration=i) for i in (0, 1))
    assert first.value == Plan(steps=["a", "b"], is_urgent=True, hours=2.0, title="t")
    assert (second.value.is_urgent, second.value.hours) == (None, 0.5)
    [waits] = [one for one in store.maintenance.doctor.examine().findings if one.check != "DOC-03"]
    [free] = store.workflows.claims.list_claimable().items
    assert (waits.check, waits.subject, free.run_id) == ("DOC-15", "workflow_workers", "r1")
    assert [sample.partition(" since ")[0] for sample in waits.samples] == ["review: 1 run"]
    assert store.maintenance.imports.run(source).units == {"unchanged": 1}


def test_a_run_without_rows_in_a_table_is_imported_beside_its_rows_in_others(database: Database, source: Path) -> None:
    """maintenance OP-86."""
    with closing(sqlite3.connect(source)) as raw, raw:
        raw.execute(_TABLE.replace("TABLE plan", "TABLE sketch"))
    _put_plan(source, "n", "[]", 0, 1, "t")
    store = database.open(migrate=True)
    for name in ("plan", "sketch"):
        store.outputs.define(name, Plan)
    done = store.maintenance.imports.run(source)
    assert (done.units, done.rows) == ({"imported": 1}, {"plan": 1, "workflow_runs": 1})


def test_rows_of_a_table_that_is_defined_later_come_with_the_next_import(database: Database, source: Path) -> None:
    """maintenance OP-86: until then they are counted. What was put here stays."""
    store = database.open(migrate=True)
    _put_plan(source, "n", "[]", 0, 1, "t")
    assert store.maintenance.imports.run(source).noticed == {"plan_left": 1}
    table = store.outputs.catalog.define("plan", Plan)
    assert store.maintenance.imports.run(source).rows == {"plan": 1}
    _put_plan(source, "m", "[]", 0, 1, "theirs")
    store.outputs.results.put(table, "r1", "m", Plan(steps=[], is_urgent=None, hours=1, title="mine"))
    done = store.maintenance.imports.run(source)
    assert (done.units, done.noticed) == ({"grown": 1}, {"row_kept": 1})
    assert store.outputs.results.get(table, "r1", "m").value.title == "mine"


def test_a_table_with_other_columns_is_left(sqlite_database: Database, source: Path) -> None:
    """maintenance OP-86."""

    class Other(BaseModel):
        title: str

    _put_plan(source, "n", "[]", 0, 1, "t")
    store = sqlite_database.open()
    store.outputs.catalog.define("plan", Other)
    assert store.maintenance.imports.run(source).noticed == {"plan_left": 1}


def test_rows_that_are_nothing_but_a_key_come_into_a_table_that_needs_no_more(
    sqlite_database: Database, source: Path
) -> None:
    """maintenance OP-86."""

    class Mark(BaseModel):
        note: str | None

    with closing(sqlite3.connect(source)) as raw, raw:
        raw.execute("CREATE TABLE mark (run_id TEXT, node_id TEXT, iteration INTEGER)")
        raw.execute("INSERT INTO mark VALUES ('r1', 'n', 0)")
    store = sqlite_database.open()
    table = store.outputs.catalog.define("mark", Mark)
    assert store.maintenance.imports.run(source).rows == {"mark": 1, "workflow_runs": 1}
    assert store.outputs.results.get(table, "r1", "n").value == Mark(note=None)


class Due(Plan):
    """A plan with a column of a type that the source has in no form of ours."""

    due: datetime | None = None


@pytest.mark.parametrize("what", ["a column of another type", "a table of the caller's making"])
def test_a_table_that_is_not_filled_from_a_model_is_left(sqlite_database: Database, source: Path, what: str) -> None:
    """maintenance OP-86: also where all columns of the source are among its own."""
    _put_plan(source, "n", "[]", 0, 1, "t")
    store = sqlite_database.open()
    if what == "a column of another type":
        store.outputs.catalog.define("plan", Due)
    else:
        sqlite_database.raw().execute(_TABLE)
        own = sa.Table("plan", sa.MetaData(), *(sa.Column(name, sa.Text) for name in ("steps", "is_urgent", "title")))
        for name in ("run_id", "node_id", "iteration", "hours"):
            own.append_column(sa.Column(name, sa.Text if name.endswith("_id") else sa.Integer, primary_key=name < "s"))
        store.outputs.catalog.attach("plan", own)
    assert store.maintenance.imports.run(source).noticed == {"plan_left": 1}
    assert sqlite_database.raw().execute("SELECT count(*) FROM plan").fetchone()[0] == 0


def test_a_value_that_the_table_cannot_hold_fails_its_run(sqlite_database: Database, source: Path) -> None:
    """maintenance OP-35, OP-86."""
    _put_plan(source, "n", "torn", 0, 1, "t")
    store = sqlite_database.open()
    store.outputs.catalog.define("plan", Plan)
    [failed] = store.maintenance.imports.run(source).failures
    assert (failed.unit, "plan n.steps: is not JSON" in failed.reason) == ("runs/r1", True)


KEYS = "run_id TEXT, node_id TEXT, iteration INTEGER"
EVERY = f"{KEYS}, steps TEXT, is_urgent INTEGER, hours REAL, title TEXT"


@pytest.mark.parametrize(
    ("columns", "is_taken"),
    [
        pytest.param(EVERY, True, id="all of them"),
        pytest.param(f"{EVERY}, row_created_at TEXT, row_updated_at TEXT", True, id="also those of this library"),
        pytest.param(f"{EVERY}, more TEXT", False, id="one more"),
        pytest.param(EVERY.replace("iteration INTEGER, ", ""), False, id="no iteration"),
    ],
)
def test_rows_come_where_the_table_has_all_their_columns(
    sqlite_database: Database, tmp_path: Path, columns: str, is_taken: bool
) -> None:
    """maintenance OP-86: others are counted, and none of them is left out in part."""
    source, store = made(tmp_path / "smithers.db"), sqlite_database.open()
    put(source, "runs", run_id="r1")
    with closing(sqlite3.connect(source)) as raw, raw:
        raw.execute(f"CREATE TABLE plan ({columns})")
        row = {"run_id": "r1", "node_id": "n", "iteration": 0, "steps": "[]", "hours": 1, "title": "t"}
        names = [name for name in row if name in columns]
        raw.execute(
            f"INSERT INTO plan ({', '.join(names)}) VALUES ({', '.join('?' * len(names))})", [row[one] for one in names]
        )
    store.outputs.catalog.define("plan", Plan)
    done = store.maintenance.imports.run(source)
    assert (done.rows.get("plan", 0), done.noticed) == ((1, {}) if is_taken else (0, {"plan_left": 1}))


def test_rows_that_are_nothing_but_their_key_are_counted(sqlite_database: Database, tmp_path: Path) -> None:
    """maintenance OP-86: also of a table without an iteration; and not those of tables of other rows."""
    source = made(tmp_path / "smithers.db")
    put(source, "runs", run_id="r1")
    with closing(sqlite3.connect(source)) as raw, raw:
        raw.execute("CREATE TABLE marks (run_id TEXT, node_id TEXT)")
        raw.execute("CREATE TABLE notes (run_id TEXT)")
        raw.execute("INSERT INTO marks VALUES ('r1', 'n')")
        raw.execute("INSERT INTO notes VALUES ('r1')")
    assert sqlite_database.open().maintenance.imports.run(source).noticed == {"marks_left": 1}


@pytest.mark.parametrize(
    ("node", "iteration", "said"), [("", 0, "node_id"), ("n" * 257, 0, "node_id"), ("n", None, "must not be NULL")]
)
def test_a_row_without_a_sound_key_fails_its_run(
    sqlite_database: Database, source: Path, node: str, iteration: int | None, said: str
) -> None:
    """maintenance OP-35, OP-86."""
    with closing(sqlite3.connect(source)) as raw, raw:
        raw.execute("DROP TABLE plan")
        raw.execute(f"CREATE TABLE plan ({EVERY})")
    _put_plan(source, node, "[]", 1, 1, "t", iteration=iteration)
    store = sqlite_database.open()
    store.outputs.catalog.define("plan", Plan)
    [failed] = store.maintenance.imports.run(source).failures
    assert (failed.unit, said in failed.reason) == ("runs/r1", True)


def test_a_table_of_lists_takes_no_rows(database: Database, source: Path) -> None:
    """maintenance M-98: each row is an object, and not a list of them."""
    store = database.open(migrate=True)
    _put_plan(source, "n", '["a"]', 1, 2, "t")
    store.outputs.define("plan", list[dict[str, Any]])
    assert store.maintenance.imports.run(source).noticed == {"plan_left": 1}


def test_rows_of_a_table_without_a_model_are_objects(database: Database, source: Path) -> None:
    """maintenance M-98."""
    store = database.open(migrate=True)
    _put_plan(source, "n", '["a"]', 1, 2, "t")
    plan = store.outputs.define("plan", dict)
    assert store.maintenance.imports.run(source).rows == {"plan": 1, "workflow_runs": 1}
    found = store.outputs.results.get(plan, "r1", "n")
    assert found.data == {"steps": '["a"]', "is_urgent": 1, "hours": 2, "title": "t"}
