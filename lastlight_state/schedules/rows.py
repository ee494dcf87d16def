"""The schedule's row: locked before anything is decided about the cron, override and fires included.

*Lock, then look*: claims, fires by hand and changed definitions take the row first, in a statement of its own.
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from lastlight_state.db import checks
from lastlight_state.db.statements import prepared
from lastlight_state.db.unit import Unit
from lastlight_state.schedules.records import Cron
from lastlight_state.schedules.tables import CRON_COLUMNS, SCHEDULES, THIS_SCHEDULE, WITH_OVERRIDE
from lastlight_state.schedules.words import CRON

NEW_NAMES = "cron names"
"""The lock that whoever adds a schedule holds, and whoever overrides one that is not there."""

_select = sa.select(*CRON_COLUMNS).select_from(WITH_OVERRIDE).where(THIS_SCHEDULE)
GET = prepared(_select)
LOCK = prepared(_select.with_for_update(of=SCHEDULES, key_share=True))


def find_locked(unit: Unit, name: str) -> dict[str, Any] | None:
    """The locked row with its override's columns, or None for a name without a schedule."""
    return unit.row(LOCK, {"name": name})


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
        raise checks.not_found(CRON, name)
    return row


def get(unit: Unit, name: str) -> Cron:
    """The whole cron. Raises `NotFound`."""
    found = unit.find(Cron, GET, {"name": name})
    if found is None:
        raise checks.not_found(CRON, name)
    return found
