"""What a side notes about its own file: ``mailbox_meta``."""

from __future__ import annotations

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert

from lastlight_state.db.statements import Statement, bind, prepared
from lastlight_state.db.unit import Unit
from lastlight_state.mailbox import models


def _statements(table: sa.Table) -> tuple[Statement, Statement]:
    key, value = bind("key", table.c.key), bind("value", table.c.value)
    put = insert(table).values(key=key, value=value)
    return (
        prepared(sa.select(table.c.value).where(table.c.key == key)),
        prepared(put.on_conflict_do_update(index_elements=[table.c.key], set_={"value": put.excluded.value})),
    )


_OF = {models.INBOUND: _statements(models.IN_META), models.OUTBOUND: _statements(models.OUT_META)}


def find(unit: Unit, file: sa.MetaData, key: str) -> str | None:
    """The value, or None. Also where the file has no such table yet."""
    table = "mailbox_meta"
    if not unit.backend.column_names(unit.checkout, table):
        return None
    found: str | None = unit.value(_OF[file][0], {"key": key})
    return found


def put(unit: Unit, file: sa.MetaData, key: str, value: str) -> None:
    """Store the value."""
    unit.change(_OF[file][1], {"key": key, "value": value})


def number(unit: Unit, file: sa.MetaData, key: str) -> int:
    """The value as a number; 0 where there is none."""
    text = find(unit, file, key) or ""
    return int(text) if text.isascii() and text.isdigit() else 0
