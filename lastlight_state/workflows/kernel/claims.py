"""What each thing that befalls a claim writes into the columns of its run's row.

The epoch grows whenever a claim begins or ends, and never falls: whoever held the run before stays fenced. A take
saves what it replaces in the ``previous_`` columns, so that a release can put it back; a hand-over leaves those alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import sqlalchemy as sa

from lastlight_state.db.base import later_of
from lastlight_state.workflows.tables import RUNS

#: What a claim is made of, and whether it was recorded as a transition.
CLAIMED = (
    RUNS.c.id,
    RUNS.c.claim_owner,
    RUNS.c.claim_epoch,
    RUNS.c.claimed_at,
    RUNS.c.lease_expires_at,
    RUNS.c.restart_count,
    RUNS.c.cancel_requested_at,
    RUNS.c.transition_seq,
)

Sets = Mapping[str, Any]


def _at() -> sa.BindParameter[Any]:
    return sa.bindparam("at", type_=RUNS.c.updated_at.type)


#: A sign of life, which never moves back.
ALIVE: Sets = {"heartbeat_at": later_of(sa.func.coalesce(RUNS.c.heartbeat_at, _at()), _at())}

#: ``:claim_owner`` holds the run from ``:at`` until ``:lease_expires_at``.
HELD: Sets = {
    "claim_owner": sa.bindparam("claim_owner"),
    "claim_epoch": RUNS.c.claim_epoch + 1,
    "claimed_at": _at(),
    "lease_expires_at": sa.bindparam("lease_expires_at"),
    **ALIVE,
}

#: How the run stood before the take.
SAVED: Sets = {
    "previous_owner": RUNS.c.claim_owner,
    "previous_heartbeat_at": RUNS.c.heartbeat_at,
    "previous_lease_expires_at": RUNS.c.lease_expires_at,
    "previous_status": RUNS.c.status,
    "previous_restart_count": RUNS.c.restart_count,
}

#: The same, unless a take has saved it already: for a holder who takes its own run again.
SAVED_ONCE: Sets = {
    name: sa.case((RUNS.c.previous_status.is_(None), stood), else_=RUNS.c[name]) for name, stood in SAVED.items()
}

#: What every take writes, an admission that claims included; its status and counters are its own.
TAKEN: Sets = {**HELD, **SAVED}

_ended = RUNS.c.claim_owner.is_not(None)

#: A claim ends: nobody holds the run, and the epoch grows. Who held it last is still to be seen.
END_CLAIM: Sets = {
    "claim_epoch": sa.case((_ended, RUNS.c.claim_epoch + 1), else_=RUNS.c.claim_epoch),
    "previous_owner": sa.case((_ended, RUNS.c.claim_owner), else_=RUNS.c.previous_owner),
    "claim_owner": None,
    "claimed_at": None,
    "lease_expires_at": None,
}

#: A claim is given back: the run stands as before the take, but for the epoch. A run that nobody owned is offered, its
#: grace not restored, or an orderly shutdown would cost a restart. ``:retry_at`` puts off the next take.
PUT_BACK: Sets = {
    "claim_owner": sa.case((RUNS.c.previous_status.is_not(None), RUNS.c.previous_owner)),
    "claim_epoch": RUNS.c.claim_epoch + 1,
    "claimed_at": None,
    "heartbeat_at": RUNS.c.previous_heartbeat_at,
    "lease_expires_at": sa.case((RUNS.c.previous_owner.is_not(None), RUNS.c.previous_lease_expires_at)),
    "restart_count": sa.func.coalesce(RUNS.c.previous_restart_count, RUNS.c.restart_count),
    "wake_at": sa.func.coalesce(sa.bindparam("retry_at", type_=RUNS.c.wake_at.type), RUNS.c.wake_at),
    "previous_owner": RUNS.c.claim_owner,
    "previous_heartbeat_at": None,
    "previous_lease_expires_at": None,
    "previous_status": None,
    "previous_restart_count": None,
}
