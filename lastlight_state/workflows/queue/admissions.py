"""Admitting the first runs in line, below the caps.

The running runs are counted after the lock that every admission takes, so the counts include earlier admissions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from lastlight_state.db.unit import Unit
from lastlight_state.workflows.kernel import transitions
from lastlight_state.workflows.queue import statements as sql

Row = dict[str, Any]


def admit_next(
    unit: Unit, cap: int, caps: Mapping[str, int], holder: Row, limit: int, names: Sequence[str] | None
) -> list[Row]:
    """Admit and take the first runs in line while fewer than the caps are running. Returns their rows, in order."""
    unit.named_lock("admission")
    room = min(limit, cap - unit.value(sql.COUNT_RUNNING, {"cap": cap}))
    if room <= 0:
        return []
    rooms = _rooms(unit, caps)
    taken: list[Row] = []
    size = room
    while True:
        full = [name for name, left in rooms.items() if left <= 0]
        statement, given = sql.NEXT.of({"of": names, "full": full or None})
        found, in_all = unit.sound(statement, {**given, "at": holder["at"], "limit": size})
        fitting = _fitting(found, rooms)
        taken += _take(unit, holder, fitting[: room - len(taken)])
        if len(taken) == room or in_all < size:
            return taken
        if len(fitting) == len(found):
            size *= 2  # rows that cannot be read stay at the head of the line: look behind them


def _rooms(unit: Unit, caps: Mapping[str, int]) -> dict[str, int]:
    """How many more runs of each capped workflow may run."""
    if not caps:
        return {}
    statement, names = sql.COUNT_EACH.of(list(caps))
    running = {row["workflow_name"]: row["running"] for row in unit.rows(statement, names)}
    return {name: cap - running.get(name, 0) for name, cap in caps.items()}


def _fitting(found: Sequence[Row], rooms: dict[str, int]) -> list[str]:
    """The ids of those rows for which their workflow has room, which they take up."""
    fitting = []
    for row in found:
        left = rooms.get(row["workflow_name"])
        if left is not None:
            rooms[row["workflow_name"]] = left - 1
        if left is None or left > 0:
            fitting.append(row["id"])
    return fitting


def _take(unit: Unit, holder: Row, run_ids: Sequence[str]) -> list[Row]:
    """Admit and take locked runs. Returns their rows, in this order."""
    if not run_ids:
        return []
    take, ids = sql.TAKE.of(run_ids)
    taken = {row["id"]: row for row in unit.rows(take, {**holder, **ids})}
    transitions.record_takes(unit, run_ids, holder["at"])
    return [taken[run_id] for run_id in run_ids]
