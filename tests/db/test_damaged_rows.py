"""Rows that plain SQL has damaged: marked in lists, passed by sweeps, named by `get`."""

from __future__ import annotations

from typing import Any

import pytest

from lastlight_state.errors import CorruptData
from lastlight_state.store import StateStore
from lastlight_state.testing import Database
from lastlight_state.workflows import Gate, Trigger
from lastlight_state.workflows.arguments import RunOptions

#: A value for a column of `workflow_runs` that cannot be read, by database and column.
DAMAGE = {
    "sqlite": [
        ("repo", "CAST(x'61ff' AS TEXT)"), ("repo", "x'00ff'"), ("issue_number", "'many'"), ("started_at", "'soon'"),
        ("started_at", "5"), ("triggered_by", "CAST(x'ff' AS TEXT)"),
    ],
    "postgresql": [("started_at", "'infinity'"), ("updated_at", "'-infinity'"), ("finished_at", "'infinity'")],
}  # fmt: skip


def runs(store: StateStore, count: int = 5) -> None:
    for n in range(count):
        store.workflows.runs.create("wf", trigger=Trigger("t"), phase="p", options=RunOptions(id=f"run-{n}"))


def damage(database: Database, column: str, value: str) -> None:
    database.raw().execute(f"UPDATE workflow_runs SET {column} = {value} WHERE id = 'run-2'")


@pytest.mark.parametrize("which", range(6))
@pytest.mark.parametrize("limit", [1, 2, 50])
def test_a_list_marks_a_row_that_cannot_be_read_and_shows_all_others(
    database: Database, which: int, limit: int
) -> None:
    """house H-52: with its table, key and column, whatever the size of a page."""
    store = database.open()
    runs(store)
    column, value = DAMAGE[database.name][which % len(DAMAGE[database.name])]
    damage(database, column, value)
    shown, damaged = pages(store, limit)
    assert sorted(shown) == ["run-0", "run-1", "run-3", "run-4"]
    assert damaged == {("workflow_runs", "run-2", column)}
    assert store.metrics.damaged_rows >= 1
    with pytest.raises(CorruptData) as refused:
        store.workflows.runs.get("run-2")
    assert (refused.value.table, refused.value.key, refused.value.column) == ("workflow_runs", "run-2", column)


def pages(store: StateStore, limit: int) -> tuple[list[str], set[tuple[str, Any, str]]]:
    """The ids that all pages of the list show, and the damage that they tell."""
    shown: list[str] = []
    damaged: set[tuple[str, Any, str]] = set()
    token = None
    while True:
        page = store.workflows.runs.list(limit=limit, page_token=token)
        shown += [run.id for run in page]
        damaged |= {(row.table, row.key, row.column) for row in page.damaged}
        token = page.next_page_token
        if token is None:
            return shown, damaged


def test_taking_the_next_run_passes_one_that_cannot_be_read(database: Database) -> None:
    """house H-52: a sweep reaches those behind it."""
    store = database.open()
    runs(store, 3)
    value = "'infinity'" if database.name == "postgresql" else "'soon'"
    database.raw().execute(f"UPDATE workflow_runs SET deadline_at = {value} WHERE id = 'run-0'")
    database.clock.advance(seconds=7200)
    taken = store.workflows.claims.take_next(owner="w", limit=3)
    assert {"run-1", "run-2"} <= {claim.run_id for claim in taken}


def test_expiring_gates_passes_one_that_cannot_be_read(database: Database) -> None:
    """house H-52."""
    store = database.open()
    runs(store, 3)
    due = database.clock.now()
    for n in range(3):
        store.workflows.approvals.create(f"run-{n}", Gate("g", "Sure?", id=f"ap-{n}"))
    database.clock.advance(seconds=3600)
    late = "'-infinity'" if database.name == "postgresql" else "'0000'"
    raw = database.raw()
    raw.execute(f"UPDATE workflow_approvals SET expires_at = {late} WHERE id = 'ap-0'")
    for n in (1, 2):
        moment = due.isoformat(timespec="milliseconds").replace("+00:00", "Z")
        raw.execute(f"UPDATE workflow_approvals SET expires_at = '{moment}' WHERE id = 'ap-{n}'")
    assert {"ap-1", "ap-2"} <= set(store.workflows.approvals.expire_due())
