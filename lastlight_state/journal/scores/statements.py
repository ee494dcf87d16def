"""The SQL statements for scores: for single scores, lists and aggregates."""

from __future__ import annotations

from collections.abc import Mapping
from math import sqrt
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert

from lastlight_state.db.lists.listing import Listing
from lastlight_state.db.rows.statements import (
    AnyOf,
    Row,
    Statement,
    bind,
    columns_of,
    every_column_of,
    number,
    padded_parameters,
    size_for,
    statement_of,
)
from lastlight_state.db.rows.writes import cache_statements
from lastlight_state.db.units.unit import Unit
from lastlight_state.journal.models import GROUPS, SCORED_RUNS, SCORES
from lastlight_state.journal.records import Score, ScoreAggregate, ScoreSummary

_c = SCORES.c
_WRITTEN = [column.name for column in SCORES.columns if column.name != "superseded_at"]
_ATTEMPT = ("run_id", "node_id", "iteration", "attempt", "scorer_id", "source")

_COLUMNS, _SUMMARY = every_column_of(Score, SCORES), columns_of(ScoreSummary, SCORES)
_this_id = _c.id == bind("id", _c.id)
_current = sa.and_(*(_c[name] == bind(name, _c[name]) for name in _ATTEMPT), _c.superseded_at.is_(None))


def _score_insert() -> sa.Executable:
    """Return the INSERT of a score.

    It inserts nothing if the id is stored already, or if the attempt has a current score.
    """
    there = SCORES.alias()
    same = sa.and_(*(there.c[name] == bind(name, _c[name]) for name in _ATTEMPT), there.c.superseded_at.is_(None))
    row = sa.select(*(bind(name, _c[name]) for name in _WRITTEN)).where(~sa.exists().where(same))
    return insert(SCORES).from_select(_WRITTEN, row).on_conflict_do_nothing().returning(*_COLUMNS)


ADD = statement_of(_score_insert(), Score)
GET = statement_of(sa.select(*_COLUMNS).where(_this_id), Score)
#: The score of this id, and the current one of the attempt: locked, so that nobody else supersedes it.
KNOWN = statement_of(sa.select(*_COLUMNS).where(sa.or_(_this_id, _current)).with_for_update(), Score)
SUPERSEDE = statement_of(
    sa.update(SCORES).where(_this_id).values(superseded_at=bind("superseded_at", _c.superseded_at))
)

#: The filters of lists and aggregates that compare with one value.
FILTERS = {
    "node_id": _c.node_id == bind("node_id", _c.node_id),
    "scorer_id": _c.scorer_id == bind("scorer_id", _c.scorer_id),
    "source": _c.source == bind("source", _c.source),
    "since": _c.scored_at >= bind("since", _c.scored_at),
    "until": _c.scored_at < bind("until", _c.scored_at),
}
LIST = Listing(
    "scores",
    _SUMMARY,
    order=(_c.scored_at, _c.id),
    filters={**FILTERS, "current": _c.superseded_at.is_(None)},
    spread={"run_ids": _c.run_id},
    most=SCORED_RUNS,
    row=ScoreSummary,
)


# Aggregates over scores, in one statement that runs alike on both databases.
#
# The deviation is computed from the distances to the mean: the difference of two sums of squares would lose all digits
# of scores that are close together. Postgres raises an error for a float that overflows or underflows, even in its own
# ``avg``, which squares its input. So a group with huge scores is divided by a power of two, which changes no digit.
# Values that are too small to be squared count as 0.

#: The columns of a group, in the order of the result.
GROUPINGS = {"scorer": ("scorer_name", "scorer_id"), "scorer_and_run": ("scorer_name", "scorer_id", "run_id")}

#: Limits and exponents: a group whose largest score is beyond the limit is divided by two to that exponent.
_SCALES = ((1e190, 800), (1e70, 400))
#: In a group that is scaled, scores below this count as 0.
_SMALL_SCORE = 1e-60
#: Distances to the mean whose square counts as 0.
_SMALL_DISTANCE = 1e-150


def of(unit: Unit, grouping: tuple[str, ...], given: Mapping[str, Any]) -> list[ScoreAggregate]:
    """Return the aggregates of current scores that pass the filters by group, and at most one more than the limit."""
    chosen = {name: value for name, value in given.items() if value is not None}
    run_ids = chosen.pop("run_ids", None)
    if run_ids is not None and not run_ids:
        return []
    size = 0 if run_ids is None else size_for(len(run_ids))
    statement = _statement(grouping, frozenset(chosen), size)
    return [
        _figures(row) for row in unit.rows(statement, {**chosen, **padded_parameters("run_ids", run_ids or (), size)})
    ]


@cache_statements
def _statement(grouping: tuple[str, ...], filters: frozenset[str], runs: int) -> Statement:
    """Return the statement for these filters, and for ``runs`` run ids (0 for all runs)."""
    conditions = [_c.superseded_at.is_(None), *(FILTERS[name] for name in sorted(filters))]
    if runs:
        conditions.append(AnyOf("run_ids", _c.run_id, runs).condition)
    group = [_c[name] for name in grouping]
    scores = _scaled_scores(group, conditions)
    scored = _with_means(scores, grouping)
    by = [scored.c[name] for name in grouping]
    middle = scored.c.place.in_([_half(scored.c.total + number(1)), _half(scored.c.total + number(2))])
    figures = (
        sa.func.max(scored.c.total).label("count"),
        sa.func.min(scored.c.score).label("min"),
        sa.func.max(scored.c.score).label("max"),
        sa.func.max(scored.c.exponent).label("exponent"),
        sa.func.max(scored.c.mean).label("mean"),
        sa.func.avg(sa.case((middle, scored.c.scaled))).label("p50"),
        sa.func.avg(_square(scored.c.scaled - scored.c.mean)).label("variance"),
    )
    return statement_of(sa.select(*by, *figures).group_by(*by).order_by(*by).limit(number(GROUPS + 1)))


def _scaled_scores(group: list[Any], conditions: list[Any]) -> sa.Subquery:
    """Return a subquery of scores.

    Each row has the score's rank in its group, the group's scale, and the scaled score.
    """
    largest = sa.func.max(sa.func.abs(_c.score)).over(partition_by=group)
    exponent = sa.case(*((largest > _real(limit), number(two)) for limit, two in _SCALES), else_=number(0))
    scores = (
        sa.select(
            *group,
            _c.score,
            sa.func.row_number().over(partition_by=group, order_by=_c.score).label("place"),
            sa.func.count().over(partition_by=group).label("total"),
            exponent.label("exponent"),
        )
        .where(*conditions)
        .subquery()
    )
    scaled = sa.case(
        (scores.c.exponent == number(0), scores.c.score),
        (sa.func.abs(scores.c.score) < _real(_SMALL_SCORE), _real(0.0)),
        *((scores.c.exponent == number(two), scores.c.score / _real(2.0**two)) for _, two in _SCALES),
    )
    return sa.select(*scores.c, scaled.label("scaled")).subquery()


def _with_means(scores: sa.Subquery, grouping: tuple[str, ...]) -> sa.Subquery:
    group = [scores.c[name] for name in grouping]
    return sa.select(*scores.c, sa.func.avg(scores.c.scaled).over(partition_by=group).label("mean")).subquery()


def _square(distance: sa.ColumnElement[float]) -> sa.ColumnElement[float]:
    return sa.case((sa.func.abs(distance) < _real(_SMALL_DISTANCE), _real(0.0)), else_=distance * distance)


def _half(value: sa.ColumnElement[int]) -> sa.ColumnElement[int]:
    """Return half of a whole number, rounded down."""
    return value // number(2)


def _real(value: float) -> sa.ColumnElement[float]:
    """Return a float as a literal in SQL text."""
    return sa.literal_column(f"{value:.17e}" if value else "0e0", sa.Double)


def _figures(row: Row) -> ScoreAggregate:
    scale = 2.0 ** row["exponent"]
    least, greatest = row["min"], row["max"]
    return ScoreAggregate.of(
        {
            "scorer_id": row["scorer_id"],
            "scorer_name": row["scorer_name"],
            "run_id": row.get("run_id"),
            "count": row["count"],
            "mean": min(max(row["mean"] * scale, least), greatest),
            "min": least,
            "max": greatest,
            "p50": min(max(row["p50"] * scale, least), greatest),
            "stddev": sqrt(row["variance"]) * scale,
        }
    )
