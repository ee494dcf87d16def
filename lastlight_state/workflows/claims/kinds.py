"""Which runs may be claimed: the conditions of lists, takes and sweeps (workflows W-40, W-49).

*Offered*: running, and held by nobody; a creator that was to claim it has let its grace pass. *Abandoned*: running, and
the lease of its holder is over, or it is a foreign row that was not changed for too long. *Due*: paused until a time
that has come, and no question blocks it.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import sqlalchemy as sa

from lastlight_state.clock import to_millis
from lastlight_state.db.statements import bind, constant
from lastlight_state.workflows.kernel import questions
from lastlight_state.workflows.tables import RUNS
from lastlight_state.workflows.words import GRACE

RUNNING = RUNS.c.status == constant("running")
PAUSED = RUNS.c.status == constant("paused")

_now = bind("at", RUNS.c.lease_expires_at)
_unowned = RUNS.c.claim_owner.is_(None)
_no_lease = RUNS.c.lease_expires_at.is_(None)
_awake = sa.or_(RUNS.c.wake_at.is_(None), RUNS.c.wake_at <= _now)
_foreign = sa.and_(_unowned, _no_lease, RUNS.c.transition_seq == 0)
_lease_over = RUNS.c.lease_expires_at < bind("lease_over", RUNS.c.lease_expires_at)
_foreign_silent = sa.and_(_foreign, RUNS.c.updated_at < bind("foreign_silent", RUNS.c.updated_at))

_ours = sa.and_(_no_lease, RUNS.c.transition_seq > 0)

#: A run that nobody holds is no crash, so taking it costs no restart.
OFFERED = sa.and_(RUNNING, _awake, _unowned, sa.or_(_ours, _lease_over))
ABANDONED = sa.and_(RUNNING, _awake, sa.or_(sa.and_(~_unowned, _lease_over), _foreign_silent))
DUE = sa.and_(PAUSED, RUNS.c.wake_at <= _now, ~questions.blocked(RUNS.c.id))
#: A run that may be taken by id at no cost: it is offered, or new, and its creator is expected to claim it.
FREE = sa.and_(RUNNING, _awake, _unowned, sa.or_(_ours, ~_no_lease))

#: Somebody has asked to cancel the run: taking it is no restart, because nobody is to go on with its work.
ASKED_TO_CANCEL = RUNS.c.cancel_requested_at.is_not(None)
MAY_BE_TAKEN_OVER = sa.or_(RUNS.c.restart_count < RUNS.c.max_restarts, ASKED_TO_CANCEL)
#: A running run that `take_next` may take.
TAKEABLE = sa.or_(OFFERED, sa.and_(ABANDONED, MAY_BE_TAKEN_OVER))
#: A run that `give_up` ends.
SPENT = sa.or_(
    sa.and_(ABANDONED, ~(RUNS.c.restart_count < RUNS.c.max_restarts)),
    sa.and_(sa.or_(ABANDONED, OFFERED), ASKED_TO_CANCEL),
)

KIND: sa.ColumnElement[Any] = sa.case(
    (PAUSED, constant("due")), (ABANDONED, constant("abandoned")), (OFFERED, constant("offered"))
).label("kind")
#: The last sign of life: a heartbeat, or else the start.
SEEN: sa.ColumnElement[Any] = sa.func.coalesce(RUNS.c.heartbeat_at, RUNS.c.started_at).label("seen_at")


def moment(now: datetime, grace: timedelta = timedelta(0)) -> dict[str, Any]:
    """The parameters of these conditions. A lease that ends exactly ``now`` is alive; ``grace`` prolongs all leases."""
    return {"at": now, "lease_over": to_millis(now - grace), "foreign_silent": to_millis(now - GRACE - grace)}
