"""Converts the inputs of a run to revisions, and the outputs of tasks to rows of output tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import sqlalchemy as sa

from lastlight_state import codec
from lastlight_state.db.rows.statements import bind, statement_of
from lastlight_state.db.schema.declarations import limits_of
from lastlight_state.db.units.unit import Unit
from lastlight_state.errors import InvalidValue
from lastlight_state.maintenance.imports import cells
from lastlight_state.maintenance.imports.cells import Check, Row
from lastlight_state.maintenance.imports.node_databases.source_rows import SourceRow, Terms
from lastlight_state.maintenance.imports.row_pieces import Growth
from lastlight_state.outputs import inputs, models
from lastlight_state.outputs.catalog.definitions import ALL, Registered
from lastlight_state.outputs.models import HISTORY, INPUTS, REGISTRY
from lastlight_state.outputs.shapes import OutputColumn

# Outputs of tasks become rows of output tables that are defined here. Their columns tell the types of values. A table
# for any object, as ``define(name, dict)`` makes it, takes every row with its values unchanged.

_OUTPUT_MOST = limits_of(HISTORY)

_SCHEMA = statement_of(
    sa.select(REGISTRY.c.json_schema).where(REGISTRY.c.table_name == bind("name", REGISTRY.c.table_name))
)

#: The rows of a run as the source has them, by output table.
Outputs = Mapping[str, Sequence[Row]]
#: The rule for stored outputs: they never change. Only a call of `results` changes one, and keeps the old row.
STAYS = Growth(lambda _stored, _row: False, frozenset(), ())

_KEY, _TIMES = models.BOOKKEEPING[:3], models.BOOKKEEPING[3:]
#: The checks of values by the type of their column. Tables with other types are not imported.
_CHECKS: dict[str, Check] = {
    "text": cells.text(models.ROW),
    "integer": cells.whole,
    "real": cells.real,
    "boolean": cells.flag,
    "json": cells.json(models.ROW),
}


def fitting_tables(view: Unit, outputs: Outputs) -> dict[str, Registered]:
    """Return the output tables that can store their rows.

    Such a table is defined in the store with all columns of its rows, or accepts any object.
    """
    known = {one.table_name: one for one in view.rows(ALL)} if any(outputs.values()) else {}
    there = {name: known[name] for name, rows in outputs.items() if rows and name in known}
    return {name: table for name, table in there.items() if _fits(table, outputs[name]) or _is_open(view, table)}


def convert_rows(table: Registered, rows: Sequence[Row], run: Mapping[str, Any]) -> list[Row]:
    """Convert rows to the form of the table, with the times of their run.

    Raises `InvalidValue` for a value that the table cannot store.
    """
    if not _fits(table, rows):
        rows = [_whole(table, row) for row in rows]
    return [_row(table, row, run) for row in rows]


def _whole(table: Registered, row: Row) -> Row:
    """Return the row with all columns except its key combined into one object."""
    told = {name: value for name, value in row.items() if name not in _KEY}
    data = codec.encode(f"{table.table_name} {row['node_id']!s:.80}", told, max_bytes=models.ROW)
    return {**{name: row[name] for name in _KEY}, models.PAYLOAD: data}


def _fits(table: Registered, rows: Sequence[Row]) -> bool:
    names = {column.name for column in table.columns}
    is_known = all(column.type in _CHECKS for column in table.columns if column.name not in models.BOOKKEEPING)
    return table.kind != "custom" and is_known and set(_KEY) <= rows[0].keys() <= names


def _is_open(view: Unit, table: Registered) -> bool:
    """True if a table accepts objects with any fields."""
    if table.kind != "payload":
        return False
    schema = view.value(_SCHEMA, {"name": table.table_name})
    return isinstance(schema, dict) and schema.get("type") == "object" and not schema.get("properties")


def _row(table: Registered, row: Row, run: Mapping[str, Any]) -> Row:
    where = f"{table.table_name} {row['node_id']!s:.80}"
    columns = [column for column in table.columns if column.name not in _TIMES]
    values = {column.name: _output_value(f"{where}.{column.name}", column, row.get(column.name)) for column in columns}
    return {**values, **dict.fromkeys(_TIMES, run["updated_at"])}


def _output_value(where: str, column: OutputColumn, value: Any) -> Any:
    if value is None and column.nullable:
        return None
    if value is None:
        raise InvalidValue(where, "must not be NULL")
    check = cells.name(_OUTPUT_MOST.node_id) if column.name in _KEY[:2] else _CHECKS[column.type]
    return check(where, value)


_LIMITS = limits_of(INPUTS)

#: The table of the inputs, with the run as its key.
TABLE = "input"
#: The table that may have the input of a run as it was passed, and the condition that finds its first row.
SNAPSHOTS = "_smithers_snapshots"
FIRST_SNAPSHOT = "WHERE run_id = ? AND input_json <> '' ORDER BY frame_no LIMIT 1"
_PAYLOAD = "payload"


def revision(terms: Terms, run: Row, row: Row, snapshots: Sequence[Row]) -> Row:
    """Return revision 0 of the run's input. A NULL payload means that the run has no input.

    Typed columns lose the form in which values were passed. If a snapshot has the same values, that form is taken from
    it.
    """
    found = SourceRow(terms, TABLE, row, "run_id")
    payload = _of_one_column(found)
    is_typed = set(row) != {"run_id", _PAYLOAD}
    if is_typed:
        payload = _snapshot_payload(payload | _of_columns(row), snapshots)
    codec.encode(f"input {run['id']:.80}", payload, max_bytes=_LIMITS.payload)
    return {
        "run_id": run["id"],
        "revision": 0,
        "created_at": run["started_at"],
        "created_by": None,
        "reason": inputs.REASON if is_typed else None,
        "payload": payload,
        "given": None,
    }


def _of_one_column(found: SourceRow) -> Row:
    payload = found.json(_PAYLOAD, _LIMITS.payload)
    if payload is not None and not isinstance(payload, dict):
        raise InvalidValue(f"input.{_PAYLOAD}", f"must be an object, not {type(payload).__name__}")
    return payload or {}


def _of_columns(row: Row) -> Row:
    """Return the values of typed columns. A NULL stays null."""
    return {name: _value(value) for name, value in row.items() if name not in ("run_id", _PAYLOAD)}


def _value(value: Any) -> Any:
    """Return the decoded value of a text that holds a JSON list or object, and any other value unchanged."""
    if isinstance(value, str) and value[:1] in ("{", "["):
        try:
            return codec.decode(value)
        except ValueError:
            return value
    return value


def _snapshot_payload(payload: Row, snapshots: Sequence[Row]) -> Row:
    """Return the payload of a snapshot whose values equal those of the columns.

    If there is none, return ``payload``.
    """
    for snapshot in snapshots:
        told = _value(snapshot["input_json"])
        if isinstance(told, dict) and inputs.folded_values(told) == inputs.folded_values(payload):
            return told
    return payload
