"""The inbox: every open question of every live run.

A gate past its expiry is not shown, whether a sweep has been there or not. Of the runs only columns are read that
stand before the large ones.
"""

from __future__ import annotations

import sqlalchemy as sa

from lastlight_state.db.listing import Listing
from lastlight_state.db.statements import among, constant, prepared
from lastlight_state.workflows.approval_statements import APPROVALS
from lastlight_state.workflows.run_rows import RUNS
from lastlight_state.workflows.transitions import bind
from lastlight_state.workflows.words import LIVE

_COLUMNS = (
    "id",
    "workflow_run_id",
    "gate",
    "summary",
    "kind",
    "requested_by",
    "created_at",
    "artifact",
    "node_id",
    "iteration",
    "on_reject",
    "blocks_run",
    "expires_at",
    "action_digest",
    "action",
)

_open = (
    APPROVALS.c.status == constant("pending"),
    sa.or_(APPROVALS.c.expires_at.is_(None), APPROVALS.c.expires_at > bind("now", APPROVALS.c.expires_at)),
    RUNS.c.id == APPROVALS.c.workflow_run_id,
    among(RUNS.c.status, LIVE),
)


def _inbox(name: str, *, descending: bool) -> Listing:
    return Listing(
        name,
        (
            *(APPROVALS.c[column] for column in _COLUMNS),
            RUNS.c.workflow_name,
            RUNS.c.status.label("run_status"),
            RUNS.c.trigger_id,
        ),
        order=(APPROVALS.c.created_at, APPROVALS.c.id),
        descending=descending,
        always=_open,
        filters={
            "run_id": APPROVALS.c.workflow_run_id == bind("run_id", APPROVALS.c.workflow_run_id),
            "kind": APPROVALS.c.kind == bind("kind", APPROVALS.c.kind),
        },
    )


ORDERS = {
    "newest": _inbox("inbox_newest", descending=True),
    "oldest": _inbox("inbox_oldest", descending=False),
}
COUNT = prepared(sa.select(sa.func.count().label("open")).select_from(APPROVALS, RUNS).where(*_open))
