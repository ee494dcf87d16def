"""The SQL statements of `queue`. They read the partial index of queued runs, so that ended runs cost nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, ClassVar, NamedTuple

import sqlalchemy as sa

from lastlight_state.db.lists.covering import NarrowIndex
from lastlight_state.db.lists.filters import Filtered
from lastlight_state.db.lists.listing import Listing
from lastlight_state.db.rows.statements import Family, bind, constant
from lastlight_state.db.schema.base import later_of
from lastlight_state.db.schema.indexes import through
from lastlight_state.db.units.unit import Unit
from lastlight_state.errors import CorruptData
from lastlight_state.workflows.claims.checks import Holding
from lastlight_state.workflows.claims.lists import Claimable
from lastlight_state.workflows.records import RunSummary
from lastlight_state.workflows.runs.statements import COVERED, SUMMARY
from lastlight_state.workflows.shared import transitions
from lastlight_state.workflows.shared.claims import CLAIMED, FIRST_TAKEN, KEPT, ClaimedRun
from lastlight_state.workflows.shared.run_rows import LockedRun, lock_statement, of_versions
from lastlight_state.workflows.tables import OVERRIDES, RUNS

_INDEX, _RUNNING = "ix_workflow_runs_queue", "ix_workflow_runs_running"

_line = (RUNS.c.queued_at, RUNS.c.id)
#: The conditions on runs in line. Rows that another program wrote without ``queued_at`` have no place in it.
_in_line = (RUNS.c.status == constant("queued"), RUNS.c.queued_at.is_not(None))

_at = bind("at", RUNS.c.queued_at)
_limit = sa.bindparam("limit", type_=sa.Integer)
_due = sa.or_(RUNS.c.wake_at.is_(None), RUNS.c.wake_at <= _at)
_enabled = RUNS.c.workflow_name.not_in(sa.select(OVERRIDES.c.name).where(OVERRIDES.c.enabled == sa.false()))


class RunInLine(RunSummary):
    """The row of a run in the line. It becomes a `RunSummary`."""

    _consumed: ClassVar[frozenset[str]] = frozenset({"queued_at"})

    @classmethod
    def of(cls, values: Any) -> Any:
        del values["queued_at"]
        return RunSummary.of(values)


class QueuedRun(LockedRun):
    """A locked run with its place in the line."""

    queued_at: datetime | None


class NextRun(NamedTuple):
    """The first run that may be admitted: what an admission reads."""

    id: str
    claim_epoch: int
    restart_count: int
    cancel_requested_at: datetime | None
    transition_seq: int
    workflow_name: str


LIST: Listing[RunSummary] = Listing(
    "queue",
    (*SUMMARY, RUNS.c.queued_at),
    order=_line,
    descending=False,
    always=_in_line,
    through=_INDEX,
    covering=replace(COVERED, found_by={"": NarrowIndex(_INDEX, only=RUNS.c.status == constant("queued"))}),
    row=RunInLine,
)


def _count_running(conditions: Sequence[sa.ColumnElement[bool]]) -> sa.Select[Any]:
    running = through(sa.select(RUNS.c.workflow_name), RUNS, _RUNNING).where(
        RUNS.c.status == constant("running"), *conditions
    )
    return sa.select(sa.func.count()).select_from(running.limit(sa.bindparam("cap", type_=sa.BigInteger)).subquery())


#: Counts the running runs of the workflows ``of``, up to ``:cap``.
COUNT_RUNNING = Filtered(_count_running, of=RUNS.c.workflow_name.in_)


def _first(shown: Sequence[sa.ColumnElement[Any]], *conditions: sa.ColumnElement[bool]) -> sa.Select[Any]:
    first = through(sa.select(*shown), RUNS, _INDEX).where(*_in_line, *conditions)
    return first.order_by(*_line).limit(_limit)


def free_in_line(shown: Sequence[sa.ColumnElement[Any]]) -> sa.Select[Any]:
    """Return the SELECT of the first runs in line that could be admitted at ``:at`` if there were no caps."""
    return _first(shown, _enabled, _due, RUNS.c.queued_at <= _at)


#: The condition that the cancel request's time can be read. Another program may have set a time that Python does not
#: have, such as infinity; such a row is damaged.
_READABLE = sa.or_(
    RUNS.c.cancel_requested_at.is_(None), sa.extract("year", RUNS.c.cancel_requested_at).between(1, 9999)
)

#: The columns that an admission reads. A run with damage in one of them is not admitted.
_NEEDED = (*KEPT, RUNS.c.workflow_name)


def _next(conditions: Sequence[sa.ColumnElement[bool]]) -> sa.Select[Any]:
    return _first(_NEEDED, _enabled, _due, *conditions).with_for_update(key_share=True, skip_locked=True)


#: Locks the first runs that may be admitted, of the workflows ``of``, of none in ``full``, and of ``versions``. Rows
#: locked by others are skipped: waiting for them while holding locks could be a deadlock.
NEXT = Filtered(
    _next, None, NextRun, of=RUNS.c.workflow_name.in_, full=RUNS.c.workflow_name.not_in, versions=of_versions
)


#: Reads the first runs that may be admitted, of the workflows ``of``, of none in ``full``, and of ``versions``. Locks
#: nothing.
FIRST = Filtered(
    lambda conditions: _first(_NEEDED, _enabled, _due, *conditions),
    None,
    NextRun,
    of=RUNS.c.workflow_name.in_,
    full=RUNS.c.workflow_name.not_in,
    versions=of_versions,
)


def _count_each(names: Sequence[sa.BindParameter[Any]]) -> sa.Executable:
    counted = through(sa.select(RUNS.c.workflow_name, sa.func.count().label("running")), RUNS, _RUNNING)
    of_these = RUNS.c.workflow_name.in_(names)
    return counted.where(RUNS.c.status == constant("running"), of_these).group_by(RUNS.c.workflow_name)


#: How many runs of each of these workflows are running. Workflows without one are absent.
COUNT_EACH: Family[tuple[str, int]] = Family("workflow_name", _count_each, tuple)


_ADMITTED: Mapping[str, Any] = {
    **FIRST_TAKEN,
    "status": "running",
    "status_reason": "run.admitted",
    "transition_seq": RUNS.c.transition_seq + 1,
    "updated_at": later_of(RUNS.c.updated_at, bind("at", RUNS.c.updated_at)),
    "admitted_at": bind("at", RUNS.c.admitted_at),
    "wake_at": None,
}


def _take(ids: Sequence[sa.BindParameter[Any]]) -> sa.Executable:
    return sa.update(RUNS).where(RUNS.c.id.in_(ids)).values(**_ADMITTED).returning(*CLAIMED)


#: Admits locked runs and claims them for ``:claim_owner``.
TAKE = Family("run", _take, ClaimedRun)


def _admit(conditions: Sequence[sa.ColumnElement[bool]]) -> sa.Executable:
    """Return one statement that counts, admits and records runs, for databases that permit writes in a WITH."""
    running = _count_running(conditions).scalar_subquery()
    room = sa.func.greatest(sa.func.least(_limit, sa.bindparam("cap", type_=sa.BigInteger) - running), 0)
    first = through(sa.select(RUNS.c.id), RUNS, _INDEX).where(*_in_line, _enabled, _due, _READABLE, *conditions)
    first = first.order_by(*_line).limit(sa.select(room).scalar_subquery())
    chosen = first.with_for_update(key_share=True, skip_locked=True).cte("chosen")
    written = sa.update(RUNS).where(RUNS.c.id == chosen.c.id).values(**_ADMITTED)
    taken = written.returning(*CLAIMED, *transitions.TAKEN_FROM, RUNS.c.queued_at).cte("taken")
    shown = sa.select(*(taken.c[column.name] for column in CLAIMED)).order_by(taken.c.queued_at, taken.c.id)
    return shown.add_cte(transitions.recording_takes(taken))


#: Admits the first runs in line, of the workflows ``of`` and of ``versions``, while fewer than ``:cap`` of these
#: workflows run, and claims them.
ADMIT = Filtered(_admit, None, ClaimedRun, of=RUNS.c.workflow_name.in_, versions=of_versions)

#: The first runs in line that were queued before ``:cutoff``, of the workflows ``of``.
OVERDUE: Filtered[tuple[str]] = Filtered(
    lambda conditions: _first((RUNS.c.id,), RUNS.c.queued_at < bind("cutoff", RUNS.c.queued_at), *conditions),
    None,
    tuple,
    of=RUNS.c.workflow_name.in_,
)
LOCK = lock_statement(QueuedRun)


# Admission of the first runs in line, below the caps.
#
# Running runs are counted after taking the lock that every admission takes, so the counts include earlier admissions.

_LOCK = "admission"


#: The filters of runs: the workflows ``of`` and the ``versions``, each None or absent for all.
Given = Mapping[str, Sequence[str] | None]


def admit_at_once(unit: Unit, cap: int, holder: Holding, limit: int, wanted: Given) -> list[ClaimedRun]:
    """Do what `admit_next` does without caps of workflows, in one message to the server."""
    statement, given = ADMIT.of(wanted)
    return unit.locked_rows(_LOCK, statement, {**given, **holder, "cap": cap, "limit": limit})


def admit_next(
    unit: Unit, cap: int, caps: Mapping[str, int], holder: Holding, limit: int, wanted: Given
) -> list[ClaimedRun]:
    """Admit and take the first runs in line while fewer than the caps are running. Returns their rows, in order."""
    unit.named_lock(_LOCK)
    room = min(limit, cap - _running_count(unit, cap, wanted.get("of")))
    if room <= 0:
        return []
    rooms = _rooms(unit, caps)
    taken: list[ClaimedRun] = []
    size = room
    while True:
        full = [name for name, left in rooms.items() if left <= 0]
        statement, given = NEXT.of({**wanted, "full": full or None})
        found, in_all = unit.readable_rows(statement, {**given, "at": holder["at"], "limit": size})
        fitting = _fitting_ids(found, rooms)
        taken += _take_admitted(unit, holder, fitting[: room - len(taken)])
        if len(taken) == room or in_all < size:
            return taken
        if len(fitting) == len(found):
            size *= 2  # rows that cannot be read stay at the head of the line: read more


@dataclass(frozen=True)
class Admissible:
    """A search for a run that `admit_next` would admit with these arguments, or that the search ``or_else`` finds."""

    cap: int
    caps: tuple[tuple[str, int], ...]
    names: tuple[str, ...] | None
    versions: tuple[str, ...] | None
    or_else: Claimable | None

    def is_there(self, unit: Unit, now: datetime) -> bool:
        """True if a run may be admitted now, or if ``or_else`` finds a run to claim."""
        return self._in_line(unit, now) or (self.or_else is not None and self.or_else.is_there(unit, now))

    def _in_line(self, unit: Unit, now: datetime) -> bool:
        """True if a queued run may be admitted below the caps. Reads the line first, because it is mostly empty."""
        if self.names == () or not self._first(unit, now, []):
            return False
        if _running_count(unit, self.cap, self.names) >= self.cap:
            return False
        full = [name for name, left in _rooms(unit, dict(self.caps)).items() if left <= 0]
        return not full or self._first(unit, now, full)

    def _first(self, unit: Unit, now: datetime, full: Sequence[str]) -> bool:
        statement, given = FIRST.of({"of": self.names, "full": full or None, "versions": self.versions})
        size = 1
        while True:  # an admission logs rows that cannot be read; a poll does not
            found = unit.rows_or_errors(statement, {**given, "at": now, "limit": size}).rows
            if any(not isinstance(row, CorruptData) for row in found):
                return True
            if len(found) < size:
                return False
            size *= 2


def _running_count(unit: Unit, cap: int, names: Sequence[str] | None) -> int:
    """Return the number of running runs of these workflows, or of all. Counting stops at ``cap``."""
    statement, given = COUNT_RUNNING.of({"of": names})
    return int(unit.value(statement, {**given, "cap": cap}))


def _rooms(unit: Unit, caps: Mapping[str, int]) -> dict[str, int]:
    """Return, for each workflow with a cap, how many more of its runs may run."""
    if not caps:
        return {}
    statement, names = COUNT_EACH.of(list(caps))
    running = dict(unit.rows(statement, names))
    return {name: cap - running.get(name, 0) for name, cap in caps.items()}


def _fitting_ids(found: Sequence[NextRun], rooms: dict[str, int]) -> list[str]:
    """Return the ids of those rows for which their workflow has room, which they take up."""
    fitting = []
    for row in found:
        left = rooms.get(row.workflow_name)
        if left is not None:
            rooms[row.workflow_name] = left - 1
        if left is None or left > 0:
            fitting.append(row.id)
    return fitting


def _take_admitted(unit: Unit, holder: Holding, run_ids: Sequence[str]) -> list[ClaimedRun]:
    """Admit and take locked runs. Returns their rows, in this order."""
    if not run_ids:
        return []
    take, ids = TAKE.of(run_ids)
    taken = {row.id: row for row in unit.rows(take, {**holder, **ids})}
    transitions.record_takes(unit, run_ids, holder["at"])
    return [taken[run_id] for run_id in run_ids]
