"""From stored rows to records."""

from __future__ import annotations

from typing import Any

from lastlight_state.errors import CorruptData
from lastlight_state.outputs.records import Output, OutputSummary, with_table
from lastlight_state.outputs.table import OutputTable
from lastlight_state.outputs.values import Content, data_of


def output(table: OutputTable[Any], row: dict[str, Any]) -> Output[Any]:
    """The record of a stored row."""
    return _made(table, row, data_of(table.columns, row, payload=table.is_payload))


def written(table: OutputTable[Any], place: dict[str, Any], content: Content, at: Any, created: Any) -> Output[Any]:
    """The record of a row that was just written."""
    times = {
        name: moment for name, moment in (("row_created_at", created), ("row_updated_at", at)) if name in table.table.c
    }
    return _made(table, {**place, **times}, content.data)


def summary(table: OutputTable[Any], row: dict[str, Any]) -> OutputSummary:
    """The record of a row without its content."""
    return OutputSummary.of(_facts(table, row))


def at_place(error: CorruptData, place: dict[str, Any]) -> CorruptData:
    """The error, which names the row."""
    return CorruptData(error.table, tuple(place.values()), error.column)


def _made(table: OutputTable[Any], row: dict[str, Any], data: Any) -> Output[Any]:
    made: Output[Any] = with_table(Output.of({**_facts(table, row), "data": data}), table)
    return made


def _facts(table: OutputTable[Any], row: dict[str, Any]) -> dict[str, Any]:
    return {
        "key": table.key,
        "table_name": table.table_name,
        "run_id": row["run_id"],
        "node_id": row["node_id"],
        "iteration": row["iteration"],
        "created_at": row.get("row_created_at"),
        "updated_at": row.get("row_updated_at"),
    }
