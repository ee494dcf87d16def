"""Look-ups: questions about runs, each answered from an index. Nothing is written."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Literal

from lastlight_state.clock import aware_utc
from lastlight_state.db import pages, valid
from lastlight_state.db.records import Page
from lastlight_state.db.repository import Repository
from lastlight_state.db.unit import Unit
from lastlight_state.errors import InvalidValue
from lastlight_state.workflows import repos as repo_conditions
from lastlight_state.workflows.arguments import EVERY_RUN, NodeRef, RunFilter
from lastlight_state.workflows.executions.records import ExecutionSummary
from lastlight_state.workflows.kernel import rows as run_rows
from lastlight_state.workflows.lookups import filters as lookup_checks, statements as sql, stories as run_story
from lastlight_state.workflows.lookups.filters import filled
from lastlight_state.workflows.lookups.records import (
    Count,
    RepoRuns,
    RunActivity,
    RunAncestor,
    RunTransition,
    TaskStory,
)
from lastlight_state.workflows.records import RunSummary
from lastlight_state.workflows.repos import split_legacy
from lastlight_state.workflows.runs import lists as run_list
from lastlight_state.workflows.words import RunStatus

Order = Literal["newest", "oldest"]

_NAMES, _REPOS = ["workflow_names"], ["repos"]


class Lookups(Repository):
    """``store.workflows.lookups``"""

    def find_for_trigger(
        self,
        trigger_id: str,
        *,
        workflow_names: Sequence[str] | None = None,
        statuses: Sequence[RunStatus] | None = None,
        order: Order = "newest",
    ) -> RunSummary | None:
        """The newest run of a trigger, or None. ``"oldest"`` among live statuses is the one that was there first.

        Goes through the runs of the trigger that have these statuses.
        """
        found = filled(lookup_checks.of_trigger(trigger_id, workflow_names, statuses))
        valid.word("order", order, sql.ORDERS)
        if found is None:
            return None
        statement, values = sql.for_trigger(found[0], order), found[1]
        runs = self._viewing(lambda unit: run_list.summaries(unit, unit.rows(statement, values)))
        return runs[0] if runs else None

    def latest_by_workflow(
        self, trigger_id: str, names: Sequence[str], *, statuses: Sequence[RunStatus] | None = None
    ) -> dict[str, RunSummary]:
        """The newest run of a trigger in each of these workflows (at most 50); those without a run are left out."""
        found = filled(lookup_checks.of_trigger(trigger_id, names, statuses))
        if found is None:
            return {}
        statement, values = sql.latest_by_workflow(found[0]), found[1]
        runs = self._viewing(lambda unit: run_list.summaries(unit, unit.rows(statement, values)))
        return {run.workflow_name: run for run in runs}

    def list_children(self, run_id: str, *, limit: int = 50, page_token: str | None = None) -> Page[RunSummary]:
        """A page of the runs that this one started, newest first. Raises `NotFound` for an unknown run."""
        valid.page_limit(limit)

        def work(unit: Unit) -> Page[RunSummary]:
            page = run_rows.page_of(unit, sql.CHILDREN, dict, limit, page_token, run_id=run_id)
            return Page(items=run_list.summaries(unit, page.items), next_page_token=page.next_page_token)

        return self._viewing(work)

    def list_ancestors(self, run_id: str, *, limit: int = 1_000) -> tuple[RunAncestor, ...]:
        """The run itself, its parent, and so on, at most ``limit`` (1 to 1,000) of them.

        The chain ends at a parent that is not there, and where a planted cycle closes. Raises `NotFound`.
        """
        values = {"run_id": run_id, "most": valid.number("limit", limit, least=1, most=lookup_checks.MOST_ANCESTORS)}
        chain: dict[str, RunAncestor] = {}
        for ancestor in self._reading(lambda unit: unit.all(RunAncestor, sql.ANCESTORS, values)):
            if ancestor.id in chain:
                break
            chain[ancestor.id] = ancestor
        if not chain:
            raise valid.not_found("workflow_run", run_id)
        return tuple(chain.values())

    def list_transitions(
        self, run_id: str, *, order: Order = "newest", limit: int = 50, page_token: str | None = None
    ) -> Page[RunTransition]:
        """A page of the changes of a run's status, by number. Raises `NotFound` for an unknown run."""
        listing = sql.TRANSITION_ORDERS[valid.word("order", order, sql.ORDERS)]
        valid.page_limit(limit)
        return self._reading(
            lambda unit: run_rows.page_of(unit, listing, RunTransition.of, limit, page_token, run_id=run_id)
        )

    def count(self, which: RunFilter = EVERY_RUN, *, at_most: int = 10_000) -> Count:
        """How many runs the filter admits. Stops at ``at_most`` (1 to 1,000,000), which bounds what it costs."""
        found = filled(lookup_checks.counted(which))
        valid.number("at_most", at_most, least=1, most=lookup_checks.MOST_COUNTED)
        if found is None:
            return Count(value=0, exact=True)
        statement, values = sql.counting(found[0]), {**found[1], "most": at_most + 1}
        runs = int(self._reading(lambda unit: unit.value(statement, values)))
        return Count(value=min(runs, at_most), exact=runs <= at_most)

    def names(self, *, limit: int = 500, page_token: str | None = None) -> Page[str]:
        """A page of the names of workflows that have runs, ascending. Costs the same however many runs there are."""
        valid.page_limit(limit)
        after = _texts(_NAMES, page_token, ("",))[0]
        values = {"after": after, "most": limit + 1}
        names = [row["name"] for row in self._reading(lambda unit: unit.rows(sql.NAMES, values))]
        token = pages.encode_token(_NAMES, [names[limit - 1]]) if len(names) > limit else None
        return Page(items=tuple(names[:limit]), next_page_token=token)

    def repos(self, *, limit: int = 500, page_token: str | None = None) -> Page[RepoRuns]:
        """A page of repositories that have runs, by owner and name, those without an owner first.

        A repository that another program stored as one text counts with the others of its name. Each call walks over
        an index of all runs, because it counts them.
        """
        valid.page_limit(limit)
        after = _texts(_REPOS, page_token, ("", ""))
        repos = _folded(self._reading(lambda unit: unit.rows(sql.REPOS)))
        page = [repos[key] for key in sorted(repos) if key > after][: limit + 1]
        last = page[limit - 1] if len(page) > limit else None
        token = pages.encode_token(_REPOS, [last.owner or "", last.repo]) if last else None
        return Page(items=tuple(page[:limit]), next_page_token=token)

    def activity(self, owner: str | None, repo: str, *, since: datetime) -> tuple[RunActivity, ...]:
        """The runs of a repository that began since then, counted by workflow and status."""
        values = {**repo_conditions.owned(owner, repo)["owned_repo"], "since": aware_utc("since", since)}
        return tuple(self._reading(lambda unit: unit.all(RunActivity, sql.ACTIVITY, values)))

    def get_task(self, run_id: str, node: NodeRef) -> TaskStory:
        """What became of a node in one iteration: its attempts, and whom it waited for.

        Raises `NotFound` for an unknown run, or a node of which neither a row nor an attempt is there.
        """
        return self._viewing(lambda unit: run_story.task(unit, run_id, node))

    def search_errors(
        self, text: str, *, since: datetime, limit: int = 50, page_token: str | None = None
    ) -> Page[ExecutionSummary]:
        """A page of executions since then whose error or skill contains the text, newest first.

        The text means itself, and ASCII letters match in both cases. Costs what lies between ``since`` and now.
        """
        given = lookup_checks.search(text, since)
        valid.page_limit(limit)
        return self._reading(
            lambda unit: sql.SEARCH.page(unit, ExecutionSummary.of, limit=limit, page_token=page_token, given=given)
        )


def _texts(asked: Any, page_token: str | None, start: tuple[str, ...]) -> tuple[str, ...]:
    """The texts of a token, or where to start without one."""
    key = pages.decode_token(asked, page_token)
    if key is None:
        return start
    if len(key) != len(start) or not all(isinstance(part, str) for part in key):
        raise InvalidValue("page_token", "damaged, or made by something else")
    return tuple(valid.content("page_token", part, pages.LONGEST) for part in key)


def _folded(rows: Sequence[dict[str, Any]]) -> dict[tuple[str, str], RepoRuns]:
    """The repositories by owner and name, whichever way their rows spell them."""
    found: dict[tuple[str, str], RepoRuns] = {}
    for row in rows:
        owner, repo = split_legacy(row["owner"], row["repo"])
        key = (owner or "", repo or "")
        other = found.get(key)
        runs, last = row["runs"], row["last_run_at"]
        if other is not None:
            runs, last = runs + other.runs, max(last, other.last_run_at)
        found[key] = RepoRuns(owner=owner, repo=repo or "", runs=runs, last_run_at=last)
    return found
