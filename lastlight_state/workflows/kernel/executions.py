"""Ending what is in flight in a run from outside: a new holder does so first, and the end of the run does so last.

What statements about executions have in common: their columns, what counts as in flight, and the fence.

The fence stands in the writing statement. It locks the run's row first, so a claim cannot change hands between the
look and the write, and a run's row is always locked before those of its executions.

How an execution went, also where the program that wrote the row knows no outcomes.

The rule stands here twice: for rows that are read, and for conditions in SQL. It cannot be left to SQL alone, because
statements return bare columns: SQLite since 3.38 answers ``IS NULL`` wrongly in RETURNING.

Sums over executions, as every total and rollup counts them. NULL counts 0, and integers are exact in any order.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from lastlight_state.backends.sql.scalars import millis_between, nearest
from lastlight_state.db.statements import constant, prepared
from lastlight_state.db.unit import Unit
from lastlight_state.workflows.money import MOST_MIRRORED
from lastlight_state.workflows.tables import EXECUTIONS
from lastlight_state.workflows.words import Outcome

_c = EXECUTIONS.c


_mirrored = nearest(_c.cost_usd * sa.literal_column("1000000.0"))

_believable = sa.func.abs(_c.cost_usd) < sa.literal_column(f"{MOST_MIRRORED!r}")

#: The cost in whole micro-dollars, also of rows that have only the float: as `lastlight_state.workflows.money` says.
MICROS = sa.func.coalesce(_c.cost_micros, sa.case((_believable, _mirrored)))

#: What an `Execution` record needs.
COLUMNS = tuple(column for column in _c if column.name != "output_text")

HERE = _c.id == sa.bindparam("execution_id")

_SAID_BY_STOP_REASON = {"skipped": "skipped", "error_quota": "deferred"}

IN_FLIGHT = sa.and_(_c.finished_at.is_(None), _c.success.is_(None))

OUTCOME = sa.case(
    (_c.outcome != constant("running"), _c.outcome),
    (_c.success == sa.true(), constant("succeeded")),
    *(
        (sa.and_(_c.success == sa.false(), _c.stop_reason == constant(reason)), constant(outcome))
        for reason, outcome in _SAID_BY_STOP_REASON.items()
    ),
    (IN_FLIGHT, constant("running")),
    else_=constant("failed"),
).label("outcome")


def duration(finished_at: sa.ColumnElement[Any]) -> sa.ColumnElement[Any]:
    """The duration as it is, or else the time from start to ``finished_at``, never below zero."""
    spent: sa.ColumnElement[Any] = millis_between(_c.started_at, finished_at)
    return sa.func.coalesce(_c.duration_ms, sa.case((spent < 0, sa.literal_column("0")), else_=spent))


def outcome_of(row: Mapping[str, Any]) -> str:
    """The outcome that is stored, or what the other columns amount to."""
    stored, success = row["outcome"], row["success"]
    if stored is not None and stored != "running":
        return str(stored)
    if success:
        return "succeeded"
    if success is None:
        return "running" if row["finished_at"] is None else "failed"
    return _SAID_BY_STOP_REASON.get(row["stop_reason"], "failed")


_at = sa.bindparam("at", type_=_c.finished_at.type)

_skill = sa.bindparam("skill", type_=_c.skill.type)


CLOSE = prepared(
    sa.update(EXECUTIONS)
    .where(_c.workflow_run_id == sa.bindparam("run_id"), IN_FLIGHT, sa.or_(_skill.is_(None), _c.skill == _skill))
    .values(
        finished_at=_at,
        success=sa.false(),
        outcome=sa.bindparam("closed_as"),
        stop_reason=sa.bindparam("closed_as"),
        error=sa.func.coalesce(sa.bindparam("closed_because", type_=_c.error.type), _c.error),
        duration_ms=duration(_at),
    )
)


def close(
    unit: Unit, run_id: str, outcome: Outcome, *, at: datetime, because: str | None = None, skill: str | None = None
) -> int:
    """End the executions in flight of a locked run, or those of one skill; how many they were."""
    facts = {"run_id": run_id, "closed_as": outcome, "closed_because": because, "at": at, "skill": skill}
    return unit.change(CLOSE, facts)


TOKENS = ("input_tokens", "output_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")


def _sum(column: sa.ColumnElement[Any]) -> sa.ColumnElement[int]:
    return sa.cast(sa.func.coalesce(sa.func.sum(column), sa.literal_column("0")), sa.BigInteger)


SUMS = (
    sa.func.count().label("executions"),
    _sum(MICROS).label("cost_micros"),
    *(_sum(EXECUTIONS.c[name]).label(name) for name in TOKENS),
)

#: The names of the sums.
COUNTED = ("executions", "cost_micros", *TOKENS)
