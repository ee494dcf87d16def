"""The three tables as statements name them, and the conditions that their indexes recognise."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from lastlight_state.db.base import table_of
from lastlight_state.db.indexes import through
from lastlight_state.db.statements import bind, constant
from lastlight_state.schedules.models import CronFireModel, CronOverrideModel, CronScheduleModel

SCHEDULES = table_of(CronScheduleModel)

OVERRIDES = table_of(CronOverrideModel)

FIRES = table_of(CronFireModel)

ONE: sa.ColumnElement[int] = sa.literal_column("1", sa.Integer)

THIS_SCHEDULE = SCHEDULES.c.name == bind("name", SCHEDULES.c.name)

IS_RUNNING = FIRES.c.status == constant("running")

#: An override's columns beside those of its schedule; all NULL where there is none.
OVERRIDDEN = (
    OVERRIDES.c.name.label("override_name"),
    OVERRIDES.c.enabled.label("override_enabled"),
    OVERRIDES.c.inherits_enabled.label("override_inherits"),
    OVERRIDES.c.schedule.label("override_schedule"),
    OVERRIDES.c.timezone.label("override_zone"),
)

WITH_OVERRIDE = SCHEDULES.outerjoin(OVERRIDES, OVERRIDES.c.name == SCHEDULES.c.name)

#: What a `lastlight_state.schedules.records.Cron` is made of.
CRON_COLUMNS = (*SCHEDULES.c, *OVERRIDDEN)

#: What a `FireClaim` is made of.
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
    FIRES.c.lease_until,
)

#: The conflict of two fires of one instant, for ``ON CONFLICT``.
INSTANT: dict[str, Any] = {
    "index_elements": [FIRES.c.cron_name, FIRES.c.scheduled_for],
    "index_where": FIRES.c.scheduled_for.is_not(None),
}

#: Whether a fire of the cron ``:name`` is running on a lease that is not over ``:now``.
#:
#: Ask only in a statement after the one that locked the schedule's row: otherwise the answer may be older than the
#: wait.
RUNS_LIVE = sa.exists(
    through(sa.select(ONE), FIRES, "ix_cron_fires_lease").where(
        FIRES.c.cron_name == bind("name", FIRES.c.cron_name),
        IS_RUNNING,
        FIRES.c.lease_until >= bind("now", FIRES.c.lease_until),
    )
)
