"""The schedule's row, which is locked before anything is decided about the cron, its override or its fires.

*Lock, then look*: the row is locked by a statement of its own, and read by the next. A statement that locks the row and
joins the override at once would, after waiting for the lock on Postgres, return the new row beside the old override.
"""

from __future__ import annotations

import sqlalchemy as sa

from lastlight_state.db import valid
from lastlight_state.db.statements import prepared
from lastlight_state.db.unit import Unit
from lastlight_state.schedules.records import Cron, CronRow
from lastlight_state.schedules.tables import CRON_COLUMNS, SCHEDULES, THIS_SCHEDULE, WITH_OVERRIDE
from lastlight_state.schedules.words import CRON

#: Named lock held while a schedule is added, or a name without a schedule is overridden.
NEW_NAMES = "cron names"

GET = prepared(sa.select(*CRON_COLUMNS).select_from(WITH_OVERRIDE).where(THIS_SCHEDULE), CronRow)
LOCK = prepared(sa.select(SCHEDULES.c.name).where(THIS_SCHEDULE).with_for_update(key_share=True))


def find_locked(unit: Unit, name: str) -> CronRow | None:
    """Return the locked row with its override's columns, or None for a name without a schedule."""
    locked = unit.row(LOCK, {"name": name})
    return None if locked is None else unit.row(GET, locked)


def find_or_reserve(unit: Unit, name: str) -> CronRow | None:
    """Return the row as `find_locked`.

    After None, no other unit adds a schedule or overrides a missing one until this unit ends.
    """
    row = find_locked(unit, name)
    if row is None:
        unit.named_lock(NEW_NAMES)
        row = find_locked(unit, name)
    return row


def lock(unit: Unit, name: str) -> CronRow:
    """Return the locked row with its override's columns. Raises `NotFound`."""
    row = find_locked(unit, name)
    if row is None:
        raise valid.not_found(CRON, name)
    return row


def get(unit: Unit, name: str) -> Cron:
    """The whole cron. Raises `NotFound`."""
    found = unit.find(Cron.of, GET, {"name": name})
    if found is None:
        raise valid.not_found(CRON, name)
    return found
