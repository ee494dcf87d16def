"""The statements of `fires`, and the row of a new fire.

A unique index gives each instant of a cron one fire; inserting a second one returns no row instead of failing. A write
through a claim has the claim's epoch among its conditions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple, TypedDict

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert

from lastlight_state.backends.sql.expressions import utc_bucket
from lastlight_state.db.lists.filters import Filtered
from lastlight_state.db.lists.listing import Listing
from lastlight_state.db.rows.records import needed_columns
from lastlight_state.db.rows.statements import AnyOf, Statement, bind, constant, every_column_of, number, statement_of
from lastlight_state.db.schema.base import later_of
from lastlight_state.db.schema.indexes import through
from lastlight_state.ids import new_id
from lastlight_state.schedules.arguments import FireClaim
from lastlight_state.schedules.models import (
    CLAIM,
    FIRE_STATUSES,
    FIRES,
    INSTANT,
    IS_RUNNING,
    LEASE_END,
    SCHEDULES,
    THIS_SCHEDULE,
)
from lastlight_state.schedules.records import Fire, FireSummary


class NewFire(TypedDict):
    """The row of a fire that begins."""

    id: str
    cron_name: str
    scheduled_for: datetime | None
    source: str
    actor: str | None
    owner: str
    lease_until: datetime
    started_at: datetime


class StaleFire(NamedTuple):
    """The columns that decide about a fire whose lease has expired."""

    id: str
    cron_name: str
    epoch: int
    attempts: int
    owner: str | None


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
#: The columns that a new fire copies from its schedule; NULL without a schedule.
_COPIED = ("target_kind", "target", "payload")

_one = sa.select(number(1).label("one")).subquery("one")
_new = (
    sa.select(*(bind(name, _c[name]) for name in _GIVEN), *(SCHEDULES.c[name] for name in _COPIED))
    .select_from(_one.outerjoin(SCHEDULES, SCHEDULES.c.name == bind("cron_name", _c.cron_name)))
    .where(_one.c.one == number(1))  # without a WHERE, SQLite reads ON CONFLICT as the ON of the join
)
#: Inserts nothing if the cron has a fire at that instant.
INSERT = statement_of(
    insert(FIRES)
    .from_select([*_GIVEN, *_COPIED], _new, include_defaults=False)
    .on_conflict_do_nothing(**INSTANT)
    .returning(*CLAIM),
    FireClaim,
)

#: Locks the schedule's row and stores the fire as its last one, before the fire is inserted.
TOUCH_SCHEDULE = statement_of(
    sa.update(SCHEDULES)
    .where(THIS_SCHEDULE)
    .values(last_run_at=bind("now", SCHEDULES.c.last_run_at), last_fire_id=bind("fire_id", SCHEDULES.c.last_fire_id))
    .returning(SCHEDULES.c.overlap)
)

_of_cron = _c.cron_name == bind("cron_name", _c.cron_name)
#: A fire that runs on a lease that has not expired. To be read after the schedule's row was locked.
LIVE: Statement[tuple[str, str | None, datetime | None]] = statement_of(
    through(sa.select(_c.id, _c.owner, LEASE_END), FIRES, "ix_cron_fires_running")
    .where(IS_RUNNING, _c.lease_until >= bind("now", _c.lease_until), _of_cron)
    .order_by(_c.lease_until.desc())
    .limit(number(1)),
    tuple,
)
AT_INSTANT: Statement[tuple[str, str, str | None]] = statement_of(
    sa.select(_c.id, _c.status, _c.owner).where(
        _of_cron, _c.scheduled_for == bind("scheduled_for", _c.scheduled_for), _c.scheduled_for.is_not(None)
    ),
    tuple,
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
) -> NewFire:
    """Return the row of a fire that begins now.

    Call this before the unit runs, so that a repeated unit inserts the same id.
    """
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


#: The columns of a `lastlight_state.schedules.records.Fire`.
COLUMNS = (
    *every_column_of(Fire, FIRES, hidden={"lease_until", "error_json"}),
    LEASE_END,
    _c.error_json.label("error"),
)
SUMMARY = tuple(column for column in COLUMNS if column.name in needed_columns(FireSummary))
COUNTS = ("eligible", "scanned", "discovered", "dispatched", "failures")
#: The columns that an outcome sets.
OUTCOME = ("status", *COUNTS, "note", "error")

_this_fire = _c.id == bind("fire_id", _c.id)
_held = (_this_fire, _c.epoch == bind("epoch", _c.epoch), IS_RUNNING)
_now = bind("now", _c.lease_until)
_is_stale = _c.lease_until < _now

GET = statement_of(sa.select(*COLUMNS).where(_this_fire), Fire)
#: The status, owner and epoch of a fire.
STATE: Statement[tuple[str, str, str | None, int]] = statement_of(
    sa.select(_c.id, _c.status, _c.owner, _c.epoch).where(_this_fire), tuple
)

_error = bind("schedule_error", SCHEDULES.c.error_json)
_cannot_be_planned = SCHEDULES.c.next_run_at.is_(None) & SCHEDULES.c.planned_with.is_not(None)
#: Stores a fire's error in the schedule, unless the cron has fired again since. A fire without an error does not clear
#: a "not planned" error.
TELL_SCHEDULE = statement_of(
    sa.update(SCHEDULES)
    .where(THIS_SCHEDULE, SCHEDULES.c.last_fire_id == bind("fire_id", SCHEDULES.c.last_fire_id))
    .values(error_json=sa.case((_cannot_be_planned & _error.is_(None), SCHEDULES.c.error_json), else_=_error))
)


def _fire_update(*conditions: sa.ColumnElement[bool], returning: Any, **sets: Any) -> sa.Executable:
    return sa.update(FIRES).where(*conditions).values(**sets).returning(*returning)


_until = bind("lease_expires_at", _c.lease_until)
_error_of_fire = bind("error", _c.error_json)
_end = {"lease_until": None, "finished_at": bind("at", _c.finished_at)}

HEARTBEAT: Statement[tuple[datetime]] = statement_of(
    _fire_update(*_held, returning=(LEASE_END,), lease_until=later_of(_c.lease_until, _until)), tuple
)
RELEASE = statement_of(_fire_update(*_held, returning=(_c.id,), lease_until=_until))
FINISH = statement_of(
    _fire_update(
        *_held,
        returning=COLUMNS,
        **{name: bind(name, _c[name]) for name in OUTCOME if name != "error"},
        error_json=_error_of_fire,
        **_end,
    ),
    Fire,
)


def _stale(chosen: Sequence[sa.ColumnElement[bool]]) -> sa.Select[Any]:
    running = through(sa.select(_c.id, _c.cron_name, _c.epoch, _c.attempts, _c.owner), FIRES, "ix_cron_fires_running")
    stale = running.where(IS_RUNNING, _is_stale, *chosen).order_by(_c.lease_until)
    return stale.limit(sa.bindparam("limit", type_=sa.Integer))


STALE = Filtered(_stale, None, StaleFire, cron_name=_c.cron_name.in_, target=_c.target.in_)
TAKE = statement_of(
    _fire_update(
        *_held,
        _is_stale,
        returning=CLAIM,
        epoch=_c.epoch + number(1),
        attempts=_c.attempts + number(1),
        owner=bind("owner", _c.owner),
        lease_until=_until,
    ),
    FireClaim,
)
#: The epoch grows, so that the last owner, if it comes back, is told that its claim is lost.
ABANDON = statement_of(
    _fire_update(
        *_held,
        _is_stale,
        returning=(_c.id,),
        status=constant("abandoned"),
        epoch=_c.epoch + number(1),
        error_json=_error_of_fire,
        **_end,
    )
)

#: The filter by status.
ANY_STATUS = AnyOf("status", _c.status, len(FIRE_STATUSES))


def _newest_first(name: str, *always: sa.ColumnElement[bool], by: str | None = None) -> Listing[FireSummary]:
    return Listing(
        name,
        SUMMARY,
        order=(_c.started_at, _c.id),
        filters={
            "cron_name": _c.cron_name == bind("cron_name", _c.cron_name),
            "statuses": ANY_STATUS.condition,
            "source": _c.source == bind("source", _c.source),
            "since": _c.started_at >= bind("since", _c.started_at),
        },
        always=always,
        through=by,
        row=FireSummary,
    )


LIST = _newest_first("fires")
OF_CRON = _newest_first("fires of a cron", by="ix_cron_fires_cron")
RUNNING_ALONE = ANY_STATUS.of(["running"])
#: Running fires are few, however many fires there are: this list reads them by their own index and sorts them.
RUNNING = _newest_first("fires that run", IS_RUNNING, by="ix_cron_fires_running")


def listing_of(given: Mapping[str, Any]) -> Listing[FireSummary]:
    """Return the list that reads the fewest rows for these filters."""
    if given["statuses"] == RUNNING_ALONE:
        return RUNNING
    return LIST if given["cron_name"] is None else OF_CRON


def _daily_counts(index: str, *chosen: sa.ColumnElement[bool]) -> Statement[tuple[str, str, int]]:
    day = utc_bucket(_c.started_at, number(10))
    window = _c.started_at >= bind("since", _c.started_at), _c.started_at < bind("until", _c.started_at)
    counted = sa.select(day.label("day"), _c.status, sa.func.count().label("fires")).where(*window, *chosen)
    return statement_of(through(counted, FIRES, index).group_by(day, _c.status), tuple)


#: Counts of fires by day and status, of all crons and of one. A window has two ends, as in `usage`.
BY_DAY = _daily_counts("ix_cron_fires_newest")
BY_DAY_OF_CRON = _daily_counts("ix_cron_fires_cron", _c.cron_name == bind("cron_name", _c.cron_name))
