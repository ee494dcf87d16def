"""How look-ups are read: each from an index, and none by going through history to find a few."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from support.workflows.filled import fill
from support.workflows.plans import plan_of
from support.workflows.steps import Raw

from lastlight_state import StateStore
from lastlight_state.testing import Database
from lastlight_state.workflows import lookups
from lastlight_state.workflows.lookups import statements as sql
from lastlight_state.workflows.runs import resume

Rows = pytest.mark.parametrize("rows", [2_000, pytest.param(100_000, marks=pytest.mark.soak)])

TRIGGER = (("trigger_id", 0),)
CHECKED: list[tuple[Any, str, str]] = [
    (
        sql.for_trigger((*TRIGGER, ("statuses", 4)), "oldest"),
        "ix_workflow_runs_trigger_started (trigger_id=?)",
        "Index",
    ),
    (
        sql.for_trigger(TRIGGER, "newest"),
        "ix_workflow_runs_trigger_started (trigger_id=?)",
        "idx_workflow_runs_trigger",
    ),
    (
        sql.for_trigger((*TRIGGER, ("workflow_names", 1)), "newest"),
        "ix_workflow_runs_trigger_started (trigger_id=?)",
        "Index",
    ),
    (
        sql.latest_by_workflow((*TRIGGER, ("workflow_names", 2))),
        "ix_workflow_runs_trigger_started (trigger_id=?)",
        "Index",
    ),
    (sql.CHILDREN.statement({"run_id": "r1"}, paged=True), "ix_workflow_runs_parent", "ix_workflow_runs_parent"),
    (sql.ANCESTORS, "sqlite_autoindex_workflow_runs_1 (id=?)", "pk_workflow_runs"),
    (sql.TRANSITION_ORDERS["newest"].statement({"run_id": "r1"}, paged=True), "(run_id=? AND", "run_transitions"),
    (sql.count_statement((("statuses", 2),)), "COVERING INDEX", "Index"),
    (sql.count_statement((("workflow_names", 1), ("since", 0))), "idx_workflow_runs_name_started", "Index"),
    (sql.count_statement((("owned_repo", 0),)), "INDEX", "Index"),
    (sql.NAMES, "COVERING INDEX idx_workflow_runs_name_started (workflow_name>?)", "Index Only Scan"),
    (sql.REPOS, "COVERING INDEX ix_workflow_runs_repo", "ix_workflow_runs_repo"),
    (sql.ACTIVITY, "ix_workflow_runs_repo (owner=? AND repo=? AND started_at>?)", "ix_workflow_runs_repo"),
    (sql.SEARCH.statement({"since": 1, "text": {}}, paged=True), "ix_executions_usage", "ix_executions_started"),
    (lookups.ATTEMPTS, "uq_executions_attempt", "Index"),
    (lookups.WAITS, "approvals_", "Index"),
    (resume.NODES_OF_RUN, "(run_id=?)", "run_nodes"),
    (resume.LOOPS_OF_RUN, "(run_id=?)", "run_loops"),
    (resume.IN_FLIGHT_OF_RUN, "ix_executions_signs (workflow_run_id=?)", "Index"),
    (resume.GATES_OF_RUN, "ix_approvals_run (workflow_run_id=?)", "Index"),
    (resume.REQUESTS_OF_RUN, "ix_human_requests_summary (run_id=?)", "Index"),
]


def check(database: Database, store: StateStore) -> None:
    now = database.clock.now()
    values: dict[str, Any] = {
        "trigger_id": "t1", "run_id": "r1", "node_id": "n", "iteration": 0, "most": 50, "after": "", "pattern": "%x%",
        "repo_owner": "acme", "repo_name": "x1", "qualified": "acme/x1", "since": now + timedelta(seconds=1),
        "after_0": now + timedelta(seconds=50), "after_1": "x",
        **{f"statuses_{i}": "running" for i in range(4)}, **{f"workflow_names_{i}": "w1" for i in range(4)},
    }  # fmt: skip
    for statement, on_sqlite, on_postgres in CHECKED:
        given = {**values, "after_0": 5} if "run_transitions" in statement.on(store.backend).sql else values
        sorted_here = "ix_workflow_runs_trigger_started" in on_sqlite  # the runs of one trigger, which are few
        plan = plan_of(database, store, statement, given, in_order=not sorted_here)
        assert (on_sqlite if database.name == "sqlite" else on_postgres) in plan.text, plan
        assert not plan.scans_the_table, plan


@Rows
def test_look_ups_read_indexes(database: Database, every_backend: StateStore, raw: Raw, rows: int) -> None:
    """workflows W-96, W-101: with statistics, and on SQLite without any."""
    if database.name == "sqlite":
        check(database, every_backend)
    raw.many_runs(rows)
    fill(raw, rows)
    check(database, every_backend)
