"""The SQL statements of `lookups`, and the checks of its arguments."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from string import ascii_lowercase, ascii_uppercase
from typing import Any, Literal, TypeAlias

import sqlalchemy as sa

from lastlight_state.backends.sql.json import member_of
from lastlight_state.clock import aware_utc
from lastlight_state.db import valid
from lastlight_state.db.lists.covering import NarrowIndex, SelfJoin
from lastlight_state.db.lists.listing import MOST_VALUES, Listing
from lastlight_state.db.rows.statements import (
    AnyOf,
    Family,
    Row,
    Statement,
    bind,
    columns_of,
    constant,
    every_column_of,
    number,
    padded_parameters,
    size_for,
    statement_of,
)
from lastlight_state.db.rows.writes import cache_statements, elements_table
from lastlight_state.db.schema.declarations import limits_of
from lastlight_state.db.schema.indexes import AmongFew, through
from lastlight_state.errors import InvalidValue
from lastlight_state.workflows import checks as shared, repos
from lastlight_state.workflows.arguments import RunFilter
from lastlight_state.workflows.executions.records import ExecutionSummary
from lastlight_state.workflows.executions.statements import SUMMARY
from lastlight_state.workflows.lookups.records import RunActivity, RunAncestor, RunTransition
from lastlight_state.workflows.records import RunSummary
from lastlight_state.workflows.runs.statements import COVERED, SUMMARY as RUN_SUMMARY
from lastlight_state.workflows.tables import EXECUTIONS, RUNS, TRANSITIONS

# Checks of the arguments of `lookups`, before any statement, and the conditions of its filters of runs.
#
# These queries need no order, so a filter of several values is a single condition.

_LIMITS = limits_of(RUNS)

#: The names of a query's filters, each with its number of parameters. Each shape has a compiled statement.
FilterShape: TypeAlias = tuple[tuple[str, int], ...]

#: The greatest number up to which runs are counted.
MOST_COUNTED = 1_000_000
#: The most runs that a list of ancestors returns.
MOST_ANCESTORS = 1_000

_LONGEST_TEXT = 256
_LOWER = str.maketrans(ascii_uppercase, ascii_lowercase)
_SEVERAL = {"statuses": RUNS.c.status, "workflow_names": RUNS.c.workflow_name}

_ONE: Mapping[str, sa.ColumnElement[bool]] = {
    "since": RUNS.c.started_at >= bind("since", RUNS.c.started_at),
    "until": RUNS.c.started_at < bind("until", RUNS.c.started_at),
    "trigger_id": RUNS.c.trigger_id == bind("trigger_id", RUNS.c.trigger_id),
    **repos.conditions(RUNS),
}


def conditions(shape: FilterShape) -> list[sa.ColumnElement[bool]]:
    """Return the SQL conditions for the filters that a statement's shape names."""
    return [AnyOf(name, _SEVERAL[name], size).condition if size else _ONE[name] for name, size in shape]


def given_filters(given: Mapping[str, Any]) -> tuple[FilterShape, Row] | None:
    """Return the shape and parameters of the filters that were given.

    Return None if one is an empty sequence, so that nothing can match.
    """
    shape: list[tuple[str, int]] = []
    values: Row = {}
    for name, value in given.items():
        if value is None:
            continue
        if name not in _SEVERAL:
            shape.append((name, 0))
            values |= value if isinstance(value, Mapping) else {name: value}
            continue
        if not value:
            return None
        valid.at_most(name, value, MOST_VALUES)
        size = size_for(len(value))
        shape.append((name, size))
        values |= padded_parameters(name, value, size)
    return tuple(shape), values


def of_trigger(trigger_id: str, workflow_names: Sequence[str] | None, statuses: Sequence[str] | None) -> Row:
    """Check the filters of runs of a trigger and return them."""
    given = shared.list_filters(statuses, workflow_names, None, None)
    return {"trigger_id": valid.identifier("trigger_id", trigger_id, _LIMITS.trigger_id), **given}


def count_filters(which: RunFilter) -> Row:
    """Check the filters of `count`. Return them."""
    valid.argument_group("filter", which, RunFilter)
    given = shared.list_filters(which.statuses, which.workflow_names, which.repo, which.since, which.until)
    trigger_id = valid.optional("trigger_id", which.trigger_id, _LIMITS.trigger_id)
    return {"trigger_id": trigger_id, **given}


def search(text: str, since: datetime) -> Row:
    """Return the filters of a search: its start time and a LIKE pattern.

    In the pattern, wildcards are escaped and ASCII letters are in lower case.
    """
    text = valid.content("text", text, _LONGEST_TEXT)
    if not text.strip():
        raise InvalidValue("text", "must not be blank")
    for special in ("\\", "%", "_"):
        text = text.replace(special, f"\\{special}")
    return {"since": aware_utc("since", since), "text": {"pattern": f"%{text.translate(_LOWER)}%"}}


#: A repository as runs have it: its owner and name, how many runs, and when the last one started.
StoredRepo: TypeAlias = tuple[str | None, str | None, int, datetime]

_c = RUNS.c
_newest = (_c.started_at.desc(), _c.id.desc())
ORDERS = {"newest": _newest, "oldest": (_c.started_at.asc(), _c.id.asc())}
#: The start of a run, written so that no index serves it: otherwise Postgres may read all runs by their start to find
#: the first run of a trigger.
_begun = sa.func.coalesce(_c.started_at, _c.updated_at)
_FIRST = {"newest": (_begun.desc(), _c.id.desc()), "oldest": (_begun.asc(), _c.id.asc())}


#: The self-join that reads a trigger's runs in databases that keep large values inside the rows.
_TRIGGERED = SelfJoin(COVERED, NarrowIndex("ix_workflow_runs_trigger_started", ("trigger_id",)), (_c.started_at, _c.id))


def _of_trigger(shape: FilterShape, *shown: Any) -> sa.Select[Any]:
    """Return the SELECT of one trigger's runs, found by the index on triggers. Only these runs are sorted."""
    return sa.select(*shown).where(*conditions(shape))


def _beside(shape: FilterShape, *shown: Any) -> sa.Select[Any]:
    return _TRIGGERED.select(shown, conditions(shape))


@cache_statements
def for_trigger(shape: FilterShape, order: Literal["newest", "oldest"]) -> Statement[RunSummary]:
    """Return the first run of a trigger in this order."""
    plain, beside = (
        runs(shape, *RUN_SUMMARY).order_by(*_FIRST[order]).limit(number(1)) for runs in (_of_trigger, _beside)
    )
    return Statement(plain, beside, row=RunSummary)


@cache_statements
def latest_by_workflow(shape: FilterShape) -> Statement[RunSummary]:
    """Return the newest run of a trigger in each of its workflows."""
    plain, beside = (_newest_of_each(runs, shape) for runs in (_of_trigger, _beside))
    return Statement(plain, beside, row=RunSummary)


def _newest_of_each(runs: Callable[..., sa.Select[Any]], shape: FilterShape) -> sa.Select[Any]:
    place = sa.func.row_number().over(partition_by=_c.workflow_name, order_by=_newest).label("place")
    placed = runs(shape, *RUN_SUMMARY, place).subquery()
    return sa.select(*(placed.c[column.name] for column in RUN_SUMMARY)).where(placed.c.place == number(1))


@cache_statements
def count_statement(shape: FilterShape) -> Statement:
    """Return how many runs there are, up to ``:most``."""
    counted = sa.select(number(1).label("one")).select_from(RUNS).where(*conditions(shape))
    found = counted.limit(bind("most", _c.restart_count)).subquery()
    return statement_of(sa.select(sa.func.count().label("runs")).select_from(found))


CHILDREN = Listing(
    "children",
    RUN_SUMMARY,
    order=(_c.started_at, _c.id),
    filters={"run_id": _c.parent_run_id == bind("run_id", _c.parent_run_id)},
    through="ix_workflow_runs_parent",
    covering=replace(COVERED, found_by={"run_id": NarrowIndex("ix_workflow_runs_parent", ("parent_run_id",))}),
    row=RunSummary,
)

_PARENT = RUNS.alias("parent")
_self = (
    sa.select(_c.id, _c.parent_run_id, number(0).label("depth"))
    .where(_c.id == sa.bindparam("run_id"))
    .cte(recursive=True)
)
_chain = _self.union_all(
    sa.select(_PARENT.c.id, _PARENT.c.parent_run_id, _self.c.depth + 1).where(
        _PARENT.c.id == _self.c.parent_run_id, _self.c.depth + 1 < sa.bindparam("most", type_=sa.Integer)
    )
)
#: A run and its ancestors. A cycle repeats up to ``:most`` rows; the reader stops at a repeated id.
ANCESTORS = statement_of(
    sa.select(*columns_of(RunAncestor, RUNS), _chain.c.depth)
    .join_from(_chain, RUNS, _c.id == _chain.c.id)
    .order_by(_chain.c.depth),
    RunAncestor,
)

TRANSITION_ORDERS = {
    order: Listing(
        f"transitions_{order}",
        every_column_of(RunTransition, TRANSITIONS),
        order=(TRANSITIONS.c.seq,),
        filters={"run_id": TRANSITIONS.c.run_id == bind("run_id", TRANSITIONS.c.run_id)},
        descending=order == "newest",
        row=RunTransition,
    )
    for order in ORDERS
}


def _smallest_after(name: Any) -> sa.Select[Any]:
    return sa.select(sa.func.min(_c.workflow_name).label("name")).where(_c.workflow_name > name)


_first = _smallest_after(bind("after", _c.workflow_name)).cte(recursive=True)
_names = _first.union_all(sa.select(_smallest_after(_first.c.name).scalar_subquery()).where(_first.c.name.is_not(None)))
#: Steps from name to name by their index, however many runs each has.
NAMES: Statement[tuple[str]] = statement_of(
    sa.select(_names.c.name).where(_names.c.name.is_not(None)).limit(sa.bindparam("most", type_=sa.Integer)),
    tuple,
)

#: Reads an index of all runs once, because it counts them.
REPOS: Statement[StoredRepo] = statement_of(
    through(sa.select(_c.owner, _c.repo), RUNS, "ix_workflow_runs_repo")
    .add_columns(sa.func.count().label("runs"), sa.func.max(_c.started_at).label("last_run_at"))
    .where(_c.repo.is_not(None))
    .group_by(_c.owner, _c.repo),
    tuple,
)

_since = _c.started_at >= bind("since", _c.started_at)
_repo_name = bind("repo_name", _c.repo)


def _runs_of_repo(*of_repo: sa.ColumnElement[bool]) -> sa.Select[Any]:
    return through(sa.select(_c.workflow_name, _c.status), RUNS, "ix_workflow_runs_repo").where(*of_repo, _since)


_active = sa.union_all(
    _runs_of_repo(_c.owner == bind("repo_owner", _c.owner), _c.repo == _repo_name),
    _runs_of_repo(_c.owner.is_(None), _c.repo == bind("qualified", _c.repo)),
).subquery()
#: The runs of a repository by workflow and status. Each of the two ways to store it is one range of the index.
ACTIVITY = statement_of(
    sa.select(_active.c.workflow_name, _active.c.status, sa.func.count().label("runs"))
    .group_by(_active.c.workflow_name, _active.c.status)
    .order_by(_active.c.workflow_name, _active.c.status),
    RunActivity,
)

_e = EXECUTIONS.c
_pattern = bind("pattern", _e.error)
#: Executions whose error or skill contains a text. ``lower`` changes ASCII letters only; on Postgres because the
#: columns have the collation C.
SEARCH = Listing(
    "errors",
    SUMMARY,
    order=(_e.started_at, _e.id),
    filters={
        "since": _e.started_at >= bind("since", _e.started_at),
        "text": sa.or_(
            sa.func.lower(_e.error).like(_pattern, escape="\\"), sa.func.lower(_e.skill).like(_pattern, escape="\\")
        ),
    },
    through="ix_executions_usage",
    row=ExecutionSummary,
)

_wanted = elements_table("runs")
#: The statuses of runs by their ids.
STATUSES: Statement[tuple[str, str]] = statement_of(
    sa.select(RUNS.c.id, RUNS.c.status).where(AmongFew(RUNS.c.id, sa.select(member_of(_wanted.c.value, "run_id")))),
    tuple,
)


def _ends(ids: Sequence[sa.BindParameter[Any]]) -> sa.Executable:
    change = TRANSITIONS.alias("change")
    last = (
        sa.select(sa.func.max(change.c.seq))
        .where(
            change.c.run_id == TRANSITIONS.c.run_id,
            sa.or_(change.c.from_status.is_(None), change.c.from_status != change.c.to_status),
        )
        .scalar_subquery()
    )
    ended = TRANSITIONS.c.to_status.in_([constant("failed"), constant("cancelled")])
    return sa.select(TRANSITIONS.c.run_id, TRANSITIONS.c.detail).where(
        TRANSITIONS.c.run_id.in_(ids), TRANSITIONS.c.seq == last, ended
    )


#: Why runs have failed or were cancelled: the detail of the last change of their status, which is a narrow row, while
#: the error of a run stands behind its large values.
ENDS: Family[tuple[str, str | None]] = Family("run", _ends, tuple)
