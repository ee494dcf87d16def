"""Finds rows of `run_leases` that were removed or changed, and writes them again. Triggers normally write them.

Claims look for lost runs only in `run_leases`. So a lost run without a row there is never found.
"""

from __future__ import annotations

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert

from lastlight_state.db.rows.statements import bind, constant, number, statement_of
from lastlight_state.workflows.guards import AT_ONCE
from lastlight_state.workflows.tables import LEASES, RUNS

_epoch = sa.case((RUNS.c.claim_owner.is_not(None), RUNS.c.claim_epoch))
RUNNING = RUNS.c.status == constant("running")
#: The condition that a row of `run_leases` is the one that triggers write for a run.
ITS_LEASE = sa.and_(
    LEASES.c.run_id == RUNS.c.id,
    LEASES.c.workflow_name == RUNS.c.workflow_name,
    LEASES.c.epoch.is_not_distinct_from(_epoch),
    LEASES.c.due_at <= sa.func.coalesce(LEASES.c.lease_expires_at, LEASES.c.due_at),
)
LACKS_ITS_LEASE = sa.and_(RUNNING, sa.not_(sa.exists().where(ITS_LEASE)))

_PUT = {
    "run_id": RUNS.c.id,
    "workflow_name": RUNS.c.workflow_name,
    "epoch": _epoch,
    "heartbeat_at": RUNS.c.heartbeat_at,
    "lease_expires_at": RUNS.c.lease_expires_at,
    "due_at": sa.func.coalesce(RUNS.c.lease_expires_at, sa.literal_column(f"'{AT_ONCE}'", LEASES.c.due_at.type)),
}
_this = sa.select(*_PUT.values()).where(RUNS.c.id == bind("key", RUNS.c.id), LACKS_ITS_LEASE).with_for_update(of=RUNS)
_put = insert(LEASES).from_select(list(_PUT), _this)

#: Finds the next running runs after a key that lack their row, in the form of counters: the value is 0, needed is 1.
LOOK = (
    sa.select(RUNS.c.id.label("key"), number(0).label("value"), number(1).label("needed"))
    .where(RUNS.c.id > bind("after", RUNS.c.id), LACKS_ITS_LEASE)
    .order_by(RUNS.c.id)
)
#: Writes the row of one run as the triggers do, unless the run has stopped meanwhile.
MEND = statement_of(
    _put.on_conflict_do_update(
        index_elements=[LEASES.c.run_id], set_={name: _put.excluded[name] for name in _PUT if name != "run_id"}
    ).returning(LEASES.c.run_id)
)
