"""The SQL statements of `claims`."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple

import sqlalchemy as sa

from lastlight_state.backends.sql.json import elements_of, member_of
from lastlight_state.db.rows.statements import Family, bind, columns_of, constant, statement_of
from lastlight_state.db.schema import columns
from lastlight_state.db.schema.base import later_of
from lastlight_state.db.schema.indexes import hide_from_indexes
from lastlight_state.workflows.claims.checks import ClaimHolder
from lastlight_state.workflows.claims.lists import ASKED_TO_CANCEL, DUE, FREE, LOOKED_UP, PAUSED, RUNNING, Judged
from lastlight_state.workflows.shared.claims import (
    CLAIMED,
    FIRST_TAKEN,
    HEARTBEAT_AT,
    HELD,
    KEPT,
    LEASE_END,
    SAVED_ONCE,
    TAKEN,
    ClaimedRun,
    RenewedRun,
)
from lastlight_state.workflows.shared.executions import IN_FLIGHT
from lastlight_state.workflows.shared.run_rows import LockedRun, lock_statement, through_live_index
from lastlight_state.workflows.shared.transitions import WAKE_REASON, transition_chain
from lastlight_state.workflows.tables import EXECUTIONS, LEASES, RUNS, TRANSITIONS


class JudgedRun(LockedRun):
    """A locked run that somebody wants to take, with what decides whether it may be taken."""

    lease_expires_at: datetime | None
    wake_at: datetime | None
    kind: str | None


class FreeRun(NamedTuple):
    """A locked run that nobody else was locking: what a take keeps or counts up, and its last sign of life."""

    id: str
    claim_epoch: int
    restart_count: int
    cancel_requested_at: datetime | None
    transition_seq: int
    seen_at: datetime


class TakenRun(LockedRun):
    """A locked run that is to be put back as it was before it was taken."""

    previous_status: str | None


_expected = bind("expected_epoch", RUNS.c.claim_epoch)
_as_expected = sa.or_(_expected.is_(None), RUNS.c.claim_epoch == _expected)
_this_run = RUNS.c.id == sa.bindparam("run_id")
_this_claim = (
    _this_run,
    RUNNING,
    RUNS.c.claim_owner.is_not(None),
    RUNS.c.claim_epoch == bind("epoch", RUNS.c.claim_epoch),
)

#: Takes a run that nobody holds. Changes no counter, writes no transition.
TAKE_FREE = statement_of(
    sa.update(RUNS).where(_this_run, _as_expected, FREE).values(**FIRST_TAKEN).returning(*CLAIMED), ClaimedRun
)


def _take(ids: Sequence[sa.BindParameter[Any]]) -> sa.Executable:
    """Return the statement that takes these runs.

    It first locks the rows of their leases, so that it waits for renewals in progress.
    """
    at = bind("at", RUNS.c.updated_at)
    locked = sa.select(LEASES.c.run_id, LEASES.c.epoch, LEASES.c.lease_expires_at).where(LEASES.c.run_id.in_(ids))
    leases = locked.order_by(LEASES.c.run_id).with_for_update(key_share=True).cte("leases")
    found = sa.select(leases.c.lease_expires_at).where(
        leases.c.run_id == RUNS.c.id, leases.c.epoch == RUNS.c.claim_epoch
    )
    judged = Judged(sa.func.coalesce(found.scalar_subquery(), RUNS.c.lease_expires_at))
    recorded = sa.or_(PAUSED, judged.abandoned)
    return (
        sa.update(RUNS)
        .where(RUNS.c.id.in_(ids), _as_expected, hide_from_indexes(sa.or_(judged.takeable, FREE, DUE)))
        .values(
            **TAKEN,
            status="running",
            status_reason=sa.case((PAUSED, sa.literal(WAKE_REASON)), else_=RUNS.c.status_reason),
            restart_count=RUNS.c.restart_count + sa.case((sa.and_(judged.abandoned, ~ASKED_TO_CANCEL), 1), else_=0),
            transition_seq=RUNS.c.transition_seq + sa.case((recorded, 1), else_=0),
            updated_at=sa.case((recorded, later_of(RUNS.c.updated_at, at)), else_=RUNS.c.updated_at),
        )
        .returning(*CLAIMED)
    )


#: Takes locked runs of every kind. The statement that decides a takeover also counts it as a restart, unless somebody
#: has asked to cancel the run.
TAKE = Family("run", _take, ClaimedRun)


def _left_in_flight(ids: Sequence[sa.BindParameter[Any]]) -> sa.Executable:
    left = sa.select(EXECUTIONS.c.workflow_run_id, sa.func.count().label("left_in_flight"))
    return left.where(EXECUTIONS.c.workflow_run_id.in_(ids), IN_FLIGHT).group_by(EXECUTIONS.c.workflow_run_id)


#: How many executions of each run are in flight. Runs without one are absent.
LEFT_IN_FLIGHT: Family[tuple[str, int]] = Family("run", _left_in_flight, tuple)

#: Takes a run again for its own holder. A release still restores the run as it was before the first take.
RETAKE = statement_of(
    sa.update(RUNS)
    .where(
        _this_run,
        RUNNING,
        RUNS.c.claim_owner == sa.bindparam("claim_owner"),
        bind("at", RUNS.c.lease_expires_at) <= LEASE_END,
    )
    .values(**HELD, **SAVED_ONCE)
    .returning(*CLAIMED),
    ClaimedRun,
)

LOCK = lock_statement(JudgedRun, LEASE_END.label("lease_expires_at"), LOOKED_UP.kind)
#: Locks the lease of a locked run, after which nobody renews it.
LOCK_LEASE = statement_of(
    sa.select(LEASES.c.run_id).where(LEASES.c.run_id == sa.bindparam("run_id")).with_for_update(key_share=True)
)


def _lock_free(ids: Sequence[sa.BindParameter[Any]]) -> sa.Executable:
    return (
        through_live_index(sa.select(*KEPT, LOOKED_UP.seen))
        .where(RUNS.c.id.in_(ids), hide_from_indexes(sa.or_(LOOKED_UP.takeable, DUE)))
        .order_by(LOOKED_UP.seen, RUNS.c.id)
        .limit(sa.bindparam("limit", type_=sa.Integer))
        .with_for_update(key_share=True, skip_locked=True)
    )


#: Locks the first of these runs, skipping runs that others are locking.
LOCK_FREE = Family("run", _lock_free, FreeRun)


def _of_run(column: sa.Column[Any]) -> sa.ColumnElement[Any]:
    """Return a subquery for a column of the run to which a row of `run_leases` belongs."""
    return sa.select(column).where(RUNS.c.id == LEASES.c.run_id).scalar_subquery().label(column.name)


_OF_RUN = (RUNS.c.claim_owner, RUNS.c.claimed_at, RUNS.c.restart_count, RUNS.c.cancel_requested_at)
#: What a renewal returns: a `RenewedRun`, which it does not write.
_RENEWED = (
    LEASES.c.run_id.label("id"),
    LEASES.c.epoch.label("claim_epoch"),
    LEASES.c.lease_expires_at,
    *map(_of_run, _OF_RUN),
)


def _renewed_lease(
    lease_end: sa.ColumnElement[Any], move_before: sa.ColumnElement[Any]
) -> dict[str, sa.ColumnElement[Any]]:
    """Return the new values of a renewed lease, which ends no earlier than before.

    The indexed ``due_at`` changes only if it is before ``move_before``.
    """
    at = bind("at", LEASES.c.heartbeat_at)
    end = later_of(sa.func.coalesce(LEASES.c.lease_expires_at, lease_end), lease_end)
    return {
        "heartbeat_at": later_of(sa.func.coalesce(LEASES.c.heartbeat_at, at), at),
        "lease_expires_at": end,
        "due_at": sa.case((LEASES.c.due_at < move_before, end), else_=LEASES.c.due_at),
    }


#: Renews the lease of a claim. A row with another epoch belongs to another claim, a row without an epoch to no claim.
HEARTBEAT = statement_of(
    sa.update(LEASES)
    .where(LEASES.c.run_id == sa.bindparam("run_id"), LEASES.c.epoch == bind("epoch", LEASES.c.epoch))
    .values(
        **_renewed_lease(bind("lease_expires_at", LEASES.c.lease_expires_at), bind("move_due_before", LEASES.c.due_at)),
    )
    .returning(*_RENEWED),
    RenewedRun,
)
#: Hands a run to ``:claim_owner`` and records a transition.
TRANSFER = transition_chain(
    sa.update(RUNS)
    .where(*_this_claim)
    .values(
        **HELD,
        transition_seq=RUNS.c.transition_seq + 1,
        updated_at=later_of(RUNS.c.updated_at, bind("at", RUNS.c.updated_at)),
    )
    .returning(*CLAIMED),
    ClaimedRun,
    from_status=constant("running"),
)

_presented = elements_of(sa.bindparam("claims", type_=columns.Text)).table_valued(sa.column("value"), name="presented")


def _member(name: str, column: sa.Column[Any]) -> sa.ColumnElement[Any]:
    return sa.cast(member_of(_presented.c.value, name), column.type)


_locked = (
    sa.select(
        LEASES.c.run_id,
        _member("lease_expires_at", LEASES.c.lease_expires_at).label("lease_end"),
        _member("move_due_before", LEASES.c.due_at).label("move_due_before"),
    )
    .join_from(_presented, LEASES, LEASES.c.run_id == _member("run_id", LEASES.c.run_id))
    .where(LEASES.c.epoch == _member("epoch", LEASES.c.epoch))
    .order_by(LEASES.c.run_id)
    .with_for_update(key_share=True, of=LEASES)
    .cte("locked")
)
_renewing = (
    sa.update(LEASES)
    .where(LEASES.c.run_id == _locked.c.run_id)
    .values(**_renewed_lease(_locked.c.lease_end, _locked.c.move_due_before))
)
_of_leases = _renewing.returning(*_RENEWED[:3]).cte("renewed")
#: Renews any number of claims. The rows are locked in ascending id, so that two such statements never deadlock.
HEARTBEAT_MANY = statement_of(_renewing.returning(*_RENEWED), RenewedRun)
#: The same where writes may stand in a WITH: each run is looked up once, and not for each of its columns.
HEARTBEAT_MANY_IN_CTE = statement_of(
    sa.select(*_of_leases.c, *_OF_RUN).join_from(_of_leases, RUNS, RUNS.c.id == _of_leases.c.id, isouter=True),
    RenewedRun,
)

#: The state of the runs of lost claims, for their errors.
LOOK = statement_of(
    sa.select(*columns_of(LockedRun, RUNS)).join_from(_presented, RUNS, RUNS.c.id == _member("run_id", RUNS.c.id)),
    LockedRun,
)

LOCK_HELD = lock_statement(TakenRun)

FIND = statement_of(
    sa.select(
        RUNS.c.id.label("run_id"),
        RUNS.c.claim_owner.label("owner"),
        RUNS.c.claim_epoch.label("epoch"),
        RUNS.c.claimed_at,
        HEARTBEAT_AT.label("heartbeat_at"),
        LEASE_END.label("lease_expires_at"),
    ).where(_this_run, RUNS.c.claim_owner.is_not(None)),
    ClaimHolder,
)

#: Finds a transition with this epoch to another status than ``running``: the holder has then paused, ended or requeued
#: the run, or released it into such a status. A take or a note is never found, because a held run is running.
ENDED_BY_HOLDER = statement_of(
    sa.select(TRANSITIONS.c.seq)
    .where(
        TRANSITIONS.c.run_id == bind("run_id", TRANSITIONS.c.run_id),
        TRANSITIONS.c.claim_epoch == bind("epoch", TRANSITIONS.c.claim_epoch),
        TRANSITIONS.c.to_status != constant("running"),
    )
    .limit(sa.literal_column("1"))
)
