"""The statements of `health`: what a run's state is derived from, for one run or a page of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

from lastlight_state.db.base import table_of
from lastlight_state.db.indexes import through
from lastlight_state.db.listing import Listing
from lastlight_state.db.statements import Family, constant, prepared
from lastlight_state.workflows.execution_rows import EXECUTIONS
from lastlight_state.workflows.models import HumanRequestModel, WorkflowApprovalModel, WorkflowOverrideModel
from lastlight_state.workflows.node_rows import label_of
from lastlight_state.workflows.open_questions import pending
from lastlight_state.workflows.outcomes import IN_FLIGHT
from lastlight_state.workflows.run_rows import RUNS
from lastlight_state.workflows.transitions import TRANSITIONS

_APPROVALS, _REQUESTS = table_of(WorkflowApprovalModel), table_of(HumanRequestModel)
_OVERRIDES = table_of(WorkflowOverrideModel)

STORED = (
    "status",
    "workflow_name",
    "started_at",
    "updated_at",
    "transition_seq",
    "restart_count",
    "max_restarts",
    "claim_owner",
    "lease_expires_at",
    "wake_at",
    "pause_reason",
    "waiting_for",
    "correlation_id",
    "cancel_requested_at",
    "deadline_at",
    "queued_at",
)
"""The columns of a run that its state is derived from."""

_status_since = (
    sa.select(TRANSITIONS.c.at)
    .where(
        TRANSITIONS.c.run_id == RUNS.c.id,
        sa.or_(TRANSITIONS.c.from_status.is_(None), TRANSITIONS.c.from_status != TRANSITIONS.c.to_status),
    )
    .order_by(TRANSITIONS.c.seq.desc())
    .limit(sa.literal_column("1"))
    .scalar_subquery()
    .label("status_since")
)
_disabled_since = (
    sa.select(_OVERRIDES.c.updated_at)
    .where(_OVERRIDES.c.name == RUNS.c.workflow_name, _OVERRIDES.c.enabled == sa.false())
    .scalar_subquery()
    .label("disabled_since")
)
_SHOWN = (RUNS.c.id, RUNS.c.trigger_id, *(RUNS.c[name] for name in STORED), _status_since, _disabled_since)

ONE = prepared(sa.select(*_SHOWN).where(RUNS.c.id == sa.bindparam("run_id")))
LIVE = Listing(
    "live_runs",
    _SHOWN,
    order=(RUNS.c.started_at, RUNS.c.id),
    spread={"statuses": RUNS.c.status},
    worded=("statuses",),
    through="ix_workflow_runs_status_summary",
)
"""A range of an index for each live status: history costs it nothing."""


def _earliest(kind: str, run_id: sa.Column[str], asked_at: sa.Column[Any]) -> Family:
    table = run_id.table
    of_run: dict[str, Any] = {"partition_by": run_id}

    def select(ids: Sequence[sa.BindParameter[Any]]) -> sa.Select[Any]:
        found = (
            sa.select(
                run_id.label("run_id"),
                constant(kind).label("kind"),
                *(table.c[name] for name in ("id", "node_id", "iteration", "expires_at")),
                label_of(run_id, table.c.node_id, table.c.iteration),
                asked_at.label("asked_at"),
                sa.func.count().over(**of_run).label("count"),
                sa.func.min(table.c.expires_at).over(**of_run).label("first_expiry"),
                sa.func.row_number().over(order_by=(asked_at, table.c.id), **of_run).label("place"),
            )
            .where(run_id.in_(ids), pending(table))
            .subquery()
        )
        shown = (column for column in found.c if column.name != "place")
        return sa.select(*shown).where(found.c.place == sa.literal_column("1"))

    return Family("run", select)


QUESTIONS = (
    _earliest("approval", _APPROVALS.c.workflow_run_id, _APPROVALS.c.created_at),
    _earliest("human_request", _REQUESTS.c.run_id, _REQUESTS.c.requested_at),
)
"""The earliest pending question of each run, with the number of all, by kind."""

_last_sign = sa.func.coalesce(EXECUTIONS.c.heartbeat_at, EXECUTIONS.c.started_at)
SILENT = Family(
    "run",
    lambda ids: (
        through(
            sa.select(EXECUTIONS.c.workflow_run_id, sa.func.min(_last_sign).label("silent_since")),
            EXECUTIONS,
            "ix_executions_in_flight",
        )
        .where(EXECUTIONS.c.workflow_run_id.in_(ids), IN_FLIGHT)
        .group_by(EXECUTIONS.c.workflow_run_id)
    ),
)
"""The oldest sign of life among the executions in flight of each run; those that gave none began then."""
