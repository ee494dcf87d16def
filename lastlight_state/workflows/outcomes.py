"""How an execution went, also where the program that wrote the row knows no outcomes.

The rule stands here twice: for rows that are read, and for conditions in SQL. It cannot be left to SQL alone, because
statements return bare columns: SQLite since 3.38 answers ``IS NULL`` wrongly in RETURNING.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import sqlalchemy as sa

from lastlight_state.backends.times import millis_between
from lastlight_state.db.base import table_of
from lastlight_state.db.statements import constant
from lastlight_state.workflows.models import ExecutionModel

_SAID_BY_STOP_REASON = {"skipped": "skipped", "error_quota": "deferred"}

_c = table_of(ExecutionModel).c

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
