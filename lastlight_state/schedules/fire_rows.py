"""The rows that fires begin as, and what a claim on one is made of.

The unique index lets each instant of a cron have one fire. Whoever finds it taken learns that from the insert itself,
which then changes nothing and fails nothing.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert

from lastlight_state.db.indexes import through
from lastlight_state.db.statements import prepared
from lastlight_state.ids import new_id
from lastlight_state.schedules.tables import FIRES, INSTANT, IS_RUNNING, ONE, SCHEDULES, THIS_SCHEDULE, bind

Row = dict[str, Any]

_c = FIRES.c

_GIVEN = (
    "id",
    "cron_name",
    "scheduled_for",
    "source",
    "actor",
    "owner",
    "lease_until",
    "started_at",
)
_COPIED = ("target_kind", "target", "payload")
"""What a fire takes from its schedule, in the statement that inserts it; NULL for a cron without one."""

CLAIM = (
    _c.id.label("fire_id"),
    _c.cron_name,
    _c.scheduled_for,
    _c.source,
    _c.target_kind,
    _c.target,
    _c.payload,
    _c.owner,
    _c.epoch,
    _c.attempts,
    _c.lease_until,
)
"""What a `FireClaim` is made of."""

_one = sa.select(ONE.label("one")).subquery("one")
_new = (
    sa.select(*(bind(name, _c[name]) for name in _GIVEN), *(SCHEDULES.c[name] for name in _COPIED))
    .select_from(_one.outerjoin(SCHEDULES, SCHEDULES.c.name == bind("cron_name", _c.cron_name)))
    .where(_one.c.one == ONE)  # without a condition SQLite takes the ON of what follows for one of the join
)
INSERT = prepared(
    insert(FIRES)
    .from_select([*_GIVEN, *_COPIED], _new, include_defaults=False)
    .on_conflict_do_nothing(**INSTANT)
    .returning(*CLAIM)
)
"""Inserts nothing where the cron has a fire of that instant."""

TOUCH_SCHEDULE = prepared(
    sa.update(SCHEDULES)
    .where(THIS_SCHEDULE)
    .values(last_run_at=bind("now", SCHEDULES.c.last_run_at), last_fire_id=bind("fire_id", SCHEDULES.c.last_fire_id))
    .returning(SCHEDULES.c.overlap)
)
"""Takes the schedule's row, for a fire that is about to be inserted."""

_of_cron = _c.cron_name == bind("cron_name", _c.cron_name)
LIVE = prepared(
    through(sa.select(_c.id, _c.owner, _c.lease_until), FIRES, "ix_cron_fires_lease")
    .where(IS_RUNNING, _c.lease_until >= bind("now", _c.lease_until), _of_cron)
    .order_by(_c.lease_until.desc())
    .limit(ONE)
)
"""A fire that runs on a lease that is not over. Ask after the schedule's row was taken."""
AT_INSTANT = prepared(
    sa.select(_c.id, _c.status, _c.owner).where(
        _of_cron, _c.scheduled_for == bind("scheduled_for", _c.scheduled_for), _c.scheduled_for.is_not(None)
    )
)


def new_fire(
    cron_name: str,
    *,
    source: str,
    owner: str,
    now: datetime,
    lease: timedelta,
    scheduled_for: datetime | None = None,
    actor: str | None = None,
) -> Row:
    """The row of a fire that somebody runs from now on. Made before the unit, so that a repetition has the same id."""
    return {
        "id": new_id(),
        "cron_name": cron_name,
        "scheduled_for": scheduled_for,
        "source": source,
        "actor": actor,
        "owner": owner,
        "lease_until": now + lease,
        "started_at": now,
    }
