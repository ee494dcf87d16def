"""Which indexes a run is written into, and how lists by status do with the few that there are."""

from __future__ import annotations

import pytest
from support.each import with_each
from support.workflows.plans import plan_of_page
from support.workflows.steps import Raw

from lastlight_state.testing import Database
from lastlight_state.workflows.runs import statements as sql
from lastlight_state.workflows.tables import RUNS
from lastlight_state.workflows.words import LIVE


def test_a_run_that_has_ended_stands_in_few_indexes_beside_those_of_the_seed() -> None:
    """workflows W-190: the others are partial, over runs that are live or have what few runs have."""
    ours = {index.name for index in RUNS.indexes if not str(index.name).startswith("idx_")}
    partial = {index.name for index in RUNS.indexes if index.dialect_options["sqlite"]["where"] is not None}
    assert ours - partial == {
        "ix_workflow_runs_repo",
        "ix_workflow_runs_summary",  # SQLite
        "ix_workflow_runs_trigger_started",  # SQLite
    }


@pytest.mark.parametrize("status", LIVE)
def test_a_list_by_live_statuses_reads_no_ended_run(database: Database, raw: Raw, status: str) -> None:
    """workflows W-191: a range of an index of live runs."""
    store = database.open()
    raw.many_runs(2_000)
    for paged in (False, True):
        chosen = {"statuses": [status]}
        plan = plan_of_page(database, store, sql.listing_of(chosen), chosen, paged=paged)
        assert "ix_workflow_runs_live_started" in plan.text, plan
        assert not plan.sorts_the_table, plan


@with_each("statuses", [["failed"], ["failed", "cancelled"], ["running", "failed"]])
def test_a_list_by_statuses_of_ended_runs_reads_nothing_behind_large_values(
    sqlite_database: Database, raw: Raw, statuses: list[str]
) -> None:
    """workflows W-191, SQLite: it walks the covering index from the newest run on."""
    store = sqlite_database.open()
    chosen = {"statuses": statuses}
    for paged in (False, True):
        plan = plan_of_page(sqlite_database, store, sql.listing_of(chosen), chosen, paged=paged)
        assert "USING COVERING INDEX ix_workflow_runs_summary" in plan.text, plan
        assert not plan.sorts_the_table, plan
