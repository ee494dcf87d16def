"""How many statements a call runs, and by which indexes."""

from __future__ import annotations

from typing import Any

import pytest
from support.each import with_each
from support.outputs.shapes import Analysis, Grown, a_run
from support.workflows.plans import plan_of

from lastlight_state import StateStore
from lastlight_state.db.units.unit import Unit
from lastlight_state.outputs.results.statements import statements_of
from lastlight_state.testing import Database


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The statements that units run, and the texts that they execute as they stand."""
    seen: list[str] = []

    def watch(name: str, text_of: Any) -> None:
        own = getattr(Unit, name)

        def watching(unit: Unit, *given: Any) -> Any:
            seen.append(text_of(*given))
            return own(unit, *given)

        monkeypatch.setattr(Unit, name, watching)

    watch("change", lambda statement, *_: str(statement))
    watch("_fetch", lambda compiled, _: compiled.sql)
    watch("control", lambda sql: sql)
    return seen


def test_the_first_put_is_one_statement(every_backend: StateStore, counted: list[str]) -> None:
    """outputs R-2, case 58."""
    made, run_id = every_backend.outputs.define("analysis", Analysis), a_run(every_backend)
    counted.clear()
    every_backend.outputs.results.put(made, run_id, "n", {"summary": "x"})
    assert len(counted) == 1
    counted.clear()
    every_backend.outputs.results.find(made, run_id, "n")
    every_backend.outputs.results.find_latest("analysis", run_id, "n")
    assert len(counted) == 2


def test_what_is_complete_is_looked_at_once_and_never_written(database: Database, counted: list[str]) -> None:
    """outputs M-2, D-8: no lock and no DDL; again in one store no statement at all."""
    database.open(migrate=True).outputs.define("analysis", Grown)
    later = database.open(migrate=True)
    counted.clear()
    later.outputs.define("analysis", Analysis)
    assert len(counted) == 1
    assert counted[0].startswith("SELECT")
    later.outputs.define("analysis", Analysis)
    assert len(counted) == 1


@with_each("which", ["get", "latest", "list", "list of a run", "load", "load of a node"])
def test_reads_go_by_the_key_or_by_the_times(database: Database, which: str) -> None:
    """outputs case 59: nothing scans or sorts the table."""
    store = database.open(migrate=True)
    statements = statements_of(store.outputs.define("analysis", Analysis))
    place = {"run_id": "r", "node_id": "n", "iteration": 0}
    chosen: dict[str, Any] = {
        "get": statements.get,
        "latest": statements.latest,
        "list": statements.newest.statement({}, paged=False),
        "list of a run": statements.newest.statement({"run_id": "r"}, paged=False),
        "load": statements.load.statement({"run_id": "r"}, paged=False),
        "load of a node": statements.load.statement({"run_id": "r", "node_id": "n"}, paged=False),
    }
    plan = plan_of(database, store, chosen[which], place, in_order=True)
    assert not plan.scans_the_table or which == "list", plan
    assert not plan.sorts_the_table, plan
