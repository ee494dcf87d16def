"""A call that shows facts together shows them as they stood at one moment."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from support.filled_store import scene
from support.sent import recorded
from support.shown import lists, looks
from support.workflows.steps import Raw, started

from lastlight_state import StateStore
from lastlight_state.testing import Database

#: Calls that show facts of one of their statements only, and what the other reads.
ALONE = {
    "outputs": "the definition of the output's table",
    "outputs with content": "the same",
    "output history": "the same",
    "output": "the same",
    "cached": "the same",
    "whole checkpoints": "which they are; each is whole, by one statement, and one that goes meanwhile is left out",
    "frame": "frames before it, which never change",
    **dict.fromkeys(
        ("claimable", "pending approvals", "pending approvals of a run", "pending requests"),
        "whether a question is overdue, which is expired before the list is read",
    ),
}


def test_what_takes_several_statements_reads_one_snapshot(fresh_database: Database) -> None:
    """house H-40: every list and look-up, over a store with rows of every kind."""
    scene(fresh_database)
    with recorded(fresh_database) as (store, sent):
        calls: dict[str, Callable[[], Any]] = {name: call for name, (call, _) in lists(store).items()}
        calls |= looks(store, 1)
        found = {name: _statements(call, sent) for name, call in calls.items()}
    several = {name: texts for name, texts in found.items() if len(texts) > 1}
    torn = {name: texts for name, texts in several.items() if not texts[0].startswith("BEGIN")}
    assert torn.keys() <= ALONE.keys(), torn
    assert len(several) > 5


def _statements(call: Callable[[], Any], sent: list[str]) -> list[str]:
    sent.clear()
    call()
    return [text for text in sent if not text.startswith(("SAVEPOINT", "RELEASE"))]


RUNS: dict[str, Callable[[StateStore], Any]] = {
    "newest": lambda store: store.workflows.runs.list(),
    "active first": lambda store: store.workflows.runs.list(order="active_first"),
    "queue": lambda store: store.workflows.queue.list(),
    "waiting": lambda store: store.workflows.waits.list_waiting("go"),
}


@pytest.mark.parametrize("name", RUNS)
def test_a_run_and_its_totals_are_of_one_moment(database: Database, name: str) -> None:
    """house H-40: a phase and its execution are written between the two statements of a list."""
    writer, raw = database.open(), Raw(database)
    run_id = started(writer, status="queued" if name == "queue" else "running").id
    if name == "waiting":
        writer.workflows.waits.pause(run_id, signal="go")

    def write() -> None:
        raw("UPDATE workflow_runs SET phase_count = 1 WHERE id = ?", run_id)
        raw.execution(run_id)

    with recorded(database) as (store, sent):
        sent.before(("SELECT executions.workflow_run_id", "SELECT found.workflow_run_id"), write)
        [run] = RUNS[name](store).items
        assert (run.phase_count, run.totals.executions) == (0, 0)
        [run] = RUNS[name](store).items
        assert (run.phase_count, run.totals.executions) == (1, 1)
