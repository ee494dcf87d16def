"""What tasks produced, as rows of output tables that are defined here: their columns say of which type a value is.

A table for objects of any form, as ``define(name, dict)`` makes it, takes every row, its values as they are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import sqlalchemy as sa

from lastlight_state import codec
from lastlight_state.db.declarations import limits_of
from lastlight_state.db.statements import bind, prepared
from lastlight_state.db.unit import Unit
from lastlight_state.errors import InvalidValue
from lastlight_state.maintenance.imports import cells
from lastlight_state.maintenance.imports.cells import Check, Row
from lastlight_state.maintenance.imports.row_pieces import Growth
from lastlight_state.outputs import words
from lastlight_state.outputs.catalog.registry import ALL, Registered
from lastlight_state.outputs.shapes import OutputColumn
from lastlight_state.outputs.tables import HISTORY, REGISTRY

_MOST = limits_of(HISTORY)

_SCHEMA = prepared(
    sa.select(REGISTRY.c.json_schema).where(REGISTRY.c.table_name == bind("name", REGISTRY.c.table_name))
)

#: The rows of a run as they stand in the source, by output table.
Outputs = Mapping[str, Sequence[Row]]
#: What is stored of a task stays: a change of it is a call of `results`, which keeps what was there.
STAYS = Growth(lambda _stored, _row: False, frozenset(), ())

_KEY, _TIMES = words.BOOKKEEPING[:3], words.BOOKKEEPING[3:]
#: How a value of the source is read, by the type of the column. Tables with other types stay as they are.
_CHECKS: dict[str, Check] = {
    "text": cells.text(words.ROW),
    "integer": cells.whole,
    "real": cells.real,
    "boolean": cells.flag,
    "json": cells.json(words.ROW),
}


def fitting(view: Unit, outputs: Outputs) -> dict[str, Registered]:
    """Return those of these tables that are defined here with all columns that their rows have, or for any object."""
    known = {one.table_name: one for one in view.all(Registered.of, ALL)} if any(outputs.values()) else {}
    there = {name: known[name] for name, rows in outputs.items() if rows and name in known}
    return {name: table for name, table in there.items() if _fits(table, outputs[name]) or _is_open(view, table)}


def made(table: Registered, rows: Sequence[Row], run: Mapping[str, Any]) -> list[Row]:
    """The rows as the table has them. Raises `InvalidValue` for what it cannot hold. They are as old as their run."""
    if not _fits(table, rows):
        rows = [_whole(table, row) for row in rows]
    return [_row(table, row, run) for row in rows]


def _whole(table: Registered, row: Row) -> Row:
    """The row with all columns but its key in one object."""
    told = {name: value for name, value in row.items() if name not in _KEY}
    data = codec.encode(f"{table.table_name} {row['node_id']!s:.80}", told, max_bytes=words.ROW)
    return {**{name: row[name] for name in _KEY}, words.PAYLOAD: data}


def _fits(table: Registered, rows: Sequence[Row]) -> bool:
    names = {column.name for column in table.columns}
    is_known = all(column.type in _CHECKS for column in table.columns if column.name not in words.BOOKKEEPING)
    return table.kind != "custom" and is_known and set(_KEY) <= rows[0].keys() <= names


def _is_open(view: Unit, table: Registered) -> bool:
    """Whether a table takes objects with any fields."""
    if table.kind != "payload":
        return False
    schema = view.value(_SCHEMA, {"name": table.table_name})
    return isinstance(schema, dict) and schema.get("type") == "object" and not schema.get("properties")


def _row(table: Registered, row: Row, run: Mapping[str, Any]) -> Row:
    where = f"{table.table_name} {row['node_id']!s:.80}"
    columns = [column for column in table.columns if column.name not in _TIMES]
    values = {column.name: _value(f"{where}.{column.name}", column, row.get(column.name)) for column in columns}
    return {**values, **dict.fromkeys(_TIMES, run["updated_at"])}


def _value(where: str, column: OutputColumn, value: Any) -> Any:
    if value is None and column.nullable:
        return None
    if value is None:
        raise InvalidValue(where, "must not be NULL")
    check = cells.name(_MOST.node_id) if column.name in _KEY[:2] else _CHECKS[column.type]
    return check(where, value)
