"""Fires of crons that are over."""

from __future__ import annotations

import sqlalchemy as sa

from lastlight_state.db.statements import constant, number
from lastlight_state.maintenance.prune.kinds.kind import Kind
from lastlight_state.schedules.tables import FIRES, IS_RUNNING, SCHEDULES

_later = FIRES.alias("later")

FIRES_KIND = Kind(
    name="fires",
    record="cron_fire",
    key=FIRES.c.id,
    age=FIRES.c.started_at,
    ended=FIRES.c.status != constant("running"),
    open=IS_RUNNING,
    open_age=FIRES.c.started_at,
    index="ix_cron_fires_newest",
    #: A backfill reaches back 31 days, and goes by the fires that are there.
    keep_days=35,
    keep_n=0,
    buried=False,
    protections={
        "newest_of_its_cron": sa.not_(
            sa.exists(
                sa.select(number(1)).where(
                    _later.c.cron_name == FIRES.c.cron_name,
                    sa.tuple_(_later.c.started_at, _later.c.id) > sa.tuple_(FIRES.c.started_at, FIRES.c.id),
                )
            )
        ),
        "last_of_its_cron": sa.exists(
            sa.select(number(1)).where(SCHEDULES.c.name == FIRES.c.cron_name, SCHEDULES.c.last_fire_id == FIRES.c.id)
        ),
    },
)
