"""The statements of `approvals`."""

from __future__ import annotations

import sqlalchemy as sa

from lastlight_state.db.base import table_of
from lastlight_state.db.indexes import through
from lastlight_state.db.listing import Listing
from lastlight_state.db.statements import constant, prepared
from lastlight_state.workflows.models import ExecutionModel, WorkflowApprovalModel
from lastlight_state.workflows.open_questions import PENDING_GATES
from lastlight_state.workflows.run_rows import RUNS, locking
from lastlight_state.workflows.transitions import bind

APPROVALS = table_of(WorkflowApprovalModel)
COLUMNS = tuple(APPROVALS.c)
_EXECUTIONS = table_of(ExecutionModel)

_GIVEN = (
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
    "request_key",
    "on_reject",
    "blocks_run",
    "expires_at",
    "action_digest",
    "action",
)
"""The columns that a new gate's row states; it is pending, and the rest is of its answer."""

SAME = tuple(name for name in _GIVEN if name not in ("id", "created_at", "action"))
"""The columns that two openings of one gate have in common; actions are compared by their digests."""

_this_one = APPROVALS.c.id == sa.bindparam("approval_id")
PENDING = APPROVALS.c.status == constant("pending")

LOCK_RUN = locking(run=sa.select(APPROVALS.c.workflow_run_id).where(_this_one).scalar_subquery())
"""Locks the run that a gate belongs to. A gate never changes its run, so this needs no look before."""

GET = prepared(sa.select(*COLUMNS).where(_this_one))
INSERT = prepared(
    sa.insert(APPROVALS)
    .values(status="pending", **{name: bind(name, APPROVALS.c[name]) for name in _GIVEN})
    .returning(*COLUMNS)
)
FIND_PENDING_KEY = prepared(
    sa.select(*COLUMNS).where(
        APPROVALS.c.workflow_run_id == sa.bindparam("workflow_run_id"),
        APPROVALS.c.request_key == sa.bindparam("request_key"),
        PENDING,
    )
)
CLOSE = prepared(
    sa.update(APPROVALS)
    .where(_this_one, PENDING)
    .values(
        status=sa.bindparam("status"),
        responded_by=sa.bindparam("by"),
        responded_at=bind("at", APPROVALS.c.responded_at),
        response=sa.bindparam("response"),
        answered_via=sa.bindparam("via"),
        closed_reason=sa.bindparam("closed_reason"),
    )
    .returning(*COLUMNS)
)
CONSUME = prepared(
    sa.update(APPROVALS)
    .where(_this_one, APPROVALS.c.consumed_by.is_(None))
    .values(consumed_at=bind("at", APPROVALS.c.consumed_at), consumed_by=sa.bindparam("execution_id"))
    .returning(*COLUMNS)
)
RUN_OF_EXECUTION = prepared(
    sa.select(_EXECUTIONS.c.id, _EXECUTIONS.c.workflow_run_id).where(_EXECUTIONS.c.id == sa.bindparam("execution_id"))
)

_is_due = APPROVALS.c.expires_at <= bind("at", APPROVALS.c.expires_at)
DUE_RUNS = prepared(
    through(sa.select(APPROVALS.c.workflow_run_id), APPROVALS, "ix_approvals_due")
    .where(
        PENDING,
        APPROVALS.c.expires_at.is_not(None),
        _is_due,
        sa.exists().where(RUNS.c.id == APPROVALS.c.workflow_run_id),
    )
    .order_by(APPROVALS.c.expires_at)
    .limit(sa.bindparam("limit", type_=sa.Integer))
)
"""The runs of the gates that are due. One whose run is missing is never due, or it would fill the limit for ever."""

EXPIRE = prepared(
    sa.update(APPROVALS)
    .where(*PENDING_GATES, _is_due)
    .values(status="expired", closed_reason="gate.expired")
    .returning(APPROVALS.c.id, APPROVALS.c.gate, APPROVALS.c.on_reject, APPROVALS.c.expires_at)
)

_SHOWN = tuple(column for column in COLUMNS if column.name != "action")
_of_run = APPROVALS.c.workflow_run_id == bind("run_id", APPROVALS.c.workflow_run_id)
_by_age = (APPROVALS.c.created_at, APPROVALS.c.id)

OF_RUN = Listing("approvals_of_run", _SHOWN, order=_by_age, descending=False, filters={"run_id": _of_run})
LIST = Listing(
    "approvals",
    _SHOWN,
    order=_by_age,
    spread={"statuses": APPROVALS.c.status},
    filters={
        "trigger_id": APPROVALS.c.workflow_run_id.in_(
            sa.select(RUNS.c.id).where(RUNS.c.trigger_id == bind("trigger_id", RUNS.c.trigger_id))
        ),
        "artifact": APPROVALS.c.artifact == bind("artifact", APPROVALS.c.artifact),
        "gate": APPROVALS.c.gate == bind("gate", APPROVALS.c.gate),
        "kind": APPROVALS.c.kind == bind("kind", APPROVALS.c.kind),
    },
)
HISTORY = Listing(
    "approvals_history",
    _SHOWN,
    order=_by_age,
    spread={"statuses": APPROVALS.c.status},
    filters={
        "workflow_name": sa.exists().where(
            RUNS.c.id == APPROVALS.c.workflow_run_id,
            RUNS.c.workflow_name == bind("workflow_name", RUNS.c.workflow_name),
        ),
        "gate": APPROVALS.c.gate == bind("gate", APPROVALS.c.gate),
        "node_id": APPROVALS.c.node_id == bind("node_id", APPROVALS.c.node_id),
    },
)
