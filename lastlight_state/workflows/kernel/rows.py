"""The run's row: how it is locked, read and judged.

*Lock, then look*: a unit that decides from several rows locks the run's row in one statement and reads in the next.
A statement that locks and counts at once would count with a snapshot that is older than its wait for the lock.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, TypedDict, TypeVar, overload

import sqlalchemy as sa

from lastlight_state.db import valid
from lastlight_state.db.listing import Listing
from lastlight_state.db.records import Page
from lastlight_state.db.statements import RowT, Statement, prepared
from lastlight_state.db.unit import Unit
from lastlight_state.errors import Conflict
from lastlight_state.workflows.kernel.leases import HEARTBEAT_AT, LEASE_END
from lastlight_state.workflows.kernel.nodes import states_of
from lastlight_state.workflows.kernel.questions import IdRow
from lastlight_state.workflows.records import RunDetailRow, WorkflowRun
from lastlight_state.workflows.tables import RUNS

T = TypeVar("T")


class StatusRow(TypedDict):
    """Which run, and its status."""

    id: str
    status: str


class HeldRow(StatusRow):
    """A run's status, and who holds the run."""

    claim_owner: str | None
    claim_epoch: int


class LockedRun(HeldRow):
    """What every lock of a run's row returns."""

    transition_seq: int
    phase_count: int
    current_phase: str
    pause_reason: str | None
    restart_count: int
    max_restarts: int
    cancel_requested_at: datetime | None
    updated_at: datetime


LockedT = TypeVar("LockedT", bound=LockedRun)

#: Columns that only statements use: what a release restores, and the digest by which `ensure` compares calls.
_INNER = ("previous_", "create_digest")
#: Columns that are read as they were last renewed.
_RENEWED = {column.name: column for column in (HEARTBEAT_AT.label("heartbeat_at"), LEASE_END.label("lease_expires_at"))}
#: The columns of a new `WorkflowRun`, which nobody has renewed.
NEW_COLUMNS = tuple(column for column in RUNS.c if not column.name.startswith(_INNER))
#: The columns of a `WorkflowRun`.
COLUMNS: tuple[sa.ColumnElement[Any], ...] = tuple(_RENEWED.get(column.name, column) for column in NEW_COLUMNS)

#: The columns of a `LockedRun`.
STATE = (
    RUNS.c.id,
    RUNS.c.status,
    RUNS.c.claim_owner,
    RUNS.c.claim_epoch,
    RUNS.c.transition_seq,
    RUNS.c.phase_count,
    RUNS.c.current_phase,
    RUNS.c.pause_reason,
    RUNS.c.restart_count,
    RUNS.c.max_restarts,
    RUNS.c.cancel_requested_at,
    RUNS.c.updated_at,
)


def locking(
    row: type[LockedT], *more: sa.ColumnElement[Any], run: sa.ColumnElement[Any] | None = None
) -> Statement[LockedT]:
    """Return the statement that locks a run's row, of ``:run_id`` or ``run``, and returns `STATE` and ``more``."""
    run_id = sa.bindparam("run_id") if run is None else run
    return prepared(sa.select(*STATE, *more).where(RUNS.c.id == run_id).with_for_update(key_share=True), row)


LOCK = locking(LockedRun)
#: A whole run, with the states of its nodes.
DETAIL = (*COLUMNS, states_of(RUNS.c.id))
GET = prepared(sa.select(*DETAIL).where(RUNS.c.id == sa.bindparam("run_id")), RunDetailRow)
EXISTS = prepared(sa.select(RUNS.c.id).where(RUNS.c.id == sa.bindparam("run_id")), IdRow)


@overload
def lock(unit: Unit, run_id: str) -> LockedRun: ...


@overload
def lock(unit: Unit, run_id: str, statement: Statement[LockedT]) -> LockedT: ...


def lock(unit: Unit, run_id: str, statement: Statement[Any] = LOCK) -> Any:
    """Lock a run's row; returns its state. Raises `NotFound`."""
    row = unit.row(statement, {"run_id": run_id})
    if row is None:
        raise valid.not_found("workflow_run", run_id)
    return row


def expect_one(unit: Unit, run_id: str) -> None:
    """Raise `NotFound` if there is no such run."""
    if unit.row(EXISTS, {"run_id": run_id}) is None:
        raise valid.not_found("workflow_run", run_id)


def page_of(
    listing: Listing[RowT],
    make: Callable[[RowT], T],
    limit: int,
    page_token: str | None,
    *,
    run_id: str,
    **also: Any,
) -> Callable[[Unit], Page[T]]:
    """Return the work that reads a page of what belongs to one run. It raises `NotFound` for an unknown run.

    A ``run_id`` that is not text is `InvalidValue`; as a filter, None would mean "all runs".
    """
    valid.page_limit(limit)
    given = {"run_id": valid.sought("run_id", run_id), **also}

    def work(unit: Unit) -> Page[T]:
        page = listing.page(unit, make, limit=limit, page_token=page_token, given=given)
        if not page.items:
            expect_one(unit, run_id)
        return page

    return work


def get(unit: Unit, run_id: str) -> WorkflowRun:
    """The whole run. Raises `NotFound`."""
    run = unit.find(WorkflowRun.of_detail, GET, {"run_id": run_id})
    if run is None:
        raise valid.not_found("workflow_run", run_id)
    return run


def expect(row: StatusRow, allowed: Sequence[str]) -> None:
    """Raise `Conflict` ``run_status`` unless the run has one of these statuses."""
    if row["status"] not in allowed:
        raise wrong_status(row["id"], row["status"], allowed)


def wrong_status(run_id: str, found: str, allowed: Sequence[str]) -> Conflict:
    """The error for a run whose status does not allow what was asked."""
    return Conflict(
        f"run {run_id!r} must be {' or '.join(allowed)}, it is {found}",
        code="run_status",
        found=found,
        allowed=tuple(allowed),
    )


def restart_limit(row: LockedRun) -> Conflict:
    """Return the error for a run that has used up its restarts."""
    count, most = row["restart_count"], row["max_restarts"]
    return Conflict(
        f"run {row['id']!r} was restarted {count} times; its limit is {most}",
        code="restart_limit",
        restart_count=count,
        max_restarts=most,
    )
