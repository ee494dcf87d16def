"""The rows that fires begin as, and what a claim on one is made of.

The unique index lets each instant of a cron have one fire. Whoever finds it taken learns that from the insert itself,
which then changes nothing and fails nothing.

The statements of `fires`. A write through a claim has its fence among its conditions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from itertools import zip_longest
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert

from lastlight_state.db.base import later_of
from lastlight_state.db.indexes import through
from lastlight_state.db.listing import Listing
from lastlight_state.db.statements import Statement, bind, constant, prepared
from lastlight_state.ids import new_id
from lastlight_state.schedules.tables import CLAIM, FIRES, INSTANT, IS_RUNNING, ONE, SCHEDULES, THIS_SCHEDULE
from lastlight_state.schedules.words import FIRE_STATUSES

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
#: What a fire takes from its schedule, in the statement that inserts it; NULL for a cron without one.
_COPIED = ("target_kind", "target", "payload")

_one = sa.select(ONE.label("one")).subquery("one")
_new = (
    sa.select(*(bind(name, _c[name]) for name in _GIVEN), *(SCHEDULES.c[name] for name in _COPIED))
    .select_from(_one.outerjoin(SCHEDULES, SCHEDULES.c.name == bind("cron_name", _c.cron_name)))
    .where(_one.c.one == ONE)  # without a condition SQLite takes the ON of what follows for one of the join
)
#: Inserts nothing where the cron has a fire of that instant.
INSERT = prepared(
    insert(FIRES)
    .from_select([*_GIVEN, *_COPIED], _new, include_defaults=False)
    .on_conflict_do_nothing(**INSTANT)
    .returning(*CLAIM)
)

#: Takes the schedule's row, for a fire that is about to be inserted.
TOUCH_SCHEDULE = prepared(
    sa.update(SCHEDULES)
    .where(THIS_SCHEDULE)
    .values(last_run_at=bind("now", SCHEDULES.c.last_run_at), last_fire_id=bind("fire_id", SCHEDULES.c.last_fire_id))
    .returning(SCHEDULES.c.overlap)
)

_of_cron = _c.cron_name == bind("cron_name", _c.cron_name)
#: A fire that runs on a lease that is not over. Ask after the schedule's row was taken.
LIVE = prepared(
    through(sa.select(_c.id, _c.owner, _c.lease_until), FIRES, "ix_cron_fires_lease")
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
        "owner": owner,
        "lease_until": now + lease,
        "started_at": now,
    }


COLUMNS = tuple(_c)
SUMMARY = tuple(column for column in COLUMNS if column.name not in ("payload", "error_json"))
COUNTS = ("eligible", "scanned", "discovered", "dispatched", "failures")
#: The columns that an outcome fills.
OUTCOME = ("status", *COUNTS, "note", "error_json")

_this_fire = _c.id == bind("fire_id", _c.id)
_held = (_this_fire, _c.epoch == bind("epoch", _c.epoch), IS_RUNNING)
_now = bind("now", _c.lease_until)
_is_stale = _c.lease_until < _now

GET = prepared(sa.select(*COLUMNS).where(_this_fire))
STATE = prepared(sa.select(_c.id, _c.status, _c.owner, _c.epoch).where(_this_fire))

_error = bind("schedule_error", SCHEDULES.c.error_json)
_cannot_be_planned = SCHEDULES.c.next_run_at.is_(None) & SCHEDULES.c.planned_with.is_not(None)
#: What a fire left behind, unless another one has been fired since. No error takes back none about the plan.
TELL_SCHEDULE = prepared(
    sa.update(SCHEDULES)
    .where(THIS_SCHEDULE, SCHEDULES.c.last_fire_id == bind("fire_id", SCHEDULES.c.last_fire_id))
    .values(error_json=sa.case((_cannot_be_planned & _error.is_(None), SCHEDULES.c.error_json), else_=_error))
)


def _changing(*conditions: sa.ColumnElement[bool], returning: Any, **sets: Any) -> Statement:
    return prepared(sa.update(FIRES).where(*conditions).values(**sets).returning(*returning))


_until = bind("lease_until", _c.lease_until)
_end = {"lease_until": None, "finished_at": bind("at", _c.finished_at)}

HEARTBEAT = _changing(*_held, returning=(_c.lease_until,), lease_until=later_of(_c.lease_until, _until))
RELEASE = _changing(*_held, returning=(_c.id,), lease_until=_until)
FINISH = _changing(*_held, returning=COLUMNS, **{name: bind(name, _c[name]) for name in OUTCOME}, **_end)

STALE = prepared(
    through(sa.select(_c.id, _c.cron_name, _c.epoch, _c.attempts, _c.owner), FIRES, "ix_cron_fires_lease")
    .where(IS_RUNNING, _is_stale)
    .order_by(_c.lease_until)
    .limit(sa.bindparam("limit", type_=sa.Integer))
)
TAKE = _changing(
    *_held,
    _is_stale,
    returning=CLAIM,
    epoch=_c.epoch + ONE,
    attempts=_c.attempts + ONE,
    owner=bind("owner", _c.owner),
    lease_until=_until,
)
#: The epoch grows, so that the last owner, should it come back, learns that its claim is lost.
ABANDON = _changing(
    *_held,
    _is_stale,
    returning=(_c.id,),
    status=constant("abandoned"),
    epoch=_c.epoch + ONE,
    error_json=bind("error_json", _c.error_json),
    **_end,
)

#: The parameters of the filter by status.
ANY_STATUS = tuple(f"status_{i}" for i in range(len(FIRE_STATUSES)))


def any_of(statuses: Sequence[str]) -> dict[str, str | None]:
    """The value of that filter. None, which fills it up, equals nothing."""
    return dict(zip_longest(ANY_STATUS, statuses))


def _newest_first(name: str, *always: sa.ColumnElement[bool], by: str | None = None) -> Listing:
    return Listing(
        name,
        SUMMARY,
        order=(_c.started_at, _c.id),
        filters={
            "cron_name": _c.cron_name == bind("cron_name", _c.cron_name),
            "statuses": _c.status.in_([bind(name, _c.status) for name in ANY_STATUS]),
            "source": _c.source == bind("source", _c.source),
            "since": _c.started_at >= bind("since", _c.started_at),
        },
        always=always,
        through=by,
    )


LIST = _newest_first("fires")
OF_CRON = _newest_first("fires of a cron", by="ix_cron_fires_cron")
RUNNING_ALONE = any_of(["running"])
#: Those that run are few, whatever the ledger's size: sorting them beats looking for them.
RUNNING = _newest_first("fires that run", IS_RUNNING, by="ix_cron_fires_lease")


def listing_of(given: Mapping[str, Any]) -> Listing:
    """The list that reads the fewest rows for these filters."""
    if given["statuses"] == RUNNING_ALONE:
        return RUNNING
    return LIST if given["cron_name"] is None else OF_CRON
