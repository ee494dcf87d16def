"""The statements of `health`: what the state of a run is derived from, for one run or a page of runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, TypedDict

import sqlalchemy as sa

from lastlight_state.db.indexes import through
from lastlight_state.db.listing import Listing
from lastlight_state.db.statements import Family, constant, number, prepared
from lastlight_state.workflows.kernel.executions import IN_FLIGHT
from lastlight_state.workflows.kernel.leases import LEASE_END
from lastlight_state.workflows.kernel.live import BY_LIVE_STATUS, covered
from lastlight_state.workflows.kernel.nodes import label_of
from lastlight_state.workflows.kernel.questions import pending
from lastlight_state.workflows.tables import APPROVALS, EXECUTIONS, OVERRIDES, REQUESTS, RUNS, TRANSITIONS


class JudgedRow(TypedDict):
    """A run with what its state is derived from."""

    id: str
    trigger_id: str
    status: str
    workflow_name: str
    started_at: datetime
    updated_at: datetime
    transition_seq: int
    restart_count: int
    max_restarts: int
    claim_owner: str | None
    lease_expires_at: datetime | None
    wake_at: datetime | None
    pause_reason: str | None
    waiting_for: str | None
    correlation_id: str | None
    cancel_requested_at: datetime | None
    deadline_at: datetime | None
    queued_at: datetime | None
    status_since: datetime | None
    disabled_since: datetime | None


class EarliestRow(TypedDict):
    """The first pending question of one kind of a run, and the number of all."""

    run_id: str
    kind: str
    id: str
    node_id: str | None
    iteration: int
    expires_at: datetime | None
    label: str | None
    asked_at: datetime
    count: int
    first_expiry: datetime | None


class SilentRow(TypedDict):
    """The oldest last sign of life among the executions in flight of a run."""

    run_id: str
    silent_since: datetime


#: The columns of a run that its state is derived from.
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

_status_since = (
    sa.select(TRANSITIONS.c.at)
    .where(
        TRANSITIONS.c.run_id == RUNS.c.id,
        sa.or_(TRANSITIONS.c.from_status.is_(None), TRANSITIONS.c.from_status != TRANSITIONS.c.to_status),
    )
    .order_by(TRANSITIONS.c.seq.desc())
    .limit(number(1))
    .scalar_subquery()
    .label("status_since")
)
_disabled_since = (
    sa.select(OVERRIDES.c.updated_at)
    .where(OVERRIDES.c.name == RUNS.c.workflow_name, OVERRIDES.c.enabled == sa.false())
    .scalar_subquery()
    .label("disabled_since")
)
_RENEWED = {"lease_expires_at": LEASE_END.label("lease_expires_at")}
_STORED = (_RENEWED.get(name, RUNS.c[name]) for name in STORED)
_SHOWN: tuple[sa.ColumnElement[Any], ...] = (RUNS.c.id, RUNS.c.trigger_id, *_STORED, _status_since, _disabled_since)

ONE = prepared(sa.select(*_SHOWN).where(RUNS.c.id == sa.bindparam("run_id")), JudgedRow)
#: Live runs: one range of an index for each live status, so ended runs cost nothing.
LIVE = Listing(
    "live_runs",
    _SHOWN,
    order=(RUNS.c.started_at, RUNS.c.id),
    spread={"statuses": RUNS.c.status, "workflow_names": RUNS.c.workflow_name},
    worded=("statuses",),
    leading="statuses",
    covering=covered(BY_LIVE_STATUS),
    row=JudgedRow,
)


def _earliest(kind: str, run_id: sa.Column[str], asked_at: sa.Column[Any], index: str) -> Family[EarliestRow]:
    table = run_id.table
    of_run: Mapping[str, Any] = {"partition_by": run_id}

    def select(ids: Sequence[sa.BindParameter[Any]]) -> sa.Select[Any]:
        placed = sa.select(
            run_id.label("run_id"),
            constant(kind).label("kind"),
            *(table.c[name] for name in ("id", "node_id", "iteration", "expires_at")),
            label_of(run_id, table.c.node_id, table.c.iteration),
            asked_at.label("asked_at"),
            sa.func.count().over(**of_run).label("count"),
            sa.func.min(table.c.expires_at).over(**of_run).label("first_expiry"),
            sa.func.row_number().over(order_by=(asked_at, table.c.id), **of_run).label("place"),
        ).where(run_id.in_(ids), pending(table))
        found = through(placed, table, index).subquery()
        shown = (column for column in found.c if column.name != "place")
        return sa.select(*shown).where(found.c.place == number(1))

    return Family("run", select, EarliestRow)


#: The first pending question of each run and the number of all, by kind.
QUESTIONS = (
    _earliest("approval", APPROVALS.c.workflow_run_id, APPROVALS.c.created_at, "ix_approvals_run"),
    _earliest("human_request", REQUESTS.c.run_id, REQUESTS.c.requested_at, "ix_human_requests_summary"),
)

_last_sign = sa.func.coalesce(EXECUTIONS.c.heartbeat_at, EXECUTIONS.c.started_at)


def _silent(ids: Sequence[sa.BindParameter[Any]]) -> sa.Executable:
    run_id = EXECUTIONS.c.workflow_run_id
    oldest = sa.select(run_id.label("run_id"), sa.func.min(_last_sign).label("silent_since"))
    return through(oldest, EXECUTIONS, "ix_executions_signs").where(run_id.in_(ids), IN_FLIGHT).group_by(run_id)


#: The oldest last sign of life among the executions in flight of each run: a heartbeat, or else the start.
SILENT = Family("run", _silent, SilentRow)
