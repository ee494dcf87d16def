"""The SQL statements of `usage`.

On SQLite they read all figures from the usage index, a covering index, and find the executions of a run by a narrow
index. On Postgres they read ranges of narrow indexes, and the rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from lastlight_state.backends.sql.expressions import before, utc_bucket
from lastlight_state.db.lists.listing import Listing
from lastlight_state.db.rows.statements import Family, Statement, bind, constant, number, statement_of
from lastlight_state.db.rows.writes import cache_statements
from lastlight_state.db.schema.indexes import through
from lastlight_state.workflows import repos
from lastlight_state.workflows.shared.executions import IN_FLIGHT, OUTCOME, SUMS, of_runs
from lastlight_state.workflows.tables import EXECUTIONS
from lastlight_state.workflows.usage.records import ThreadUsage, UsageGroup, UsageTotals
from lastlight_state.workflows.words import MILLION

MOST_GROUPS = 500
_COLON: sa.ColumnElement[str] = sa.literal_column("':'")
_AFTER_COLON = ";"
_c = EXECUTIONS.c

_since = _c.started_at >= bind("since", _c.started_at)
_until = _c.started_at < bind("until", _c.started_at)
#: The condition on a window of time. It has two ends: Postgres plans before it knows the times, and with a single end
#: it would scan the whole table.
_window = sa.and_(_since, _until)
_of_repo = repos.conditions(EXECUTIONS)


def _over_all(*shown: Any) -> sa.Select[Any]:
    return through(sa.select(*shown), EXECUTIONS, "ix_executions_usage")


_this_run = _c.workflow_run_id == bind("run_id", _c.workflow_run_id)
FOR_RUN = Statement(*of_runs(SUMS, _this_run), row=UsageTotals)

#: The conditions of the filters of buckets, by name.
FILTERS: Mapping[str, sa.ColumnElement[bool]] = {
    "workflow": sa.and_(_c.skill >= bind("first_skill", _c.skill), _c.skill < bind("behind_skills", _c.skill)),
    "model": _c.model == bind("model", _c.model),
    **_of_repo,
}


def skills_of(workflow: str) -> dict[str, str]:
    """Return the parameters of the filter by workflow: skills from ``name:`` up to, but not including, ``name;``."""
    return {"first_skill": f"{workflow}:", "behind_skills": f"{workflow}{_AFTER_COLON}"}


@cache_statements
def buckets(letters: int, filters: frozenset[str]) -> Statement:
    """Return sums by bucket and outcome. A bucket is the first letters of a time: ten for days, thirteen for hours."""
    bucket = utc_bucket(_c.started_at, number(letters))
    chosen = (FILTERS[name] for name in sorted(filters))
    return statement_of(
        _over_all(bucket.label("bucket"), OUTCOME, *SUMS).where(_window, *chosen).group_by(bucket, OUTCOME.element)
    )


_KEYS: Mapping[str, sa.ColumnElement[Any]] = {
    "workflow": before(_c.skill, _COLON),
    "repo": sa.case((_c.owner.is_not(None), _c.owner + sa.literal_column("'/'") + _c.repo), else_=_c.repo),
    "model": _c.model,
    "trigger_type": _c.trigger_type,
    "skill": _c.skill,
    "triggered_by": _c.triggered_by,
}


def _group_statement(key: sa.ColumnElement[Any]) -> Statement[UsageGroup]:
    """Return the most expensive groups.

    The key is sorted through ``coalesce``, because the databases sort NULL to opposite ends.
    """
    micros, picos = SUMS[1].element, SUMS[2].element
    million = number(MILLION)
    cost = micros + picos.op("/")(million), picos % million
    return statement_of(
        _over_all(key.label("key"), *SUMS)
        .where(_window)
        .group_by(key)
        .order_by(cost[0].desc(), cost[1].desc(), sa.func.coalesce(key, sa.literal_column("''")), key.is_(None))
        .limit(number(MOST_GROUPS)),
        UsageGroup,
    )


BY = {dimension: _group_statement(key) for dimension, key in _KEYS.items()}


def _count_statement(column: sa.Column[Any]) -> Statement[tuple[str, int]]:
    count = sa.func.count()
    return statement_of(
        _over_all(column.label("key"), count.label("executions"))
        .where(_window)
        .group_by(column)
        .order_by(count.desc(), column)
        .limit(number(MOST_GROUPS)),
        tuple,
    )


SINCE = statement_of(_over_all(*SUMS).where(_window), UsageTotals)
OUTCOMES_SINCE = statement_of(_over_all(OUTCOME, *SUMS).where(_window).group_by(OUTCOME.element))
SKILLS_SINCE = _count_statement(_c.skill)
TRIGGER_TYPES_SINCE = _count_statement(_c.trigger_type)
RUNNING_NOW = statement_of(
    through(sa.select(sa.func.count().label("running")), EXECUTIONS, "ix_executions_signs").where(IN_FLIGHT)
)

JUDGED = ("succeeded", "failed", "interrupted")
_judged = OUTCOME.element.in_([constant(word) for word in JUDGED])
MOST_SKILLS = 50


def _newest_of_skill(skill: sa.BindParameter[Any]) -> Any:
    """Return a SELECT of the newest executions of one skill, read by the index on skills.

    The usage index would serve worse: the query would read all newer rows of other skills.
    """
    found = (
        through(sa.select(_c.started_at, _c.id, OUTCOME), EXECUTIONS, "idx_executions_skill")
        .where(_c.skill == skill, _judged)
        .order_by(_c.started_at.desc(), _c.id.desc())
        .limit(bind("most", _c.turns))
    )
    return sa.select(found.subquery())


def _newest_of_skills(skills: Any) -> Any:
    found = sa.union_all(*map(_newest_of_skill, skills)).subquery()
    return (
        sa.select(found.c.outcome).order_by(found.c.started_at.desc(), found.c.id.desc()).limit(bind("most", _c.turns))
    )


def _newest(*conditions: sa.ColumnElement[bool]) -> Statement:
    return statement_of(
        _over_all(OUTCOME)
        .where(_judged, *conditions)
        .order_by(_c.started_at.desc(), _c.id.desc())
        .limit(bind("most", _c.turns))
    )


NEWEST = _newest()
NEWEST_OF_SKILLS: Family = Family("skill", _newest_of_skills)
#: For workflows of more than `MOST_SKILLS` skills: reads all newer rows.
NEWEST_OF_WORKFLOW = _newest(FILTERS["workflow"])

_first = sa.select(sa.func.min(_c.skill).label("skill")).where(FILTERS["workflow"]).cte(recursive=True)
_next = (
    sa.select(sa.func.min(_c.skill))
    .where(_c.skill > _first.c.skill, _c.skill < bind("behind_skills", _c.skill))
    .scalar_subquery()
)
_skills = _first.union_all(sa.select(_next).where(_first.c.skill.is_not(None)))
#: The skills of a workflow. Steps from one skill to the next in their index, however many executions each has.
SKILLS_OF_WORKFLOW = statement_of(
    sa.select(_skills.c.skill).where(_skills.c.skill.is_not(None)).limit(number(MOST_SKILLS + 1))
)

_IS_CHAT = _c.skill == constant("chat")
_ALIKE = EXECUTIONS.alias("turn")


def _often(condition: sa.ColumnElement[bool]) -> sa.ColumnElement[bool]:
    """Rewrite the condition so that no index serves it and Postgres expects it to hold for many rows.

    With the plain condition, Postgres would collect all turns of a thread, or of all threads, before it returns the
    first.
    """
    return sa.case((condition, number(1)), else_=number(0)) >= number(1)


#: The next turn of a turn's thread. With an order and a limit no planner turns the subquery into a join: it stays one
#: index look-up for each turn.
_newer_turn = (
    through(sa.select(_ALIKE.c.id), _ALIKE, "ix_executions_chat")
    .where(
        _ALIKE.c.trigger_id == _c.trigger_id,
        _ALIKE.c.started_at >= _c.started_at,
        sa.or_(_ALIKE.c.started_at > _c.started_at, _ALIKE.c.id > _c.id),
        _ALIKE.c.skill == constant("chat"),
    )
    .order_by(_ALIKE.c.started_at)
    .limit(number(1))
    .scalar_subquery()
)

#: The newest turn of each thread: no other turn of it is newer.
THREADS: Listing[tuple[str, datetime, str]] = Listing(
    "chat_threads",
    (_c.trigger_id, _c.started_at, _c.id),
    order=(_c.started_at, _c.id),
    filters={"since": _since},
    always=(_IS_CHAT, _often(_newer_turn.is_(None))),
    through="idx_executions_skill",
    row=tuple,
)


def _turns(triggers: Sequence[sa.BindParameter[Any]]) -> sa.Executable:
    first, last = sa.func.min(_c.started_at), sa.func.max(_c.started_at)
    shown = sa.select(_c.trigger_id, first.label("first_at"), last.label("last_at"), *SUMS)
    turns = through(shown, EXECUTIONS, "ix_executions_chat")
    return turns.where(_c.trigger_id.in_(triggers), _IS_CHAT).group_by(_c.trigger_id)


#: The sums of chat threads.
TURNS = Family("trigger", _turns, ThreadUsage)
