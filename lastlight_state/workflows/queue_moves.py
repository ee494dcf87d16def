"""How queued runs are admitted and expire."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from lastlight_state.db.listeners import Listeners
from lastlight_state.db.unit import Unit
from lastlight_state.workflows import queue_statements as sql
from lastlight_state.workflows import run_rows, transitions


def admit_next(
    unit: Unit, cap: int, holding: dict[str, Any], limit: int, workflow_names: Sequence[str] | None
) -> list[dict[str, Any]]:
    """Admit and take the first runs in line, while fewer than ``cap`` are running; the rows taken, in their order.

    Counted after the lock that every admission takes, so it sees what the last one has committed.
    """
    unit.named_lock("admission")
    room = min(limit, cap - unit.value(sql.COUNT_RUNNING, {"cap": cap}))
    if room <= 0:
        return []
    statement, names = (sql.NEXT, {}) if workflow_names is None else sql.NEXT_OF.of(workflow_names)
    first = [row["id"] for row in unit.rows(statement, {**names, "at": holding["at"], "limit": room})]
    if not first:
        return []
    take, ids = sql.TAKE.of(first)
    taken = {row["id"]: row for row in unit.rows(take, {**holding, **ids})}
    transitions.record_takes(unit, first, holding["at"])
    return [taken[run_id] for run_id in first]


def overdue(unit: Unit, cutoff: datetime, limit: int) -> list[str]:
    """The runs that are queued since before ``cutoff``, the first in line of them; in ascending id."""
    return sorted(row["id"] for row in unit.rows(sql.OVERDUE, {"cutoff": cutoff, "limit": limit}))


def expire(unit: Unit, listeners: Listeners, run_id: str, cutoff: datetime, error: str, at: datetime) -> bool:
    """Cancel a run if it is still queued since before ``cutoff``; whether it was."""
    row = run_rows.lock(unit, run_id, sql.LOCK)
    if row["status"] != "queued" or row["queued_at"] is None or row["queued_at"] >= cutoff:
        return False
    transitions.end(unit, listeners, row, "cancelled", reason="queue.expired", error=error, at=at, source="system")
    return True
