"""Claims whose lease ends soon, for display. The index on ``due_at`` finds them: it is never after the lease's end."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from lastlight_state.db.rows.statements import Statement, bind
from lastlight_state.db.schema.indexes import through
from lastlight_state.workflows.claims.checks import EndingClaim
from lastlight_state.workflows.claims.lists import RUNNING
from lastlight_state.workflows.kernel import claims, rows
from lastlight_state.workflows.tables import LEASES, RUNS


def _ending(running: sa.Select[Any], end: sa.ColumnElement[Any]) -> sa.Select[Any]:
    """Return the SELECT with the columns and condition for leases that end from ``:now`` to ``:at``, soonest first."""
    soon = end.between(bind("now", RUNS.c.lease_expires_at), bind("at", RUNS.c.lease_expires_at))
    shown = RUNS.c.claim_owner.label("owner"), RUNS.c.claim_epoch.label("epoch"), end.label("lease_expires_at")
    found = running.add_columns(RUNS.c.id.label("run_id"), RUNS.c.workflow_name, *shown)
    return (
        found.where(RUNNING, RUNS.c.claim_owner.is_not(None), soon)
        .order_by(end, RUNS.c.id)
        .limit(sa.bindparam("limit", type_=sa.Integer))
    )


def _ending_apart() -> sa.Select[Any]:
    due = claims.due((LEASES.c.run_id, LEASES.c.epoch, LEASES.c.lease_expires_at)).subquery("due_leases")
    found = sa.select().select_from(due.join(RUNS, RUNS.c.id == due.c.run_id))
    return _ending(found, claims.present("lease_expires_at", due))


def _ending_beside() -> sa.Select[Any]:
    found = through(claims.due(()).select_from(rows.OF_OTHERS.after(LEASES)), LEASES, "ix_run_leases_due")
    found = rows.through_live_index(found).where(RUNS.c.id == LEASES.c.run_id)
    return _ending(found, claims.present("lease_expires_at", LEASES))


ENDING = Statement(_ending_apart(), _ending_beside(), row=EndingClaim)
