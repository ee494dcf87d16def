"""The columns of a run that hold its claim, and the values that a take, a release and an end write into them.

A renewal writes only the run's row in `run_leases`. The epoch grows whenever a claim begins or ends, and never falls,
so an earlier holder stays fenced. A take saves the values that it replaces in the ``previous_`` columns, and a release
restores them. A transfer leaves the ``previous_`` columns alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, NamedTuple

import sqlalchemy as sa

from lastlight_state.db.rows.statements import bind
from lastlight_state.db.schema.base import later_of
from lastlight_state.workflows.tables import LEASES, RUNS

# The lease of a running run, a row of its own in `run_leases` (`RunLeaseModel`).
#
# The last take or release wrote the run's own columns. While somebody holds the run, renewals change only the lease
# row. A lease row counts only if its epoch equals the run's epoch; otherwise, for whatever reason, the run's own
# columns count.


def present(name: str, beside: sa.FromClause | None = None) -> sa.ColumnElement[Any]:
    """Return the expression for a run's ``heartbeat_at`` or ``lease_expires_at`` after its last renewal.

    The lease row is looked up by its key, unless the statement reads lease rows anyway: then ``beside`` names them.
    """
    own = RUNS.c[name]
    if beside is not None:
        renewed: Any = sa.case((beside.c.epoch == RUNS.c.claim_epoch, beside.c[name]))
    else:
        found = sa.select(LEASES.c[name]).where(LEASES.c.run_id == RUNS.c.id, LEASES.c.epoch == RUNS.c.claim_epoch)
        renewed = found.correlate_except(LEASES).scalar_subquery()
    return sa.func.coalesce(renewed, own, type_=own.type)


HEARTBEAT_AT = present("heartbeat_at")
LEASE_END = present("lease_expires_at")

_due_at = bind("at", LEASES.c.due_at)
_LONG_AGO: sa.ColumnElement[Any] = sa.literal_column("'0001-01-01T00:00:00.000Z'")


def select_due(shown: Iterable[Any], *conditions: sa.ColumnElement[bool]) -> sa.Select[Any]:
    """Return a SELECT of the lease rows whose ``due_at`` is at or before ``:at``.

    The range is closed at both ends, so that Postgres uses the index: for a closed range with unknown ends it expects
    one row in 200. For an open range it expects a third of the table, or all of it once its statistics are an hour old,
    and scans the table.
    """
    first, last = (sa.select(sa.cast(end, _due_at.type)).scalar_subquery() for end in (_LONG_AGO, _due_at))
    return sa.select(*shown).where(LEASES.c.due_at.between(first, last), *conditions)


class RenewedRun(NamedTuple):
    """A run whose claim was renewed."""

    id: str
    claim_epoch: int
    lease_expires_at: datetime | None
    claim_owner: str | None
    claimed_at: datetime | None
    restart_count: int
    cancel_requested_at: datetime | None


class ClaimedRun(NamedTuple):
    """A run that was claimed, and the number of the transition that recorded it."""

    id: str
    claim_owner: str | None
    claim_epoch: int
    claimed_at: datetime | None
    lease_expires_at: datetime | None
    restart_count: int
    cancel_requested_at: datetime | None
    transition_seq: int


#: What statements return that claim a run.
CLAIMED = tuple(RUNS.c[name] for name in ClaimedRun._fields)

#: The columns that a take keeps or counts up. A run is taken only if they can be read.
KEPT = (RUNS.c.id, RUNS.c.claim_epoch, RUNS.c.restart_count, RUNS.c.cancel_requested_at, RUNS.c.transition_seq)

#: The new values that a statement sets, by column.
Sets = Mapping[str, Any]

_at = bind("at", RUNS.c.updated_at)


def _held_columns(heartbeat_at: sa.ColumnElement[Any]) -> Sets:
    """Return the columns of a run held by ``:claim_owner`` until ``:lease_expires_at``.

    ``heartbeat_at`` never moves back.
    """
    return {
        "claim_owner": sa.bindparam("claim_owner"),
        "claim_epoch": RUNS.c.claim_epoch + 1,
        "claimed_at": _at,
        "lease_expires_at": sa.bindparam("lease_expires_at"),
        "heartbeat_at": later_of(sa.func.coalesce(heartbeat_at, _at), _at),
    }


def _previous_values(heartbeat_at: sa.ColumnElement[Any], lease_end: sa.ColumnElement[Any]) -> Sets:
    """Return values for the ``previous_`` columns, which save the run's state before a take."""
    return {
        "previous_owner": RUNS.c.claim_owner,
        "previous_heartbeat_at": heartbeat_at,
        "previous_lease_expires_at": lease_end,
        "previous_status": RUNS.c.status,
        "previous_restart_count": RUNS.c.restart_count,
    }


#: The values that begin a claim on a run that somebody may hold.
HELD = _held_columns(HEARTBEAT_AT)
_was = _previous_values(HEARTBEAT_AT, LEASE_END)

#: The values of the ``previous_`` columns when a holder takes its own run again: values of an earlier take stay.
SAVED_ONCE: Sets = {
    name: sa.case((RUNS.c.previous_status.is_(None), saved), else_=RUNS.c[name]) for name, saved in _was.items()
}

#: The values that a take writes to a run that somebody may hold. The statement itself adds status and counters.
TAKEN: Sets = {**HELD, **_was}

#: The values that a take writes to a run that nobody holds, such as an admitted one. No lease row is looked up.
FIRST_TAKEN: Sets = {
    **_held_columns(RUNS.c.heartbeat_at),
    **_previous_values(RUNS.c.heartbeat_at, RUNS.c.lease_expires_at),
}

_ended = RUNS.c.claim_owner.is_not(None)

#: The values that end a claim: nobody holds the run, and the epoch grows. ``previous_owner`` keeps the last holder,
#: ``heartbeat_at`` the last sign of life.
END_CLAIM: Sets = {
    "heartbeat_at": HEARTBEAT_AT,
    "claim_epoch": sa.case((_ended, RUNS.c.claim_epoch + 1), else_=RUNS.c.claim_epoch),
    "previous_owner": sa.case((_ended, RUNS.c.claim_owner), else_=RUNS.c.previous_owner),
    "claim_owner": None,
    "claimed_at": None,
    "lease_expires_at": None,
}

#: The values of a release: the run is as before the take, except for the epoch. A run that had no owner is offered to
#: anybody at once: with its old grace it would look abandoned, and an orderly shutdown would cost a restart.
#: ``:retry_at`` delays the next take.
PUT_BACK: Sets = {
    "claim_owner": sa.case((RUNS.c.previous_status.is_not(None), RUNS.c.previous_owner)),
    "claim_epoch": RUNS.c.claim_epoch + 1,
    "claimed_at": None,
    "heartbeat_at": RUNS.c.previous_heartbeat_at,
    "lease_expires_at": sa.case((RUNS.c.previous_owner.is_not(None), RUNS.c.previous_lease_expires_at)),
    "restart_count": sa.func.coalesce(RUNS.c.previous_restart_count, RUNS.c.restart_count),
    "wake_at": sa.func.coalesce(bind("retry_at", RUNS.c.wake_at), RUNS.c.wake_at),
    "previous_owner": RUNS.c.claim_owner,
    "previous_heartbeat_at": None,
    "previous_lease_expires_at": None,
    "previous_status": None,
    "previous_restart_count": None,
}
