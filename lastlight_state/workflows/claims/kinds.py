"""Which runs may be claimed: the conditions of lists, takes and sweeps (workflows W-40, W-49).

*Offered*: running, and held by nobody; a creator that was to claim it has let its grace pass. *Abandoned*: running, and
the lease of its holder is over, or it is a foreign row that was not changed for too long. *Due*: paused until a time
that has come, and no question blocks it.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, TypedDict

import sqlalchemy as sa

from lastlight_state.clock import to_millis
from lastlight_state.db.statements import bind, constant
from lastlight_state.workflows.kernel import questions
from lastlight_state.workflows.kernel.leases import HEARTBEAT_AT, LEASE_END
from lastlight_state.workflows.tables import RUNS
from lastlight_state.workflows.words import GRACE

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

#: A run that nobody holds is no crash, so taking it costs no restart. Nobody renews its lease.
OFFERED = sa.and_(RUNNING, _awake, _unowned, sa.or_(_ours, RUNS.c.lease_expires_at < _lease_over))
DUE = sa.and_(PAUSED, RUNS.c.wake_at <= _now, ~questions.blocked(RUNS.c.id))
#: A run that may be taken by id at no cost: it is offered, or new, and its creator is expected to claim it.
FREE = sa.and_(RUNNING, _awake, _unowned, sa.or_(_ours, ~_no_lease))

#: Somebody has asked to cancel the run: taking it is no restart, because nobody is to go on with its work.
ASKED_TO_CANCEL = RUNS.c.cancel_requested_at.is_not(None)
MAY_BE_TAKEN_OVER = sa.or_(RUNS.c.restart_count < RUNS.c.max_restarts, ASKED_TO_CANCEL)


class Judged:
    """The conditions on runs whose lease was last renewed until ``lease_end``, with a sign of life ``heartbeat_at``.

    ``takeable``: a running run that `take_next` may take. ``spent``: one that `give_up` ends. ``seen`` is the last sign
    of life: a heartbeat, or else the start.
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


#: By the row beside the run, looked up by its key.
LOOKED_UP = Judged(LEASE_END)


class Moment(TypedDict):
    """The parameters of these conditions."""

    at: datetime
    lease_over: datetime
    foreign_silent: datetime


def moment(now: datetime, grace: timedelta = timedelta(0)) -> Moment:
    """Return the parameters of these conditions.

    A lease that ends exactly ``now`` is alive; ``grace`` prolongs all leases.
    """
    return {"at": now, "lease_over": to_millis(now - grace), "foreign_silent": to_millis(now - GRACE - grace)}
