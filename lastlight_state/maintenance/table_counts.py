"""Counts of rows: by table, by status, and of chat messages by role and age.

Only columns that were created with their table are read, because databases that are behind are counted, too.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from typing import Any, TypedDict

import sqlalchemy as sa

from lastlight_state.conversations.tables import BRANCHES, SESSIONS as TALKS
from lastlight_state.db.statements import Statement, bind, constant, prepared
from lastlight_state.db.unit import Unit
from lastlight_state.journal.tables import SANDBOXES, SCORES, SIGNALS, TOOL_CALLS
from lastlight_state.maintenance.records import MessageCounts, StatusCount, StatusRow
from lastlight_state.messaging.tables import MESSAGES, SESSIONS
from lastlight_state.migrations.metadata import METADATA
from lastlight_state.outputs.tables import HISTORY, REGISTRY
from lastlight_state.schedules.tables import FIRES
from lastlight_state.workflows.tables import APPROVALS, REQUESTS, RUNS

AGES = {"<=1": timedelta(days=1), "<=7": timedelta(days=7), "<=30": timedelta(days=30)}
OLDER = "older"
NO_MESSAGES = MessageCounts(by_role={}, by_age=dict.fromkeys((*AGES, OLDER), 0), oldest=None)

_ROWS = sa.func.count().label("rows")


class RoleRow(TypedDict):
    """How many chat messages have a role."""

    role: str
    rows: int


def _distribution(table: sa.Table, status: Any) -> Statement[StatusRow]:
    shown = status.label("status")
    return prepared(sa.select(shown, _ROWS).select_from(table).group_by(status).order_by(status), StatusRow)


def _either(column: sa.Column[Any], without: str, filled: str) -> sa.ColumnElement[str]:
    """One word where the column is empty, else the other."""
    return sa.case((column.is_(None), constant(without)), else_=constant(filled))


_STATUSES = {
    "workflow_runs": _distribution(RUNS, RUNS.c.status),
    "workflow_approvals": _distribution(APPROVALS, APPROVALS.c.status),
    "human_requests": _distribution(REQUESTS, REQUESTS.c.status),
    "cron_fires": _distribution(FIRES, FIRES.c.status),
    "messaging_sessions": _distribution(
        SESSIONS, sa.case((SESSIONS.c.active == sa.true(), constant("active")), else_=constant("inactive"))
    ),
    "sessions": _distribution(TALKS, TALKS.c.status),
    "branches": _distribution(BRANCHES, BRANCHES.c.status),
    "run_signals": _distribution(SIGNALS, _either(SIGNALS.c.consumed_at, "pending", "taken")),
    "tool_calls": _distribution(TOOL_CALLS, TOOL_CALLS.c.status),
    "sandboxes": _distribution(SANDBOXES, SANDBOXES.c.status),
    "scores": _distribution(SCORES, _either(SCORES.c.superseded_at, "current", "superseded")),
    "output_tables": _distribution(REGISTRY, REGISTRY.c.kind),
    "output_history": _distribution(HISTORY, HISTORY.c.cause),
}

_BY_ROLE = prepared(sa.select(MESSAGES.c.role, _ROWS).group_by(MESSAGES.c.role), RoleRow)
_BY_AGE = prepared(
    sa.select(
        sa.func.count().label("all"),
        sa.func.min(MESSAGES.c.timestamp).label("oldest"),
        *(
            sa.func.count(sa.case((MESSAGES.c.timestamp >= bind(f"since_{i}", MESSAGES.c.timestamp), 1))).label(
                f"since_{i}"
            )
            for i in range(len(AGES))
        ),
    ).select_from(MESSAGES)
)


def rows(unit: Unit, names: Sequence[str]) -> dict[str, int]:
    """The number of rows of each of these tables, in one statement."""
    if not names:
        return {}
    counts = [sa.select(constant(name).label("name"), _ROWS).select_from(METADATA.tables[name]) for name in names]
    found = unit.rows(prepared(sa.union_all(*counts)))
    return {row["name"]: row["rows"] for row in found}


def statuses(unit: Unit, present: Collection[str]) -> dict[str, tuple[StatusCount, ...]]:
    """For each table with a status, how many rows have which."""
    return {
        table: tuple(unit.all(StatusCount.of, statement)) for table, statement in _STATUSES.items() if table in present
    }


def messages(unit: Unit, present: Collection[str], now: datetime) -> MessageCounts:
    """Chat messages by role and by age, ages counted back from ``now``."""
    if MESSAGES.name not in present:
        return NO_MESSAGES
    by_role = {row["role"]: row["rows"] for row in unit.rows(_BY_ROLE)}
    cutoffs = {f"since_{i}": now - age for i, age in enumerate(AGES.values())}
    found = unit.row(_BY_AGE, cutoffs) or {}
    by_age, younger = {}, 0
    for i, name in enumerate(AGES):
        by_age[name] = found[f"since_{i}"] - younger
        younger = found[f"since_{i}"]
    by_age[OLDER] = found["all"] - younger
    return MessageCounts(by_role=by_role, by_age=by_age, oldest=found["oldest"])
