"""Look-ups: queries about runs, each served by an index."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Any, Literal

import sqlalchemy as sa

from lastlight_state.clock import aware_utc
from lastlight_state.db import valid
from lastlight_state.db.lists import pages
from lastlight_state.db.lists.pages import Window, keyed_rows, map_page, split_damaged, window
from lastlight_state.db.repository import Repository
from lastlight_state.db.rows.records import Page
from lastlight_state.db.rows.statements import bind, constant, number, statement_of
from lastlight_state.db.rows.writes import as_list
from lastlight_state.db.units.unit import Unit
from lastlight_state.workflows import repos
from lastlight_state.workflows.arguments import NodeRef, RunFilter
from lastlight_state.workflows.executions.records import ExecutionSummary
from lastlight_state.workflows.executions.statements import SUMMARY
from lastlight_state.workflows.lookups import statements, statements as sql
from lastlight_state.workflows.lookups.records import (
    Count,
    RepoRuns,
    RunActivity,
    RunAncestor,
    RunTransition,
    TaskStory,
    TaskWait,
)
from lastlight_state.workflows.lookups.statements import StoredRepo
from lastlight_state.workflows.nodes import key
from lastlight_state.workflows.nodes.statements import FIND
from lastlight_state.workflows.questions.records import as_of
from lastlight_state.workflows.records import RunSummary
from lastlight_state.workflows.runs.lists import summaries
from lastlight_state.workflows.shared import run_rows
from lastlight_state.workflows.shared.transitions import first_line
from lastlight_state.workflows.tables import APPROVALS, EXECUTIONS, NODES, REQUESTS
from lastlight_state.workflows.words import TERMINAL, RunStatus

# The history of a task: several statements about one node of a run, read from one snapshot.

_e = EXECUTIONS.c
_run_id = bind("run_id", NODES.c.run_id)
_node = (bind("node_id", NODES.c.node_id), bind("iteration", NODES.c.iteration))


#: The last attempts at a node, each with the number of all as ``attempt_count``.
ATTEMPTS = statement_of(
    sa.select(*SUMMARY, sa.func.count().over().label("attempt_count"))
    .where(_e.workflow_run_id == _run_id, _e.node_id == _node[0], _e.iteration == _node[1])
    .order_by(_e.attempt.desc())
    .limit(number(500))
)
LATEST_ITERATION = statement_of(
    sa.select(sa.func.max(NODES.c.iteration).label("iteration")).where(
        NODES.c.run_id == _run_id, NODES.c.node_id == _node[0]
    )
)


def _question_select(
    table: sa.Table, kind: str, run_id: str, asked_at: str, answered: tuple[str, str]
) -> sa.Select[Any]:
    c = table.c
    columns = {"id": c.id, "status": c.status, "asked_at": c[asked_at], "expires_at": c.expires_at}
    columns |= {"answered_at": c[answered[0]], "answered_by": c[answered[1]]}
    shown = (column.label(name) for name, column in columns.items())
    return sa.select(constant(kind).label("kind"), *shown).where(
        c[run_id] == _run_id, c.node_id == _node[0], c.iteration == _node[1]
    )


_waits = sa.union_all(
    _question_select(APPROVALS, "approval", "workflow_run_id", "created_at", ("responded_at", "responded_by")),
    _question_select(REQUESTS, "human_request", "run_id", "requested_at", ("answered_at", "answered_by")),
).subquery()
WAITS = statement_of(
    sa.select(*_waits.c).order_by(_waits.c.asked_at.desc(), _waits.c.id.desc()).limit(number(100)), TaskWait
)


def task(unit: Unit, run_id: str, ref: NodeRef, now: datetime) -> TaskStory:
    """Return the history of a node in one iteration. Raises `NotFound`."""
    here = key(run_id, ref)
    node = unit.row(FIND, here)
    attempts = unit.rows(ATTEMPTS, here)
    if node is None and not attempts:
        run_rows.expect_one(unit, run_id)
        raise valid.not_found("run_node", ref.node_id)
    count = [row.pop("attempt_count") for row in attempts]
    told = [ExecutionSummary.of(row) for row in reversed(attempts)]
    return TaskStory(
        run_id=run_id,
        node_id=ref.node_id,
        iteration=ref.iteration,
        node=node,
        latest_iteration=unit.value(LATEST_ITERATION, here),
        attempts=tuple(told),
        attempt_count=count[0] if count else 0,
        cached=bool(told) and told[-1].cached,
        started_at=told[0].started_at if told else None,
        finished_at=told[-1].finished_at if told else None,
        waits=tuple(as_of(wait, now) for wait in reversed(unit.rows(WAITS, here))),
    )


Order = Literal["newest", "oldest"]

NO_FILTER = RunFilter()

_NAMES, _REPOS = ["workflow_names"], ["repos"]


class Lookups(Repository):
    """``store.workflows.lookups``: find, count and list runs, their transitions, tasks and errors."""

    def find_for_trigger(
        self,
        trigger_id: str,
        *,
        workflow_names: Sequence[str] | None = None,
        statuses: Sequence[RunStatus] | None = None,
        order: Order = "newest",
    ) -> RunSummary | None:
        """Return the newest or the oldest run of a trigger, or None if no run passes the filters.

        With ``"oldest"`` and the live statuses: the live run that started first. Reads all runs of the trigger that
        have these statuses.
        """
        found = statements.given_filters(statements.of_trigger(trigger_id, workflow_names, statuses))
        valid.word("order", order, sql.ORDERS)
        if found is None:
            return None
        statement, values = sql.for_trigger(found[0], order), found[1]
        runs = self._viewing(lambda unit: summaries(unit, unit.rows(statement, values)))
        return runs[0] if runs else None

    def latest_by_workflow(
        self, trigger_id: str, names: Sequence[str], *, statuses: Sequence[RunStatus] | None = None
    ) -> dict[str, RunSummary]:
        """Return by workflow name the newest run of a trigger in each of these workflows (at most 50) that has one."""
        found = statements.given_filters(statements.of_trigger(trigger_id, names, statuses))
        if found is None:
            return {}
        statement, values = sql.latest_by_workflow(found[0]), found[1]
        runs = self._viewing(lambda unit: summaries(unit, unit.rows(statement, values)))
        return {run.workflow_name: run for run in runs}

    def list_children(self, run_id: str, *, limit: int = 50, page_token: str | None = None) -> Page[RunSummary]:
        """Return a page of the children of a run, newest first. Raises `NotFound` for an unknown run."""
        read = run_rows.page_of(sql.CHILDREN, limit, page_token, run_id=run_id)

        def work(unit: Unit) -> Page[RunSummary]:
            page = read(unit)
            return Page(items=summaries(unit, page.items), next_page_token=page.next_page_token, damaged=page.damaged)

        return self._viewing(work)

    def list_ancestors(self, run_id: str, *, limit: int = 1_000) -> tuple[RunAncestor, ...]:
        """Return a run, its parent, the parent's parent and so on: at most ``limit`` runs (1 to 1,000).

        The chain ends where a parent does not exist or would appear a second time. Raises `NotFound`.
        """
        values = {"run_id": run_id, "most": valid.number("limit", limit, least=1, most=statements.MOST_ANCESTORS)}
        chain: dict[str, RunAncestor] = {}
        for ancestor in self._list_rows(sql.ANCESTORS, values):
            if ancestor.id in chain:
                break
            chain[ancestor.id] = ancestor
        if not chain:
            raise valid.not_found("workflow_run", run_id)
        return tuple(chain.values())

    def list_transitions(
        self, run_id: str, *, order: Order = "newest", limit: int = 50, page_token: str | None = None
    ) -> Page[RunTransition]:
        """Return a page of a run's transitions, ordered by their number. Raises `NotFound` for an unknown run."""
        listing = sql.TRANSITION_ORDERS[valid.word("order", order, sql.ORDERS)]
        return self._reading(run_rows.page_of(listing, limit, page_token, run_id=run_id))

    def count(self, which: RunFilter = NO_FILTER, *, at_most: int = 10_000) -> Count:
        """Return the number of runs that pass the filter. Counting stops at ``at_most`` (1 to 1,000,000) runs."""
        found = statements.given_filters(statements.count_filters(which))
        valid.number("at_most", at_most, least=1, most=statements.MOST_COUNTED)
        if found is None:
            return Count(value=0, exact=True)
        statement, values = sql.count_statement(found[0]), {**found[1], "most": at_most + 1}
        runs = int(self._value(statement, values))
        return Count(value=min(runs, at_most), exact=runs <= at_most)

    def names(self, *, limit: int = 500, page_token: str | None = None) -> Page[str]:
        """Return a page of names of workflows that have runs, ascending.

        The cost depends on the number of names, not of runs.
        """
        valid.page_limit(limit)
        [after] = pages.key(_NAMES, page_token, (str,)) or [""]

        def read(unit: Unit) -> Window[tuple[str]]:
            asked = {"after": after}
            return window(
                lambda size: keyed_rows(unit.rows_or_errors(sql.NAMES, {**asked, "most": size}), ["name"]), limit
            )

        return map_page(self._reading(read).page(_NAMES), lambda row: row[0])

    def repos(self, *, limit: int = 500, page_token: str | None = None) -> Page[RepoRuns]:
        """Return a page of repositories that have runs, by owner and name; repositories without owner come first.

        Rows of other programs that hold ``owner/name`` as one text count for the same repository. Each call reads an
        index of all runs, because it counts them. Damaged rows are reported with the first page.
        """
        valid.page_limit(limit)
        after = tuple(pages.key(_REPOS, page_token, (str, str)) or ("", ""))
        rows, damaged = split_damaged(self._reading(lambda unit: unit.rows_or_errors(sql.REPOS).rows))
        found = _merge_repos(rows)
        page = [found[key] for key in sorted(found) if key > after][: limit + 1]
        last = page[limit - 1] if len(page) > limit else None
        token = pages.encode_token(_REPOS, [last.owner or "", last.repo]) if last else None
        return Page(items=tuple(page[:limit]), next_page_token=token, damaged=() if page_token else damaged)

    def activity(self, owner: str | None, repo: str, *, since: datetime) -> tuple[RunActivity, ...]:
        """Return the runs of a repository that started at ``since`` or later, counted by workflow and status.

        Groups of runs whose workflow or status cannot be read are logged and left out.
        """
        values = {**repos.owner_filter(owner, repo)["owned_repo"], "since": aware_utc("since", since)}
        found, _ = self._reading(lambda unit: unit.readable_rows(sql.ACTIVITY, values))
        return tuple(found)

    def _ended_flags(self, run_ids: Collection[str]) -> dict[str, bool]:
        """Map each of these run ids to True if the run has ended, else to False. Leaves out unknown runs."""
        wanted = as_list([{"run_id": run_id} for run_id in run_ids])
        found = self._reading(lambda unit: unit.rows(sql.STATUSES, {"runs": wanted}))
        return {run_id: status in TERMINAL for run_id, status in found}

    def get_task(self, run_id: str, node: NodeRef) -> TaskStory:
        """Return the history of a node in one iteration: its attempts, and the questions that it waited for.

        Raises `NotFound` for an unknown run, or for a node without a row and without an attempt.
        """
        now = self._now()
        return self._viewing(lambda unit: task(unit, run_id, node, now))

    def get_errors(self, run_ids: Sequence[str]) -> dict[str, str]:
        """Return by run id one line for each failed or cancelled run among up to 500 runs.

        It is the first line of the error, or of the reason that was given. Leaves out unknown runs, runs with another
        status, and runs without an error or reason.
        """
        ids = valid.several("run_ids", run_ids)
        valid.at_most("run_ids", ids, 500)
        sought = [valid.lookup_text("run_ids", run_id) for run_id in ids]
        if not sought:
            return {}
        found, _ = self._reading(lambda unit: unit.readable_rows(*sql.ENDS.of(sought)))
        errors = {run_id: first_line(detail) for run_id, detail in found}
        return {run_id: error for run_id, error in errors.items() if error}

    def search_errors(
        self, text: str, *, since: datetime, limit: int = 50, page_token: str | None = None
    ) -> Page[ExecutionSummary]:
        """Return a page of executions from ``since`` on whose error or skill contains the text, newest first.

        The text has no wildcards; ASCII letters match upper and lower case. Reads all executions from ``since`` on.
        """
        given = statements.search(text, since)
        return self._page(sql.SEARCH, given, limit, page_token)


def _merge_repos(rows: Sequence[StoredRepo]) -> dict[tuple[str, str], RepoRuns]:
    """Return the repositories by owner and name, with both ways to store them added up."""
    found: dict[tuple[str, str], RepoRuns] = {}
    for stored_owner, stored_repo, count, last in rows:
        owner, repo = repos.split_legacy(stored_owner, stored_repo)
        key = (owner or "", repo or "")
        other = found.get(key)
        runs = count if other is None else count + other.runs
        last_run_at = last if other is None else max(last, other.last_run_at)
        found[key] = RepoRuns(owner=owner, repo=repo or "", runs=runs, last_run_at=last_run_at)
    return found
