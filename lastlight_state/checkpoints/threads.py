"""Helpers that find, create and lock a thread, and check its latest checkpoint."""

from __future__ import annotations

from lastlight_state.checkpoints import models, statements as sql
from lastlight_state.db import valid
from lastlight_state.db.rows.statements import Row
from lastlight_state.db.units.unit import Unit
from lastlight_state.errors import StaleVersion


def touched(unit: Unit, place: Row) -> str:
    """Create the thread if it does not exist, lock it in any case, and return its id."""
    [found] = unit.rows(sql.TOUCH, place)
    return found["id"]


def locked(unit: Unit, place: Row) -> str:
    """Lock the thread until the transaction ends, and return its id. Raises `NotFound`."""
    found = unit.row(sql.LOCK, place)
    if found is None:
        raise valid.not_found(models.THREAD, (place["scope"], place["key"]))
    return found["id"]


def refuse_stale(unit: Unit, row: Row, key: tuple[str, str, str], after: str | None) -> None:
    """Raise `StaleVersion` unless the latest checkpoint of the namespace has the id ``after``."""
    found = unit.value(sql.LATEST_ID, row)
    if found != after:
        raise StaleVersion(models.CHECKPOINT, key, expected=after, found=found)
