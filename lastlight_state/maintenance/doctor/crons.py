"""What the checks look for in schedules: overrides of nobody, crons that nobody polls, without a plan, or that fail."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import sqlalchemy as sa

from lastlight_state.db.statements import bind, number, prepared
from lastlight_state.maintenance.doctor.check import MOST, Fault, Look, Snapshot, found
from lastlight_state.maintenance.doctor.records import Finding
from lastlight_state.schedules.crons.statements import IS_ON
from lastlight_state.schedules.fires.health import health
from lastlight_state.schedules.tables import FIRES, IS_RUNNING, NEXT_RUN_AT, OVERRIDES, SCHEDULES, WITH_OVERRIDE

ORPHANS, STUCK = "DOC-08", "DOC-15"

#: How long a cron may be due before it is said that nobody polls.
_LATE = timedelta(hours=1)
#: How many fires in a row fail before it is said.
_STREAK = 3
#: For how many crons the health is asked at a time.
_PIECE = 200


def _nowhere(named: sa.Column[str]) -> sa.ColumnElement[bool]:
    return sa.not_(sa.exists(sa.select(number(1)).where(named == OVERRIDES.c.name)))


#: Crons may be kept elsewhere: then the fires tell their names.
UNKNOWN = Fault(
    ORPHANS,
    "info",
    OVERRIDES,
    "no schedule has this name, and no cron of this name has fired",
    sa.select(OVERRIDES.c.name).where(_nowhere(SCHEDULES.c.name), _nowhere(FIRES.c.cron_name)),
)

STUCKS = (
    Fault(
        STUCK,
        "warning",
        FIRES,
        "running, and its lease is over: a scheduler takes it with `fires.take_stale`",
        sa.select(FIRES.c.id).where(IS_RUNNING, FIRES.c.lease_until < bind("now", FIRES.c.lease_until)),
    ),
    Fault(
        STUCK,
        "warning",
        SCHEDULES,
        "switched on, and cannot be planned: its error says why",
        sa.select(SCHEDULES.c.name)
        .select_from(WITH_OVERRIDE)
        .where(IS_ON, SCHEDULES.c.next_run_at.is_(None), SCHEDULES.c.planned_with.is_not(None)),
    ),
)

_OVERDUE = Fault(
    STUCK,
    "warning",
    SCHEDULES,
    "due for more than an hour: does a scheduler poll with `crons.take_due`?",
    sa.select(SCHEDULES.c.name)
    .select_from(WITH_OVERRIDE)
    .where(IS_ON, bind("now", SCHEDULES.c.next_run_at) > NEXT_RUN_AT),
)
_NAMES = prepared(
    sa.select(SCHEDULES.c.name)
    .select_from(WITH_OVERRIDE)
    .where(IS_ON, SCHEDULES.c.error_json.is_not(None))
    .order_by(SCHEDULES.c.name)
    .limit(number(MOST))
)


def stuck(look: Look, snapshot: Snapshot) -> Iterator[Finding]:
    """Crons that have been due for long, and those that fail again and again."""
    if not {SCHEDULES.name, OVERRIDES.name, FIRES.name} <= snapshot.tables:
        return
    yield from _OVERDUE.look(Look(look.backend, look.settings, look.now - _LATE, look.deep), snapshot)
    names = [row["name"] for row in snapshot.unit.rows(_NAMES)]
    failing = []
    for at in range(0, len(names), _PIECE):
        told = health(snapshot.unit, names[at : at + _PIECE])
        failing += [name for name, one in told.items() if one.failure_streak >= _STREAK]
    if failing:
        yield found(STUCK, "warning", str(SCHEDULES.name), f"the last {_STREAK} fires or more have failed", failing)
