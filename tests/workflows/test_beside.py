"""On SQLite, lists are shown from covering indexes: their statements name them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from support.each import with_each

from lastlight_state import StateStore
from lastlight_state.db.lists.listing import Listing
from lastlight_state.workflows.approvals import statements as approvals
from lastlight_state.workflows.executions import lists as executions
from lastlight_state.workflows.lookups import statements as lookups
from lastlight_state.workflows.queue import statements as queue
from lastlight_state.workflows.runs import statements as runs
from lastlight_state.workflows.waits import WAITING

_REPO = {"owned_repo": {"repo_owner": "o", "repo_name": "r", "qualified": "o/r"}}

#: Lists by filters that no covering index begins with, and the index that shows them.
LISTS: list[tuple[Listing[Any], Mapping[str, Any], str]] = [
    (runs.LIST, {"workflow_names": ["a", "b"]}, "ix_workflow_runs_summary"),
    (runs.LIST, _REPO, "ix_workflow_runs_summary"),
    (runs.LIST, {"owned_repos": [*_REPO.values()] * 2}, "ix_workflow_runs_summary"),
    (queue.LIST, {}, "ix_workflow_runs_summary"),
    (WAITING, {"signal": "go"}, "ix_workflow_runs_summary"),
    (lookups.CHILDREN, {"run_id": "r"}, "ix_workflow_runs_summary"),
    (executions.listing_of({"node": None, "skill": "s"}), {"skill": "s"}, "ix_executions_usage"),
    (executions.listing_of({"node": None, "trigger_id": "t"}), {"trigger_id": "t"}, "ix_executions_usage"),
    (executions.listing_of({"node": {}}), {"run_id": "r"}, "ix_executions_usage"),
    (approvals.LIST, {}, "ix_approvals_summary"),
    (approvals.LIST, {"statuses": ["approved"]}, "ix_approvals_summary"),
    (approvals.OF_RUN, {"run_id": "r"}, "ix_approvals_summary"),
]


@with_each(("listing", "given", "index"), LISTS)
def test_a_list_is_shown_from_a_covering_index(
    every_backend: StateStore, listing: Listing[Any], given: Mapping[str, Any], index: str
) -> None:
    """workflows W-100: where large values lie inside the rows."""
    for paged in (False, True):
        sql = listing.statement(given, paged=paged).on(every_backend.backend).sql
        assert (f"INDEXED BY {index}" in sql) == every_backend.backend.large_values_in_rows
