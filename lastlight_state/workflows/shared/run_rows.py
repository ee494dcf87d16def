"""The run's row: how it is locked, read and judged.

*Lock, then look*: a unit that decides from several rows locks the run's row in one statement and reads in the next.
A statement that locks and counts at once would count with a snapshot that is older than its wait for the lock.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, NamedTuple, Protocol, TypeVar, overload

import sqlalchemy as sa

from lastlight_state.db import valid
from lastlight_state.db.lists.covering import Covering, JoinedTable, NarrowIndex, SelfJoin
from lastlight_state.db.lists.listing import Listing
from lastlight_state.db.rows.records import Page, Record
from lastlight_state.db.rows.statements import (
    RowT,
    Statement,
    among,
    bind,
    columns_of,
    constant,
    every_column_of,
    statement_of,
)
from lastlight_state.db.schema.indexes import RepeatedPredicate, through
from lastlight_state.db.units.scope import Scope
from lastlight_state.db.units.unit import Unit
from lastlight_state.errors import ClaimLost, Conflict, LostRace, StateError
from lastlight_state.workflows.arguments import Claim
from lastlight_state.workflows.records import RunDetail, WorkflowRun
from lastlight_state.workflows.shared.claims import HEARTBEAT_AT, LEASE_END
from lastlight_state.workflows.shared.executions import states_of
from lastlight_state.workflows.tables import EXECUTIONS, RUNS
from lastlight_state.workflows.words import LIVE, TERMINAL

T = TypeVar("T")


class RunWithStatus(Protocol):
    """A run and its status."""

    @property
    def id(self) -> str: ...

    @property
    def status(self) -> str: ...


class StatusOfRun(NamedTuple):
    """The status that a run must have, for a change that locks no row before."""

    id: str
    status: str


class LockedRun(Record):
    """The columns that every lock of a run's row returns."""

    id: str
    status: str
    claim_owner: str | None
    claim_epoch: int
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
_INNER = {
    "previous_owner",
    "previous_heartbeat_at",
    "previous_lease_expires_at",
    "previous_status",
    "previous_restart_count",
    "create_digest",
}
#: Columns that are read as they were last renewed.
_RENEWED = {column.name: column for column in (HEARTBEAT_AT.label("heartbeat_at"), LEASE_END.label("lease_expires_at"))}
#: The columns of a new `WorkflowRun`, which nobody has renewed.
NEW_COLUMNS = every_column_of(WorkflowRun, RUNS, hidden=_INNER)
#: The columns of a `WorkflowRun`.
COLUMNS: tuple[sa.ColumnElement[Any], ...] = tuple(_RENEWED.get(column.name, column) for column in NEW_COLUMNS)


def lock_statement(row: type[LockedT], *computed: Any, run: sa.ColumnElement[Any] | None = None) -> Statement[LockedT]:
    """Return the statement that locks a run's row, of ``:run_id`` or ``run``, and returns a ``row`` of it.

    ``computed`` are the columns of ``row`` that are not those of the run.
    """
    run_id = sa.bindparam("run_id") if run is None else run
    names = {column.name for column in computed}
    own = (column for column in columns_of(row, RUNS) if column.name not in names)
    return statement_of(sa.select(*own, *computed).where(RUNS.c.id == run_id).with_for_update(key_share=True), row)


LOCK = lock_statement(LockedRun)
#: A whole run, with the states of its nodes.
DETAIL = (*COLUMNS, states_of(RUNS.c.id))
GET: Statement[WorkflowRun] = statement_of(sa.select(*DETAIL).where(RUNS.c.id == sa.bindparam("run_id")), RunDetail)
EXISTS = statement_of(sa.select(RUNS.c.id).where(RUNS.c.id == sa.bindparam("run_id")))


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
    listing: Listing[RowT], limit: int, page_token: str | None, *, run_id: str, **also: Any
) -> Callable[[Unit], Page[RowT]]:
    """Return the work that reads a page of what belongs to one run. It raises `NotFound` for an unknown run.

    A ``run_id`` that is not text is `InvalidValue`; as a filter, None would mean "all runs".
    """
    valid.page_limit(limit)
    given = {"run_id": valid.lookup_text("run_id", run_id), **also}

    def work(unit: Unit) -> Page[RowT]:
        page = listing.page(unit, limit=limit, page_token=page_token, given=given)
        if not page.items:
            expect_one(unit, run_id)
        return page

    return work


def get(unit: Unit, run_id: str) -> WorkflowRun:
    """Return the whole run. Raises `NotFound`."""
    run = unit.row(GET, {"run_id": run_id})
    if run is None:
        raise valid.not_found("workflow_run", run_id)
    return run


def expect(row: RunWithStatus, allowed: Sequence[str]) -> None:
    """Raise `Conflict` ``run_status`` unless the run has one of these statuses."""
    if row.status not in allowed:
        raise wrong_status(row.id, row.status, allowed)


def wrong_status(run_id: str, found: str, allowed: Sequence[str]) -> Conflict:
    """Return the error for a run whose status does not allow what was asked."""
    return Conflict(
        f"run {run_id!r} must be {' or '.join(allowed)}, it is {found}",
        code="run_status",
        found=found,
        allowed=tuple(allowed),
    )


def restart_limit(row: LockedRun) -> Conflict:
    """Return the error for a run that has used up its restarts."""
    count, most = row.restart_count, row.max_restarts
    return Conflict(
        f"run {row.id!r} was restarted {count} times; its limit is {most}",
        code="restart_limit",
        restart_count=count,
        max_restarts=most,
    )


# The fence: a write passes with the claim that holds the run, or without one while nobody holds it.
#
# Where a single statement writes, the fence is one of its conditions. That condition locks the run's row, so that the
# claim cannot change hands before the write; a run's row is always locked before the rows of its executions. Where the
# statement changed nothing, it is repeated under the run's lock, and what is found there is the reason for the error.

_FENCED = EXECUTIONS.alias("fenced")

_presented_run = bind("presented_run", EXECUTIONS.c.workflow_run_id)
_presented_epoch = bind("presented_epoch", EXECUTIONS.c.claim_epoch)
_epoch_in_force = sa.case((RUNS.c.claim_owner.is_not(None), RUNS.c.claim_epoch))
_run_here = sa.select(_FENCED.c.workflow_run_id).where(_FENCED.c.id == sa.bindparam("execution_id")).scalar_subquery()
_holder = sa.select(_epoch_in_force).where(RUNS.c.id == _run_here).with_for_update(key_share=True).scalar_subquery()

#: The fence of a statement that changes the execution ``:execution_id``.
FENCE = sa.and_(
    sa.or_(_presented_run.is_(None), EXECUTIONS.c.workflow_run_id == _presented_run),
    _holder.is_not_distinct_from(_presented_epoch),
)

#: The fence of a statement that selects the run's row itself.
RUN_FENCE = sa.and_(
    sa.or_(_presented_run.is_(None), RUNS.c.id == _presented_run),
    _epoch_in_force.is_not_distinct_from(_presented_epoch),
)

#: Whether ``:run_id`` is live and the fence open; for statements that select the run's row.
PERMITTED = sa.and_(RUNS.c.id == bind("run_id", RUNS.c.id), among(RUNS.c.status, LIVE), RUN_FENCE)

#: The id of that run, or NULL; for statements that do not select it.
PERMITTED_RUN = sa.select(RUNS.c.id).where(PERMITTED).with_for_update(key_share=True).scalar_subquery()


def check(row: LockedRun, claim: Claim | None) -> None:
    """Raise `ClaimLost` unless the claim holds the locked run ``row``, or nobody holds it and there is no claim."""
    presented = None if claim is None else valid.argument_group("claim", claim, Claim).epoch
    current = None if row.claim_owner is None else row.claim_epoch
    of_another_run = claim is not None and claim.run_id != row.id
    if presented != current or of_another_run:
        raise claim_lost(row, presented)


def claim_lost(row: LockedRun, presented: int | None) -> ClaimLost:
    """Return the error for a claim that does not hold the run, or for a missing one."""
    return ClaimLost(
        row.id,
        presented=presented,
        current_epoch=row.claim_epoch,
        held_by=row.claim_owner,
        status=row.status,
    )


def permit(unit: Unit, run_id: str, claim: Claim | None) -> None:
    """Lock the run, and raise unless the claim may write to what belongs to it."""
    row = lock(unit, run_id)
    check(row, claim)
    expect(row, LIVE)


def _lost_race(_: Unit) -> StateError:
    return LostRace("another write came in between")


def decide(
    scope: Scope,
    run_id: str,
    claim: Claim | None,
    attempt: Callable[[Unit], T | None],
    refusal: Callable[[Unit], StateError] = _lost_race,
    *,
    repeatable: bool = False,
) -> T:
    """Return what ``attempt``, a single fenced statement, wrote.

    If it wrote nothing, raise `NotFound`, `ClaimLost` or `Conflict` ``run_status``, or else the ``refusal``.
    """
    done = scope.one_statement(attempt, repeatable=repeatable)
    return scope.write(lambda unit: _again(unit, run_id, claim, attempt, refusal)) if done is None else done


def _again(
    unit: Unit,
    run_id: str,
    claim: Claim | None,
    attempt: Callable[[Unit], T | None],
    refusal: Callable[[Unit], StateError],
) -> T:
    permit(unit, run_id, claim)
    done = attempt(unit)
    if done is None:
        raise refusal(unit)
    return done


# Live runs where large values lie inside the rows: all that they are judged by stands in one index of SQLite.

#: The index, which is not there on Postgres.
LIVE_INDEX = "ix_workflow_runs_live"

#: Repeats the predicate of the index.
NOT_ENDED: sa.ColumnElement[bool] = RepeatedPredicate(RUNS.c.status.not_in([constant(word) for word in TERMINAL]))

#: The index by which they are found in a status, in the order of their start.
BY_LIVE_STATUS = NarrowIndex("ix_workflow_runs_live_started", ("status",), only=NOT_ENDED)

#: The runs of a list of something else.
OF_OTHERS = JoinedTable(RUNS, LIVE_INDEX)


def through_live_index(statement: sa.Select[Any]) -> sa.Select[Any]:
    """Return the statement, reading live runs through the index on SQLite."""
    return through(statement, RUNS, LIVE_INDEX).where(NOT_ENDED)


def of_versions(versions: Sequence[Any]) -> sa.ColumnElement[bool]:
    """Return the condition on runs of these versions of the application. A run without a version is anybody's."""
    return sa.or_(RUNS.c.app_version.is_(None), RUNS.c.app_version.in_(versions))


def live_covering(narrow: NarrowIndex) -> Covering:
    """Return how live runs are read that are found by this index."""
    return Covering(LIVE_INDEX, ("id",), {"": narrow}, only=NOT_ENDED)


def live_self_join(narrow: NarrowIndex) -> SelfJoin:
    """Return the two sides of such a statement."""
    return SelfJoin(live_covering(narrow), narrow, (RUNS.c.id,))
