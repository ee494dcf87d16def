"""The schedule's row: locked before anything is decided about the cron, override and fires included.

*Lock, then look*: claims, fires by hand and changed definitions take the row first, in a statement of its own. One
that locks and joins the override at once would, after a wait, find the new row beside the override as it was before.
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from lastlight_state.db import valid
from lastlight_state.db.statements import prepared
from lastlight_state.db.unit import Unit
from lastlight_state.schedules.records import Cron
from lastlight_state.schedules.tables import CRON_COLUMNS, SCHEDULES, THIS_SCHEDULE, WITH_OVERRIDE
from lastlight_state.schedules.words import CRON

#: The lock that whoever adds a schedule holds, and whoever overrides one that is not there.
NEW_NAMES = "cron names"

GET = prepared(sa.select(*CRON_COLUMNS).select_from(WITH_OVERRIDE).where(THIS_SCHEDULE))
LOCK = prepared(sa.select(SCHEDULES.c.name).where(THIS_SCHEDULE).with_for_update(key_share=True))


def find_locked(unit: Unit, name: str) -> dict[str, Any] | None:
    """The locked row with its override's columns, or None for a name without a schedule."""
    locked = unit.row(LOCK, {"name": name})
    return None if locked is None else unit.row(GET, locked)


def find_or_reserve(unit: Unit, name: str) -> dict[str, Any] | None:
    """Like `find_locked`; after None, no other unit adds a schedule or overrides a missing one until this one ends."""
    row = find_locked(unit, name)
    if row is None:
        unit.named_lock(NEW_NAMES)
        row = find_locked(unit, name)
    return row


def lock(unit: Unit, name: str) -> dict[str, Any]:
    """The locked row with its override's columns. Raises `NotFound`."""
    row = find_locked(unit, name)
    if row is None:
        raise valid.not_found(CRON, name)
    return row


def get(unit: Unit, name: str) -> Cron:
    """The whole cron. Raises `NotFound`."""
    found = unit.find(Cron, GET, {"name": name})
    if found is None:
        raise valid.not_found(CRON, name)
    return found
