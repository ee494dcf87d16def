"""The statements of `queue`. They read the partial index of queued runs, so ended runs cost them nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, TypedDict

import sqlalchemy as sa

from lastlight_state.db.base import later_of
from lastlight_state.db.beside import Narrow
from lastlight_state.db.filtered import Filtered
from lastlight_state.db.indexes import through
from lastlight_state.db.listing import Listing
from lastlight_state.db.statements import Family, bind, constant
from lastlight_state.workflows.kernel import transitions
from lastlight_state.workflows.kernel.claims import CLAIMED, FIRST_TAKEN, KEPT, ClaimedRow, KeptRow
from lastlight_state.workflows.kernel.questions import IdRow
from lastlight_state.workflows.kernel.rows import LockedRun, locking
from lastlight_state.workflows.records import RunSummaryRow
from lastlight_state.workflows.runs.statements import COVERED, SUMMARY
from lastlight_state.workflows.tables import OVERRIDES, RUNS

_INDEX, _RUNNING = "ix_workflow_runs_queue", "ix_workflow_runs_running"

_line = (RUNS.c.queued_at, RUNS.c.id)
#: Foreign rows without ``queued_at`` have no place in the queue.
_in_line = (RUNS.c.status == constant("queued"), RUNS.c.queued_at.is_not(None))

_at = bind("at", RUNS.c.queued_at)
_limit = sa.bindparam("limit", type_=sa.Integer)
_due = sa.or_(RUNS.c.wake_at.is_(None), RUNS.c.wake_at <= _at)
_enabled = RUNS.c.workflow_name.not_in(sa.select(OVERRIDES.c.name).where(OVERRIDES.c.enabled == sa.false()))


class QueuedRow(RunSummaryRow):
    """A run in the line."""

    queued_at: datetime


class QueuedRun(LockedRun):
    """A locked run with its place in the line."""

    queued_at: datetime | None


class NextRow(KeptRow):
    """The first run that may be admitted: what an admission reads."""

    workflow_name: str


class RunningRow(TypedDict):
    """How many runs of a workflow are running."""

    workflow_name: str
    running: int


LIST = Listing(
    "queue",
    (*SUMMARY, RUNS.c.queued_at),
    order=_line,
    descending=False,
    always=_in_line,
    through=_INDEX,
    covering=replace(COVERED, found_by={"": Narrow(_INDEX, only=RUNS.c.status == constant("queued"))}),
    row=QueuedRow,
)


def _count_running(conditions: Sequence[sa.ColumnElement[bool]]) -> sa.Select[Any]:
    running = through(sa.select(RUNS.c.workflow_name), RUNS, _RUNNING).where(
        RUNS.c.status == constant("running"), *conditions
    )
    return sa.select(sa.func.count()).select_from(running.limit(sa.bindparam("cap", type_=sa.BigInteger)).subquery())


#: How many runs of the workflows ``of`` are running, counted up to ``:cap``.
COUNT_RUNNING = Filtered(_count_running, of=RUNS.c.workflow_name.in_)


def _first(shown: Sequence[sa.Column[Any]], *conditions: sa.ColumnElement[bool]) -> sa.Select[Any]:
    first = through(sa.select(*shown), RUNS, _INDEX).where(*_in_line, *conditions)
    return first.order_by(*_line).limit(_limit)


#: A time that another program has set to a value that no Python has, such as infinity, is damaged.
_READABLE = sa.or_(
    RUNS.c.cancel_requested_at.is_(None), sa.extract("year", RUNS.c.cancel_requested_at).between(1, 9999)
)

#: What an admission reads: a run in which that is damaged is not admitted.
_NEEDED = (*KEPT, RUNS.c.workflow_name)


def _next(conditions: Sequence[sa.ColumnElement[bool]]) -> sa.Select[Any]:
    return _first(_NEEDED, _enabled, _due, *conditions).with_for_update(key_share=True, skip_locked=True)


#: Locks the first runs that may be admitted, of the workflows ``of`` and not of those in ``full``. Rows locked by
#: others are skipped: to wait for them while holding locks could be a deadlock.
NEXT = Filtered(_next, None, NextRow, of=RUNS.c.workflow_name.in_, full=RUNS.c.workflow_name.not_in)


#: The first run that may be admitted, of the workflows ``of`` and not of those in ``full``. Locks nothing.
FIRST = Filtered(
    lambda conditions: _first(_NEEDED, _enabled, _due, *conditions),
    None,
    NextRow,
    of=RUNS.c.workflow_name.in_,
    full=RUNS.c.workflow_name.not_in,
)


def _count_each(names: Sequence[sa.BindParameter[Any]]) -> sa.Executable:
    counted = through(sa.select(RUNS.c.workflow_name, sa.func.count().label("running")), RUNS, _RUNNING)
    of_these = RUNS.c.workflow_name.in_(names)
    return counted.where(RUNS.c.status == constant("running"), of_these).group_by(RUNS.c.workflow_name)


#: How many runs of each of these workflows are running. Workflows without one are absent.
COUNT_EACH = Family("workflow_name", _count_each, RunningRow)


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
TAKE = Family("run", _take, ClaimedRow)


def _admit(conditions: Sequence[sa.ColumnElement[bool]]) -> sa.Executable:
    """Count, look, admit and record as one statement, for a database that writes in parts of a query."""
    running = _count_running(conditions).scalar_subquery()
    room = sa.func.greatest(sa.func.least(_limit, sa.bindparam("cap", type_=sa.BigInteger) - running), 0)
    first = through(sa.select(RUNS.c.id), RUNS, _INDEX).where(*_in_line, _enabled, _due, _READABLE, *conditions)
    first = first.order_by(*_line).limit(sa.select(room).scalar_subquery())
    chosen = first.with_for_update(key_share=True, skip_locked=True).cte("chosen")
    written = sa.update(RUNS).where(RUNS.c.id == chosen.c.id).values(**_ADMITTED)
    taken = written.returning(*CLAIMED, *transitions.TAKEN_FROM, RUNS.c.queued_at).cte("taken")
    shown = sa.select(*(taken.c[column.name] for column in CLAIMED)).order_by(taken.c.queued_at, taken.c.id)
    return shown.add_cte(transitions.recording_takes(taken))


#: Admits the first runs in line, of the workflows ``of``, while fewer than ``:cap`` of these run, and claims them.
ADMIT = Filtered(_admit, None, ClaimedRow, of=RUNS.c.workflow_name.in_)

#: The first runs in line that were queued before ``:cutoff``, of the workflows ``of``.
OVERDUE = Filtered(
    lambda conditions: _first((RUNS.c.id,), RUNS.c.queued_at < bind("cutoff", RUNS.c.queued_at), *conditions),
    None,
    IdRow,
    of=RUNS.c.workflow_name.in_,
)
LOCK = locking(QueuedRun, RUNS.c.queued_at)
