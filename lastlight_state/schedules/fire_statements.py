"""The statements of `fires`. A write through a claim has its fence among its conditions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import zip_longest
from typing import Any

import sqlalchemy as sa

from lastlight_state.db.base import later_of
from lastlight_state.db.indexes import through
from lastlight_state.db.listing import Listing
from lastlight_state.db.statements import Statement, constant, prepared
from lastlight_state.schedules.fire_rows import CLAIM
from lastlight_state.schedules.tables import FIRES, IS_RUNNING, ONE, SCHEDULES, THIS_SCHEDULE, bind
from lastlight_state.schedules.words import FIRE_STATUSES

_c = FIRES.c
COLUMNS = tuple(_c)
SUMMARY = tuple(column for column in COLUMNS if column.name not in ("payload", "error_json"))
COUNTS = ("eligible", "scanned", "discovered", "dispatched", "failures")
OUTCOME = ("status", *COUNTS, "note", "error_json")
"""The columns that an outcome fills."""

_this_fire = _c.id == bind("fire_id", _c.id)
_held = (_this_fire, _c.epoch == bind("epoch", _c.epoch), IS_RUNNING)
_now = bind("now", _c.lease_until)
_is_stale = _c.lease_until < _now

GET = prepared(sa.select(*COLUMNS).where(_this_fire))
STATE = prepared(sa.select(_c.id, _c.status, _c.owner, _c.epoch).where(_this_fire))

_error = bind("schedule_error", SCHEDULES.c.error_json)
_cannot_be_planned = SCHEDULES.c.next_run_at.is_(None) & SCHEDULES.c.planned_with.is_not(None)
TELL_SCHEDULE = prepared(
    sa.update(SCHEDULES)
    .where(THIS_SCHEDULE, SCHEDULES.c.last_fire_id == bind("fire_id", SCHEDULES.c.last_fire_id))
    .values(error_json=sa.case((_cannot_be_planned & _error.is_(None), SCHEDULES.c.error_json), else_=_error))
)
"""What a fire left behind, unless another one has been fired since. No error takes back none about the plan."""


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
ABANDON = _changing(
    *_held,
    _is_stale,
    returning=(_c.id,),
    status=constant("abandoned"),
    epoch=_c.epoch + ONE,
    error_json=bind("error_json", _c.error_json),
    **_end,
)
"""The epoch grows, so that the last owner, should it come back, learns that its claim is lost."""

ANY_STATUS = tuple(f"status_{i}" for i in range(len(FIRE_STATUSES)))
"""The parameters of the filter by status."""


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
RUNNING = _newest_first("fires that run", IS_RUNNING, by="ix_cron_fires_lease")
"""Those that run are few, whatever the ledger's size: sorting them beats looking for them."""


def listing_of(given: Mapping[str, Any]) -> Listing:
    """The list that reads the fewest rows for these filters."""
    if given["statuses"] == RUNNING_ALONE:
        return RUNNING
    return LIST if given["cron_name"] is None else OF_CRON
