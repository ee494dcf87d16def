"""From stored rows to records."""

from __future__ import annotations

from typing import Any

from lastlight_state.db.records import made
from lastlight_state.db.statements import Row, Values
from lastlight_state.errors import CorruptData
from lastlight_state.outputs import words
from lastlight_state.outputs.checks import Place
from lastlight_state.outputs.records import Output, OutputSummary
from lastlight_state.outputs.table import OutputTable
from lastlight_state.outputs.values import Content, in_utc


def output(table: OutputTable[Any], row: Row) -> Output[Any]:
    """Return the record of a stored row."""
    if table.is_payload:
        data = row[words.PAYLOAD]
    elif table.kind == "custom":
        data = {field: in_utc(row[name]) for field, name in table.names}
    else:
        data = {field: row[name] for field, name in table.names}
    return _made(table, row, data, row.get("row_created_at"), row.get("row_updated_at"))


def written(table: OutputTable[Any], place: Place, content: Content, at: Any, created: Any) -> Output[Any]:
    """Return the record of a row that was just written."""
    has_created, has_updated = table.has_times
    return _made(table, place, content.data, created if has_created else None, at if has_updated else None)


def summary(table: OutputTable[Any], row: Row) -> OutputSummary:
    """Return the record of a row without its content."""
    facts = {
        "key": table.key,
        "table_name": table.table_name,
        "run_id": row["run_id"],
        "node_id": row["node_id"],
        "iteration": row["iteration"],
        "created_at": row.get("row_created_at"),
        "updated_at": row.get("row_updated_at"),
    }
    return made(OutputSummary, facts)


def at_place(error: CorruptData, place: Values) -> CorruptData:
    """Return the error, which names the row by its place, or else by what was sought."""
    key = error.key if isinstance(error.key, tuple) else tuple(place.values())
    return CorruptData(error.table, key, error.column)


def _made(table: OutputTable[Any], row: Values, data: Any, created: Any, updated: Any) -> Output[Any]:
    facts = {
        "key": table.key,
        "table_name": table.table_name,
        "run_id": row["run_id"],
        "node_id": row["node_id"],
        "iteration": row["iteration"],
        "created_at": created,
        "updated_at": updated,
        "data": data,
    }
    return made(Output, facts, {"table": table})
