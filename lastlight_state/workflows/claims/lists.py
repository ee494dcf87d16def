"""Claimable runs, the oldest sign of life first: running runs whose lease is due, and due paused runs, merged.

Indexes on the time at which a run is due find both, so that ended runs and held runs cost nothing. The rows are sorted
for each request: with an index in the order of heartbeats, every heartbeat would have to write to that index.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, TypeAlias, TypedDict

import sqlalchemy as sa

from lastlight_state.clock import to_millis
from lastlight_state.db.lists import pages
from lastlight_state.db.lists.covering import NarrowIndex
from lastlight_state.db.lists.filters import Filtered
from lastlight_state.db.lists.pages import KeyedRows, Window, keyed_rows, window
from lastlight_state.db.rows.records import Page
from lastlight_state.db.rows.statements import RowT, bind, columns_of, constant, number
from lastlight_state.db.schema.base import later_of
from lastlight_state.db.schema.indexes import through
from lastlight_state.db.units.unit import Unit
from lastlight_state.errors import CorruptData
from lastlight_state.workflows.claims.checks import ClaimableRun
from lastlight_state.workflows.shared import claims, overdue, questions, run_rows
from lastlight_state.workflows.shared.claims import HEARTBEAT_AT, KEPT, LEASE_END
from lastlight_state.workflows.tables import LEASES, RUNS
from lastlight_state.workflows.words import GRACE

# Which runs may be claimed: the conditions of lists, takes and sweeps (workflows W-40, W-49).
#
# *Offered*: running and held by nobody; if its creator was expected to claim it, that grace has passed. *Abandoned*:
# running, and the holder's lease is over, or another program wrote the row and has not changed it for too long. *Due*:
# paused until a time that has come, and no question blocks it.

RUNNING = RUNS.c.status == constant("running")
PAUSED = RUNS.c.status == constant("paused")

_now = bind("at", RUNS.c.lease_expires_at)
_unowned = RUNS.c.claim_owner.is_(None)
_no_lease = RUNS.c.lease_expires_at.is_(None)
_awake = sa.or_(RUNS.c.wake_at.is_(None), RUNS.c.wake_at <= _now)
_foreign = sa.and_(_unowned, _no_lease, RUNS.c.transition_seq == 0)
_lease_over = bind("lease_over", RUNS.c.lease_expires_at)
_foreign_silent = sa.and_(_foreign, RUNS.c.updated_at < bind("foreign_silent", RUNS.c.updated_at))

_ours = sa.and_(_no_lease, RUNS.c.transition_seq > 0)

#: Offered runs. Nobody holds them or renews their lease, so taking them does not count as a restart.
OFFERED = sa.and_(RUNNING, _awake, _unowned, sa.or_(_ours, RUNS.c.lease_expires_at < _lease_over))
DUE = sa.and_(PAUSED, RUNS.c.wake_at <= _now, ~questions.is_blocked(RUNS.c.id))
#: Runs that may be taken by id without a restart: offered runs, and new runs that their creator is expected to claim.
FREE = sa.and_(RUNNING, _awake, _unowned, sa.or_(_ours, ~_no_lease))

#: Runs that somebody has asked to cancel. Taking them does not count as a restart, because their work must not go on.
ASKED_TO_CANCEL = RUNS.c.cancel_requested_at.is_not(None)
MAY_BE_TAKEN_OVER = sa.or_(RUNS.c.restart_count < RUNS.c.max_restarts, ASKED_TO_CANCEL)


class Judged:
    """SQL conditions on runs, built from two SQL expressions: the end of a run's lease and its last heartbeat.

    ``takeable`` is true for a running run that `take_next` may take, ``spent`` for a run that `give_up` ends. ``seen``
    is the time of the last heartbeat, or of the run's start. ``free_since`` is the time at which a run that may be
    taken became free.
    """

    def __init__(self, lease_end: sa.ColumnElement[Any], heartbeat_at: sa.ColumnElement[Any] = HEARTBEAT_AT) -> None:
        over = sa.or_(sa.and_(~_unowned, lease_end < _lease_over), _foreign_silent)
        self.abandoned = sa.and_(RUNNING, _awake, over)
        self.takeable = sa.or_(OFFERED, sa.and_(self.abandoned, MAY_BE_TAKEN_OVER))
        self.spent = sa.or_(
            sa.and_(self.abandoned, ~(RUNS.c.restart_count < RUNS.c.max_restarts)),
            sa.and_(sa.or_(self.abandoned, OFFERED), ASKED_TO_CANCEL),
        )
        self.kind: sa.ColumnElement[Any] = sa.case(
            (PAUSED, constant("due")), (self.abandoned, constant("abandoned")), (OFFERED, constant("offered"))
        ).label("kind")
        self.seen: sa.ColumnElement[Any] = sa.func.coalesce(heartbeat_at, RUNS.c.started_at).label("seen_at")
        left = sa.func.coalesce(lease_end, RUNS.c.updated_at, type_=RUNS.c.updated_at.type)
        self.free_since: sa.ColumnElement[Any] = later_of(left, sa.func.coalesce(RUNS.c.wake_at, left)).label("since")


#: The conditions with the lease from the run's row in `run_leases`, which is looked up by its key.
LOOKED_UP = Judged(LEASE_END)


class MomentParameters(TypedDict):
    """The parameters of these conditions."""

    at: datetime
    lease_over: datetime
    foreign_silent: datetime


def moment(now: datetime, grace: timedelta = timedelta(0)) -> MomentParameters:
    """Return the parameters of the conditions on claimable runs.

    A lease that ends exactly ``now`` is alive; ``grace`` prolongs all leases.
    """
    return {"at": now, "lease_over": to_millis(now - grace), "foreign_silent": to_millis(now - GRACE - grace)}


#: The id of a run that may be taken, and its last sign of life.
Candidate: TypeAlias = tuple[str, datetime]

#: What a `ClaimableRun` shows of the run itself.
_SHOWN = tuple(column for column in columns_of(ClaimableRun, RUNS) if column.name != "heartbeat_at")
#: The key of a claimable run.
_KEY = ("seen_at", "id")
_DUE = "ix_run_leases_due"
_WAKE = NarrowIndex("ix_workflow_runs_wake", ("workflow_name", "wake_at"), only=PAUSED)


#: The names of workflows to look at; None for all.
Names = Sequence[str] | None
#: The filters of runs: values of ``workflow_name`` and ``app_version``, each None or absent for all.
Given = Mapping[str, Sequence[str] | None]


def page(
    unit: Unit, now: MomentParameters, grace: timedelta, names: Names, limit: int, page_token: str | None
) -> Page[ClaimableRun]:
    """Return a page of claimable runs, including runs at their restart limit.

    ``now`` is `moment` with this ``grace``.
    """
    asked = ["claimable", grace.total_seconds(), names]
    after = pages.key(asked, page_token, (datetime, str))
    return _window(unit, LISTED, now, {"workflow_name": names}, after, limit).page(asked)


def candidates(
    unit: Unit, now: MomentParameters, given: Given, after: list[Any] | None, limit: int
) -> Window[Candidate]:
    """Return the next ``limit`` runs that may be taken, after this key."""
    return _window(unit, TAKEN_NEXT, now, given, after, limit)


def spent_runs(unit: Unit, now: MomentParameters, names: Names, limit: int) -> overdue.DueRuns:
    """Return the ids of runs that `give_up` may end, the longest silent first."""
    statement, given = SPENT.of({"workflow_name": names}, False, limit)
    rows, in_all = unit.readable_rows(statement, {**now, **given})
    return overdue.DueRuns([run_id for run_id, _ in rows], in_all)


@dataclass(frozen=True)
class Claimable:
    """A search for a run that `take_next` would take. ``None`` for the workflows or versions means all of them."""

    names: tuple[str, ...] | None
    versions: tuple[str, ...] | None

    def is_there(self, unit: Unit, now: datetime) -> bool:
        """True if a run of these workflows and versions may be claimed now."""
        at, last, given = moment(now), None, {"workflow_name": self.names, "app_version": self.versions}
        while self.names != ():
            found = _window(unit, SOUND_NEXT, at, given, last, 1)
            if any(not isinstance(row, CorruptData) for row in found.rows):
                return True
            last = found.last
            if last is None:
                return False
        return False


#: Functions of `Judged` conditions: `_Shown` returns the columns to select, `_Meant` the condition on running runs.
_Shown: TypeAlias = Callable[[Judged, sa.ColumnElement[Any]], Sequence[Any]]
_Meant: TypeAlias = Callable[[Judged], sa.ColumnElement[bool]]


class Ranges(Filtered[RowT]):
    """A statement over running runs and due paused runs.

    ``meant`` returns the condition that the running runs must meet. ``due=False`` leaves paused runs out. The filters
    are ``workflow_name`` (in the lease's row or the run's) and ``app_version`` (in the run). `of` also takes the page's
    limit, and whether the page begins after a key.
    """

    def __init__(self, row: type[RowT], shown: _Shown, meant: _Meant, *, due: bool = True) -> None:
        super().__init__(self._apart, self._beside, row, workflow_name=tuple, app_version=run_rows.of_versions)
        self._shown = shown
        self._meant = meant
        self._due = due

    def _apart(self, named: Sequence[Any], paged: bool, limit: int) -> sa.Select[Any]:
        """Return the SELECT for Postgres.

        It looks each due run up by key, even if the planner expects many due runs.
        """
        due = claims.select_due(LEASES.c, *_name_conditions(LEASES, named)).subquery("due_leases")
        judged, shown = self._judged_columns(due)
        meant = self._meant(judged), *_of_versions(named)
        run = sa.select(*shown).where(RUNS.c.id == due.c.run_id, *meant, *_after(judged, paged))
        found = run.limit(number(1)).lateral("run")
        running = _first(sa.select(found).select_from(due.join(found, sa.true())), (found.c.seen_at, found.c.id), limit)
        if not self._due:
            return running
        waiting = sa.select(*self._judged_columns()[1]).where(DUE, *_of_run(named), *_after(LOOKED_UP, paged))
        return _merged_select(running, _first(waiting, (LOOKED_UP.seen, RUNS.c.id), limit), limit)

    def _beside(self, named: Sequence[Any], paged: bool, limit: int) -> sa.Select[Any]:
        """Return the SELECT for SQLite. It reads each run from the index of live runs."""
        judged, shown = self._judged_columns(LEASES)
        source = run_rows.OF_OTHERS.after(LEASES)
        running = through(claims.select_due(shown, *_name_conditions(LEASES, named)).select_from(source), LEASES, _DUE)
        running = run_rows.through_live_index(running).where(
            RUNS.c.id == LEASES.c.run_id, self._meant(judged), *_of_versions(named), *_after(judged, paged)
        )
        running = _first(running, (judged.seen, RUNS.c.id), limit)
        if not self._due:
            return running
        finding = run_rows.live_self_join(_WAKE)
        waiting = finding.select(self._judged_columns()[1], (DUE, *_of_run(named), *_after(LOOKED_UP, paged)))
        return _merged_select(
            running, _first(waiting, map(finding.rewrite_element, (LOOKED_UP.seen, RUNS.c.id)), limit), limit
        )

    def _judged_columns(self, beside: sa.FromClause | None = None) -> tuple[Judged, Sequence[Any]]:
        heartbeat_at = claims.present("heartbeat_at", beside)
        judged = Judged(claims.present("lease_expires_at", beside), heartbeat_at)
        return judged, (*self._shown(judged, heartbeat_at.label("heartbeat_at")), judged.seen)


def _after(judged: Judged, paged: bool) -> Sequence[sa.ColumnElement[bool]]:
    """Return the condition on runs after the page's key, or no condition for the first page."""
    return (pages.after((judged.seen.element, RUNS.c.id), descending=False),) if paged else ()


def _name_conditions(table: sa.Table, given: Sequence[Any]) -> Sequence[sa.ColumnElement[bool]]:
    """Return conditions on the table's column ``workflow_name``, one for each tuple of names in ``given``."""
    return [table.c.workflow_name.in_(names) for names in given if isinstance(names, tuple)]


def _of_versions(given: Sequence[Any]) -> Sequence[sa.ColumnElement[bool]]:
    return [one for one in given if not isinstance(one, tuple)]


def _of_run(given: Sequence[Any]) -> Sequence[sa.ColumnElement[bool]]:
    return [*_name_conditions(RUNS, given), *_of_versions(given)]


def _first(found: sa.Select[Any], order: Iterable[Any], limit: int) -> sa.Select[Any]:
    return found.order_by(*order).limit(number(limit))


def _merged_select(running: sa.Select[Any], waiting: sa.Select[Any], limit: int) -> sa.Select[Any]:
    merged = sa.union_all(*(sa.select(one.subquery()) for one in (running, waiting))).subquery()
    return _first(sa.select(merged), (merged.c.seen_at, merged.c.id), limit)


LISTED = Ranges(
    ClaimableRun,
    lambda judged, heartbeat_at: (*_SHOWN, heartbeat_at, judged.kind),
    lambda judged: sa.or_(OFFERED, judged.abandoned),
)
TAKEN_NEXT: Ranges[Candidate] = Ranges(tuple, lambda *_: (RUNS.c.id,), lambda judged: judged.takeable)
#: The same with what a take reads: a run in which that is damaged is not taken.
SOUND_NEXT: Ranges[tuple[Any, ...]] = Ranges(tuple, lambda *_: KEPT, lambda judged: judged.takeable)
SPENT: Ranges[Candidate] = Ranges(tuple, lambda *_: (RUNS.c.id,), lambda judged: judged.spent, due=False)


def _window(
    unit: Unit, ranges: Ranges[RowT], now: MomentParameters, wanted: Given, key: list[Any] | None, limit: int
) -> Window[RowT]:
    after = {} if key is None else pages.after_values(key)

    def read(size: int) -> KeyedRows[RowT]:
        statement, given = ranges.of(wanted, key is not None, size)
        return keyed_rows(unit.rows_or_errors(statement, {**now, **after, **given}), _KEY)

    return window(read, limit)
