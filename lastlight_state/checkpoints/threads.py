"""Helpers that find, create and lock a thread, and that check its latest checkpoint."""

from __future__ import annotations

from lastlight_state.checkpoints import models, statements as sql
from lastlight_state.db import valid
from lastlight_state.db.rows.statements import Row
from lastlight_state.db.units.unit import Unit
from lastlight_state.errors import StaleVersion


def touch_thread(unit: Unit, place: Row) -> str:
    """Return the id of the thread, made if it is new and locked in any case."""
    thread_id: str = unit.value(sql.TOUCH, place)
    return thread_id


def lock_thread(unit: Unit, place: Row) -> str:
    """Return the id of the thread, and lock it until the unit ends. Raises `NotFound`."""
    thread_id: str | None = unit.value(sql.LOCK, place)
    if thread_id is None:
        raise valid.not_found(models.THREAD, (place["scope"], place["key"]))
    return thread_id


def refuse_stale(unit: Unit, row: Row, key: tuple[str, str, str], after: str | None) -> None:
    """Raise `StaleVersion` unless ``after`` is the id of the latest checkpoint of the namespace."""
    found = unit.value(sql.LATEST_ID, row)
    if found != after:
        raise StaleVersion(models.CHECKPOINT, key, expected=after, found=found)
