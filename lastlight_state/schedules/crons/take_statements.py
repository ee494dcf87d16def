"""The statements of `take_due`: find due crons, lock the row, store the fire, store the next instant."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, NotRequired, TypedDict

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert

from lastlight_state.db import columns
from lastlight_state.db.filtered import Filtered
from lastlight_state.db.statements import bind, constant, number, prepared
from lastlight_state.schedules.arguments import ClaimRow
from lastlight_state.schedules.crons.statements import CHOSEN, PLANNED
from lastlight_state.schedules.effective import OverriddenColumns
from lastlight_state.schedules.tables import (
    CLAIM,
    FIRES,
    INSTANT,
    OVERRIDDEN,
    RUNS_LIVE,
    SCHEDULES,
    THIS_SCHEDULE,
    WITH_OVERRIDE,
)


class DueColumns(TypedDict):
    """What the row of a due cron says itself."""

    name: str
    next_run_at: datetime
    planned_with: str | None
    pattern: str
    timezone: str
    enabled: bool
    catch_up: str
    grace_seconds: int
    overlap: str
    retired_at: datetime | None


class DueRow(DueColumns, OverriddenColumns):
    """What decides about a due cron."""


class SettledFire(ClaimRow):
    """The fire of an instant as it was stored. A claim on it has no status, which is taken off."""

    status: NotRequired[str]


#: The columns that decide about a due cron. No JSON: a damaged payload must not hide the other due crons.
DECIDING = (
    *(
        SCHEDULES.c[name]
        for name in (
            "name",
            "next_run_at",
            "planned_with",
            "pattern",
            "timezone",
            "enabled",
            "catch_up",
            "grace_seconds",
            "overlap",
            "retired_at",
        )
    ),
    *OVERRIDDEN,
)

_rows = sa.select(*DECIDING).select_from(WITH_OVERRIDE)


def _due(chosen: Sequence[sa.ColumnElement[bool]]) -> sa.Select[Any]:
    behind = sa.tuple_(SCHEDULES.c.next_run_at, SCHEDULES.c.name) > sa.tuple_(
        sa.bindparam("after", type_=columns.KeyTimestamp), bind("after_name", SCHEDULES.c.name)
    )
    return (
        _rows.where(
            SCHEDULES.c.next_run_at.is_not(None),
            SCHEDULES.c.next_run_at <= bind("now", SCHEDULES.c.next_run_at),
            behind,
            *chosen,
        )
        .order_by(SCHEDULES.c.next_run_at, SCHEDULES.c.name)
        .limit(sa.bindparam("limit", type_=sa.Integer))
    )


#: Due crons, the earliest first, behind the place that the last portion reached.
DUE = Filtered(_due, None, DueRow, **CHOSEN)
#: Locks the row, to compare it with the one that was read. A row that another transaction holds is skipped, because it
#: is being taken or changed at this moment; so schedulers do not wait for one another.
LOCK_DUE = prepared(_rows.where(THIS_SCHEDULE).with_for_update(of=SCHEDULES, key_share=True, skip_locked=True), DueRow)

_decided = sa.select(
    sa.case(
        (
            sa.and_(
                bind("status", FIRES.c.status) == constant("running"),
                SCHEDULES.c.overlap == constant("skip"),
                RUNS_LIVE,
            ),
            constant("skipped"),
        ),
        else_=bind("status", FIRES.c.status),
    ).label("status"),
    SCHEDULES.c.name,
    SCHEDULES.c.target_kind,
    SCHEDULES.c.target,
    SCHEDULES.c.payload,
).where(THIS_SCHEDULE)
_fire = _decided.subquery("fire")
_runs = _fire.c.status == constant("running")
_now = bind("now", FIRES.c.started_at)

_values = {
    "id": bind("fire_id", FIRES.c.id),
    "cron_name": _fire.c.name,
    "scheduled_for": bind("read", FIRES.c.scheduled_for),
    "source": constant("schedule"),
    "target_kind": _fire.c.target_kind,
    "target": _fire.c.target,
    "status": _fire.c.status,
    "owner": sa.case((_runs, bind("owner", FIRES.c.owner)), else_=sa.null()),
    "lease_until": sa.case((_runs, bind("lease_expires_at", FIRES.c.lease_until)), else_=sa.null()),
    "epoch": number(1),
    "attempts": sa.case((_runs, number(1)), else_=number(0)),
    "started_at": _now,
    "finished_at": sa.case((_runs, sa.null()), else_=_now),
    "note": sa.case((_fire.c.status == constant("skipped"), constant("overlap")), else_=bind("note", FIRES.c.note)),
    "payload": _fire.c.payload,
}
#: Stores the fire of an instant, or nothing if the instant has one. The fire is stored as ``skipped`` instead of
#: ``running`` if an earlier fire of the cron is still running and its fires must not overlap.
FIRE = prepared(
    insert(FIRES)
    .from_select(
        list(_values),
        sa.select(*_values.values()).select_from(_fire).where(sa.true()),  # else ON CONFLICT reads as a join's ON
        include_defaults=False,
    )
    .on_conflict_do_nothing(**INSTANT)
    .returning(*CLAIM, FIRES.c.status),
    SettledFire,
)

#: Stores the fire and the next instant with the schedule.
FIRED = prepared(
    sa.update(SCHEDULES)
    .where(THIS_SCHEDULE)
    .values(
        last_run_at=bind("now", SCHEDULES.c.last_run_at),
        last_fire_id=bind("fire_id", SCHEDULES.c.last_fire_id),
        **PLANNED,
    )
)
