"""The rows that fires begin as: by a claim, by hand, or as a note of an instant that was passed over.

The unique index lets each instant of a cron have one fire. Whoever finds it taken learns that from the insert itself,
which then changes nothing and fails nothing.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, Literal

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert

from lastlight_state.db.indexes import through
from lastlight_state.db.statements import prepared
from lastlight_state.db.unit import Unit
from lastlight_state.ids import new_id
from lastlight_state.schedules.arguments import FireClaim
from lastlight_state.schedules.tables import FIRES, IS_RUNNING, ONE, SCHEDULES, bind

Row = dict[str, Any]

_c = FIRES.c

_GIVEN = (
    "id",
    "cron_name",
    "scheduled_for",
    "source",
    "actor",
    "status",
    "owner",
    "lease_until",
    "started_at",
    "finished_at",
    "note",
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
    .on_conflict_do_nothing(index_elements=[_c.cron_name, _c.scheduled_for], index_where=_c.scheduled_for.is_not(None))
    .returning(*CLAIM)
)
"""Inserts nothing where the cron has a fire of that instant."""

_of_cron = _c.cron_name == bind("cron_name", _c.cron_name)
LIVE = prepared(
    through(sa.select(_c.id, _c.scheduled_for, _c.owner, _c.lease_until), FIRES, "ix_cron_fires_lease")
    .where(IS_RUNNING, _c.lease_until >= bind("now", _c.lease_until), _of_cron)
    .order_by(_c.lease_until.desc())
    .limit(ONE)
)
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
        "status": "running",
        "owner": owner,
        "lease_until": now + lease,
        "started_at": now,
        "finished_at": None,
        "note": None,
    }


def passed_over(
    cron_name: str,
    scheduled_for: datetime,
    status: Literal["skipped", "missed"],
    *,
    now: datetime,
    note: str | None = None,
) -> Row:
    """The row of an instant for which nothing runs: finished at once, held by nobody."""
    fire = new_fire(cron_name, source="schedule", owner="", now=now, lease=timedelta(), scheduled_for=scheduled_for)
    return fire | {"status": status, "owner": None, "lease_until": None, "finished_at": now, "note": note}


def begin(unit: Unit, fire: Row) -> FireClaim | None:
    """Insert a row of `new_fire`, or find its instant taken: then None, and nothing is written."""
    return unit.find(FireClaim, INSERT, fire)


def note_passed_over(unit: Unit, fire: Row) -> bool:
    """Insert a row of `passed_over`, unless its instant is taken; whether it was inserted."""
    return unit.row(INSERT, fire) is not None


def find_live(unit: Unit, cron_name: str, now: datetime) -> Row | None:
    """A fire of the cron that runs on a lease that is not over: its id, instant, owner and the end of its lease.

    Ask after the schedule's row was locked, in this unit: else the answer may be older than the wait.
    """
    return unit.row(LIVE, {"cron_name": cron_name, "now": now})
