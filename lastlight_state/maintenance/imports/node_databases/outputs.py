"""What tasks produced, as rows of output tables that are defined here: their columns say of which type a value is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from lastlight_state.db.unit import Unit
from lastlight_state.errors import InvalidValue
from lastlight_state.maintenance.imports import cells
from lastlight_state.maintenance.imports.cells import Check, Row
from lastlight_state.maintenance.imports.row_pieces import Growth
from lastlight_state.outputs import words
from lastlight_state.outputs.catalog.registry import ALL, Registered
from lastlight_state.outputs.shapes import OutputColumn

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
    """Those of these tables that are defined here with all columns that their rows have."""
    known = {one.table_name: one for one in view.all(Registered, ALL)} if any(outputs.values()) else {}
    return {name: known[name] for name, rows in outputs.items() if rows and name in known and _fits(known[name], rows)}


def made(table: Registered, rows: Sequence[Row], run: Mapping[str, Any]) -> list[Row]:
    """The rows as the table has them. Raises `InvalidValue` for what it cannot hold. They are as old as their run."""
    return [_row(table, row, run) for row in rows]


def _fits(table: Registered, rows: Sequence[Row]) -> bool:
    names = {column.name for column in table.columns}
    is_known = all(column.type in _CHECKS for column in table.columns if column.name not in words.BOOKKEEPING)
    return table.kind != "custom" and is_known and set(_KEY) <= rows[0].keys() <= names


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
    check = cells.name(words.ID) if column.name in _KEY[:2] else _CHECKS[column.type]
    return check(where, value)
