"""Admitting the first runs in line, below the caps.

The running runs are counted after the lock that every admission takes, so the counts include earlier admissions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from lastlight_state.db.unit import Unit
from lastlight_state.errors import CorruptData
from lastlight_state.workflows.claims.checks import Holding
from lastlight_state.workflows.claims.lists import Claimable
from lastlight_state.workflows.kernel import transitions
from lastlight_state.workflows.kernel.claims import ClaimedRow
from lastlight_state.workflows.queue import statements as sql
from lastlight_state.workflows.queue.statements import NextRow

_LOCK = "admission"


def admit_at_once(unit: Unit, cap: int, holder: Holding, limit: int, names: Sequence[str] | None) -> list[ClaimedRow]:
    """Do what `admit_next` does without caps of workflows, in one message to the server."""
    statement, given = sql.ADMIT.of({"of": names})
    return unit.locked_rows(_LOCK, statement, {**given, **holder, "cap": cap, "limit": limit})


def admit_next(
    unit: Unit, cap: int, caps: Mapping[str, int], holder: Holding, limit: int, names: Sequence[str] | None
) -> list[ClaimedRow]:
    """Admit and take the first runs in line while fewer than the caps are running. Returns their rows, in order."""
    unit.named_lock(_LOCK)
    room = min(limit, cap - _running(unit, cap, names))
    if room <= 0:
        return []
    rooms = _rooms(unit, caps)
    taken: list[ClaimedRow] = []
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


@dataclass(frozen=True)
class Admissible:
    """A run that `admit_next` would admit with these arguments, or one that may be taken."""

    cap: int
    caps: tuple[tuple[str, int], ...]
    names: tuple[str, ...] | None
    or_else: Claimable | None

    def is_there(self, unit: Unit, now: datetime) -> bool:
        """Whether there is one at this moment."""
        return self._in_line(unit, now) or (self.or_else is not None and self.or_else.is_there(unit, now))

    def _in_line(self, unit: Unit, now: datetime) -> bool:
        """The line is looked at before anything is counted: it is short, and mostly empty."""
        if self.names == () or not self._first(unit, now, []):
            return False
        if _running(unit, self.cap, self.names) >= self.cap:
            return False
        full = [name for name, left in _rooms(unit, dict(self.caps)).items() if left <= 0]
        return not full or self._first(unit, now, full)

    def _first(self, unit: Unit, now: datetime, full: Sequence[str]) -> bool:
        statement, given = sql.FIRST.of({"of": self.names, "full": full or None})
        size = 1
        while True:  # rows that cannot be read are told by who admits, not at every look
            found = unit.readable(statement, {**given, "at": now, "limit": size}).rows
            if any(not isinstance(row, CorruptData) for row in found):
                return True
            if len(found) < size:
                return False
            size *= 2


def _running(unit: Unit, cap: int, names: Sequence[str] | None) -> int:
    """How many runs of these workflows, or of all, are running. Counts up to the cap."""
    statement, given = sql.COUNT_RUNNING.of({"of": names})
    return int(unit.value(statement, {**given, "cap": cap}))


def _rooms(unit: Unit, caps: Mapping[str, int]) -> dict[str, int]:
    """How many more runs of each capped workflow may run."""
    if not caps:
        return {}
    statement, names = sql.COUNT_EACH.of(list(caps))
    running = {row["workflow_name"]: row["running"] for row in unit.rows(statement, names)}
    return {name: cap - running.get(name, 0) for name, cap in caps.items()}


def _fitting(found: Sequence[NextRow], rooms: dict[str, int]) -> list[str]:
    """Return the ids of those rows for which their workflow has room, which they take up."""
    fitting = []
    for row in found:
        left = rooms.get(row["workflow_name"])
        if left is not None:
            rooms[row["workflow_name"]] = left - 1
        if left is None or left > 0:
            fitting.append(row["id"])
    return fitting


def _take(unit: Unit, holder: Holding, run_ids: Sequence[str]) -> list[ClaimedRow]:
    """Admit and take locked runs. Returns their rows, in this order."""
    if not run_ids:
        return []
    take, ids = sql.TAKE.of(run_ids)
    taken = {row["id"]: row for row in unit.rows(take, {**holder, **ids})}
    transitions.record_takes(unit, run_ids, holder["at"])
    return [taken[run_id] for run_id in run_ids]
