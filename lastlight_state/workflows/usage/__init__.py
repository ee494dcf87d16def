"""Usage: the tokens and costs of executions, summed by run, repository and time.

Cost is exact: whole micro-dollars are added, so both databases return equal totals. Days and hours are in UTC. An
execution counts at the time of its start; while in flight it counts with the usage reported so far. The executions of a
workflow are those whose skill begins with the workflow's name and a colon.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Literal

from lastlight_state.clock import aware_utc, iso_text
from lastlight_state.db import valid
from lastlight_state.db.repository import Repository
from lastlight_state.db.rows.records import Page
from lastlight_state.db.rows.statements import Row, Statement, Values
from lastlight_state.db.schema.declarations import limits_of
from lastlight_state.db.units.unit import Unit
from lastlight_state.errors import InvalidValue
from lastlight_state.workflows import repos, words
from lastlight_state.workflows.shared import run_rows
from lastlight_state.workflows.tables import EXECUTIONS, RUNS
from lastlight_state.workflows.usage import statements as sql
from lastlight_state.workflows.usage.records import (
    ThreadUsage,
    UsageBucket,
    UsageGroup,
    UsageStats,
    UsageTotals,
)

_LIMITS, _RUN = limits_of(EXECUTIONS), limits_of(RUNS)

Dimension = Literal["workflow", "repo", "model", "trigger_type", "skill", "triggered_by"]

#: The most buckets that `daily` and `hourly` return.
MOST_DAYS, MOST_HOURS = 366, 744
_DAY, _HOUR = timedelta(days=1), timedelta(hours=1)
_NO_OUTCOMES = dict.fromkeys(sorted(words.OUTCOMES), 0)


class Rollups(Repository):
    """``store.workflows.usage``: sum tokens and costs of executions."""

    def for_run(self, run_id: str) -> UsageTotals:
        """Return the usage of a run. Raises `NotFound` for an unknown run."""

        def work(unit: Unit) -> UsageTotals:
            totals = _totals(unit, sql.FOR_RUN, {"run_id": run_id})
            if not totals.executions and unit.row(run_rows.EXISTS, {"run_id": run_id}) is None:
                raise valid.not_found("workflow_run", run_id)
            return totals

        return self._reading(work)

    def daily(
        self, days: int = 30, *, workflow: str | None = None, repo: str | None = None, model: str | None = None
    ) -> tuple[UsageBucket, ...]:
        """Return the usage of each of the last ``days`` days (1 to 366), oldest first; the last item is today.

        Days without executions are included, with zeros. ``repo`` is ``"owner/name"``, or a bare name for any owner.
        Executions that start in the future do not count.
        """
        count = valid.number("days", days, least=1, most=MOST_DAYS)
        return self._buckets(count, _DAY, _filters(workflow, repo, model))

    def hourly(
        self, hours: int = 24, *, workflow: str | None = None, repo: str | None = None, model: str | None = None
    ) -> tuple[UsageBucket, ...]:
        """Return the usage of each of the last ``hours`` hours (1 to 744), as `daily`; the current hour is last."""
        count = valid.number("hours", hours, least=1, most=MOST_HOURS)
        return self._buckets(count, _HOUR, _filters(workflow, repo, model))

    def by(self, dimension: Dimension, *, since: datetime, until: datetime | None = None) -> tuple[UsageGroup, ...]:
        """Return usage grouped by a dimension: at most 500 groups, the most expensive first.

        Counts executions that started at ``since`` or later, and before ``until`` or until now. Repositories are
        ``owner/name`` if the owner is known; ``triggered_by`` is the actor of the trigger.
        """
        statement = sql.BY[valid.word("dimension", dimension, sql.BY)]
        values = {
            "since": aware_utc("since", since),
            "until": self._end() if until is None else aware_utc("until", until),
        }
        if values["until"] < values["since"]:
            raise InvalidValue("until", "must not be before since")
        return tuple(self._list_rows(statement, values))

    def stats(self, *, since: datetime) -> UsageStats:
        """Return counts of executions since ``since`` by outcome, skill and trigger type, and totals, also of today.

        Reads all executions from ``since`` on, several times.
        """
        moment, today = self._since(since), self._since(_floor(self._now(), _DAY))

        def work(unit: Unit) -> UsageStats:
            return UsageStats(
                since=moment["since"],
                totals=_totals(unit, sql.SINCE, moment),
                outcomes=_NO_OUTCOMES
                | {row["outcome"]: row["executions"] for row in unit.rows(sql.OUTCOMES_SINCE, moment)},
                skills=dict(unit.rows(sql.SKILLS_SINCE, moment)),
                trigger_types=dict(unit.rows(sql.TRIGGER_TYPES_SINCE, moment)),
                running_now=unit.value(sql.RUNNING_NOW),
                today=_totals(unit, sql.SINCE, today),
            )

        return self._viewing(work)

    def failure_streak(self, skill: str | None = None, workflow_name: str | None = None, *, limit: int = 10) -> int:
        """Return the number of failed or interrupted executions since the last success, counted up to ``limit``.

        Only ended executions count, in the order of their start. Skipped, deferred and cancelled executions neither
        count nor end the streak.
        """
        valid.optional("skill", skill, _LIMITS.skill)
        valid.optional("workflow_name", workflow_name, _RUN.workflow_name)
        values = {"most": valid.page_limit(limit)}
        if skill is not None and workflow_name is not None and not skill.startswith(f"{workflow_name}:"):
            return 0

        def work(unit: Unit) -> int:
            outcomes = _newest(unit, skill, workflow_name, values)
            return next((n for n, outcome in enumerate(outcomes) if outcome == "succeeded"), len(outcomes))

        return self._viewing(work)

    def list_threads(
        self, *, since: datetime | None = None, limit: int = 50, page_token: str | None = None
    ) -> Page[ThreadUsage]:
        """Return a page of chat threads with a turn at ``since`` or later, newest activity first.

        The usage of a thread includes all its turns. A page reads the chat turns between its first and its last thread,
        with one index look-up for each turn.
        """
        given = {"since": None if since is None else {"since": aware_utc("since", since)}}
        valid.page_limit(limit)

        def work(unit: Unit) -> Page[ThreadUsage]:
            page = sql.THREADS.page(unit, limit=limit, page_token=page_token, given=given)
            threads = _threads(unit, [trigger_id for trigger_id, *_ in page.items])
            return Page(items=threads, next_page_token=page.next_page_token, damaged=page.damaged)

        return self._viewing(work)

    def _buckets(self, count: int, size: timedelta, filters: Row) -> tuple[UsageBucket, ...]:
        last = _floor(self._now(), size)
        starts = [last - size * back for back in range(count - 1, -1, -1)]
        letters = 10 if size == _DAY else 13
        statement = sql.buckets(letters, frozenset(filters))
        values: Row = {"since": starts[0], "until": self._end()}
        for given in filters.values():
            values |= given
        found: dict[str, list[Row]] = {}
        for row in self._reading(lambda unit: unit.rows(statement, values)):
            found.setdefault(row["bucket"], []).append(row)
        return tuple(_bucket(start, found.get(iso_text(start)[:letters], [])) for start in starts)

    def _totals(self, statement: Statement[UsageTotals], values: Values) -> UsageTotals:
        [totals] = self._list_rows(statement, values)
        return totals

    def _since(self, since: datetime) -> dict[str, datetime]:
        """Return the parameters of the time window from ``since`` to now."""
        return {"since": aware_utc("since", since), "until": self._end()}

    def _end(self) -> datetime:
        """Return the first millisecond after now, the exclusive end of a time window that includes now."""
        return self._now() + timedelta(milliseconds=1)


def _totals(unit: Unit, statement: Statement[UsageTotals], values: Values) -> UsageTotals:
    return unit.rows(statement, values)[0]


def _bucket(start: datetime, by_outcome: Sequence[Row]) -> UsageBucket:
    counts = {row["outcome"]: row["executions"] for row in by_outcome}
    return UsageBucket.of_parts(by_outcome, start, _NO_OUTCOMES | counts)


def _threads(unit: Unit, triggers: Sequence[str]) -> tuple[ThreadUsage, ...]:
    if not triggers:
        return ()
    statement, values = sql.TURNS.of(triggers)
    found = {thread.trigger_id: thread for thread in unit.rows(statement, values)}
    return tuple(found[trigger] for trigger in triggers)


def _newest(unit: Unit, skill: str | None, workflow: str | None, values: Values) -> list[str]:
    """Return the outcomes of the newest executions that succeeded, failed or were interrupted, newest first."""
    skills = [skill] if skill is not None else []
    statement = sql.NEWEST
    if workflow is not None and skill is None:
        of_workflow = sql.skills_of(workflow)
        skills = unit.values(sql.SKILLS_OF_WORKFLOW, of_workflow)
        if not skills:
            return []
        if len(skills) > sql.MOST_SKILLS:
            skills, statement, values = [], sql.NEWEST_OF_WORKFLOW, {**values, **of_workflow}
    if skills:
        statement, given = sql.NEWEST_OF_SKILLS.of(skills)
        values = {**values, **given}
    return unit.values(statement, values)


def _filters(workflow: str | None, repo: str | None, model: str | None) -> Row:
    """Check those bucket filters that were given. Return each with its parameters."""
    given: Row = {}
    if workflow is not None:
        given["workflow"] = sql.skills_of(valid.identifier("workflow", workflow, _RUN.workflow_name))
    if model is not None:
        given["model"] = {"model": valid.identifier("model", model, _LIMITS.model)}
    return given if repo is None else given | repos.repo_filter(repo)


def _floor(moment: datetime, size: timedelta) -> datetime:
    hour = 0 if size == _DAY else moment.hour
    return moment.replace(hour=hour, minute=0, second=0, microsecond=0)
