"""What lists of live runs read on SQLite where the planner's statistics are those of a small database."""

from __future__ import annotations

from typing import Any

import pytest
from support.workflows.plans import plan_of
from support.workflows.steps import Raw

from lastlight_state.testing import Database
from lastlight_state.workflows.claims import lists
from lastlight_state.workflows.workers.waiting import FREE

RANGES: dict[str, lists.Ranges[Any]] = {
    "listed": lists.LISTED,
    "taken": lists.TAKEN_NEXT,
    "sound": lists.SOUND_NEXT,
    "spent": lists.SPENT,
    "free": FREE,
}


@pytest.mark.parametrize("name", RANGES)
def test_no_list_of_live_runs_reads_all_runs_first(sqlite_database: Database, name: str) -> None:
    """workflows W-101: also with statistics of few runs, by which a planner makes a Bloom filter of all."""
    store, raw = sqlite_database.open(), Raw(sqlite_database)
    raw.many_runs(40)
    raw("ANALYZE")
    now = sqlite_database.clock.now()
    moment = lists.moment(now)
    look, given = RANGES[name].of({"workflow_name": None}, False, 51)
    found = plan_of(sqlite_database, store, look, {**moment, **given})
    assert "ix_run_leases_due" in found.text
    assert "BLOOM" not in found.text, found
