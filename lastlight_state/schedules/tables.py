"""The three tables, and the columns and conditions that several statements share."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from lastlight_state.db.base import table_of
from lastlight_state.db.indexes import through
from lastlight_state.db.statements import bind, constant, number
from lastlight_state.schedules.models import CronFireModel, CronOverrideModel, CronScheduleModel
from lastlight_state.schedules.reactions import UNPLANNED

SCHEDULES = table_of(CronScheduleModel)

OVERRIDES = table_of(CronOverrideModel)

FIRES = table_of(CronFireModel)

THIS_SCHEDULE = SCHEDULES.c.name == bind("name", SCHEDULES.c.name)

IS_RUNNING = FIRES.c.status == constant("running")

#: The columns of an override in a row of its schedule; all NULL without an override.
OVERRIDDEN = (
    OVERRIDES.c.name.label("override_name"),
    OVERRIDES.c.enabled.label("override_enabled"),
    OVERRIDES.c.inherits_enabled.label("override_inherits"),
    OVERRIDES.c.schedule.label("override_schedule"),
    OVERRIDES.c.timezone.label("override_zone"),
)

WITH_OVERRIDE = SCHEDULES.outerjoin(OVERRIDES, OVERRIDES.c.name == SCHEDULES.c.name)

#: When a cron is due next. NULL while its plan waits to be made again: then the stored time is no instant, but a mark.
NEXT_RUN_AT = sa.case((SCHEDULES.c.planned_with.is_distinct_from(constant(UNPLANNED)), SCHEDULES.c.next_run_at))

#: The columns of a schedule, under the names that records use.
SCHEDULE_COLUMNS = (
    *(
        NEXT_RUN_AT.label("next_run_at") if column.name == "next_run_at" else column
        for column in SCHEDULES.c
        if column.name != "error_json"
    ),
    SCHEDULES.c.error_json.label("error"),
)

#: The columns of a `lastlight_state.schedules.records.Cron`.
CRON_COLUMNS = (*SCHEDULE_COLUMNS, *OVERRIDDEN)

#: When the lease of a fire ends, under the name that records use.
LEASE_END = FIRES.c.lease_until.label("lease_expires_at")

#: The columns of a `FireClaim`.
CLAIM = (
    FIRES.c.id.label("fire_id"),
    FIRES.c.cron_name,
    FIRES.c.scheduled_for,
    FIRES.c.source,
    FIRES.c.target_kind,
    FIRES.c.target,
    FIRES.c.payload,
    FIRES.c.owner,
    FIRES.c.epoch,
    FIRES.c.attempts,
    LEASE_END,
)

#: The unique index by which an instant has one fire, for ``ON CONFLICT``.
INSTANT: dict[str, Any] = {
    "index_elements": [FIRES.c.cron_name, FIRES.c.scheduled_for],
    "index_where": FIRES.c.scheduled_for.is_not(None),
}

#: Whether a fire of the cron ``:name`` runs on a lease that has not expired at ``:now``.
#:
#: Use it only in a statement after the one that locked the schedule's row. In the locking statement itself Postgres
#: would answer from before it waited for the lock.
RUNS_LIVE = sa.exists(
    through(sa.select(number(1)), FIRES, "ix_cron_fires_running").where(
        FIRES.c.cron_name == bind("name", FIRES.c.cron_name),
        IS_RUNNING,
        FIRES.c.lease_until >= bind("now", FIRES.c.lease_until),
    )
)
