"""Replacing and withdrawing: what a row held goes to the history in the same unit."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from lastlight_state import codec
from lastlight_state.db.statements import Row
from lastlight_state.db.unit import Unit
from lastlight_state.errors import InvalidValue
from lastlight_state.outputs import words
from lastlight_state.outputs.catalog import registry
from lastlight_state.outputs.catalog.registry import Registered
from lastlight_state.outputs.checks import Place
from lastlight_state.outputs.records import Output
from lastlight_state.outputs.results import rows
from lastlight_state.outputs.results.statements import ARCHIVE, TableStatements, statements_of
from lastlight_state.outputs.table import OutputTable
from lastlight_state.outputs.values import Content, json_of


def replaced(unit: Unit, table: OutputTable[Any], place: Place, content: Content, at: datetime) -> Output[Any] | None:
    """Write the content into the row and return the row; equal content changes nothing. None if there is no row."""
    wide, old = _locked(unit, table, place)
    if old is None:
        return None
    kept = json_of(wide.columns, old)
    if codec.canonical(kept) == codec.canonical({**_unknown(wide, table), **_known(table, content)}):
        return rows.output(table, old)
    _archive(unit, table, place, old, kept, cause=words.REPLACED, reason=None, at=at)
    unit.change(wide.replace, parameters(place, content, at))
    return rows.written(table, place, content, at, old.get("row_created_at"))


def withdrawn(unit: Unit, table: OutputTable[Any], place: Place, reason: str, at: datetime) -> Output[Any] | None:
    """Return the row, which is now in the history alone. None without a row."""
    wide, old = _locked(unit, table, place)
    if old is None:
        return None
    _archive(unit, table, place, old, json_of(wide.columns, old), cause=words.WITHDRAWN, reason=reason, at=at)
    unit.change(wide.delete, place)
    return rows.output(table, old)


def parameters(place: Place, content: Content, at: datetime) -> Row:
    """Return the parameters of an insert or a replacement."""
    return {**place, **{f"v_{name}": value for name, value in content.row.items()}, "at": at}


def _locked(unit: Unit, table: OutputTable[Any], place: Place) -> tuple[TableStatements, Row | None]:
    """Return the row with every column that it has now, and statements that know them all.

    The registry is looked at under the row's lock, which keeps others from adding columns; before, one could be added
    and filled in between, and its value would be neither kept nor replaced.
    """
    old = unit.row(statements_of(table).lock, place)
    if old is None:
        return statements_of(table), None
    wide = _as_registered(unit, table)
    return wide, old if wide.columns == table.columns else unit.row(wide.lock, place)


def _as_registered(unit: Unit, table: OutputTable[Any]) -> TableStatements:
    """The statements with the columns that other processes have added since this one defined the table."""
    known = {column.name for column in table.columns}
    found = unit.find(Registered.of, registry.FIND, {"name": table.table_name})
    extra = () if found is None else tuple(column for column in found.columns if column.name not in known)
    return TableStatements(table, extra) if extra else statements_of(table)


def _known(table: OutputTable[Any], content: Content) -> Row:
    return {words.PAYLOAD: content.json} if table.is_payload else content.json


def _unknown(wide: TableStatements, table: OutputTable[Any]) -> Row:
    """Return what this process would write into the columns that it does not know."""
    return {str(column.field): None for column in wide.columns if column.field and column not in table.columns}


def _archive(
    unit: Unit,
    table: OutputTable[Any],
    place: Place,
    old: Row,
    value: Row,
    *,
    cause: words.Cause,
    reason: str | None,
    at: datetime,
) -> None:
    stored = value[words.PAYLOAD] if table.is_payload and len(value) == 1 else value
    unit.change(
        ARCHIVE,
        {
            "run_id": place["run_id"],
            "node_id": place["node_id"],
            "iteration": old["iteration"],
            "table_name": table.table_name,
            "signature": table.signature,
            "cause": cause,
            "reason": reason,
            "written_at": old.get("row_updated_at") or at,
            "removed_at": at,
            "value": _text(stored),
        },
    )


def _text(stored: Any) -> str:
    """The JSON of a row that goes, also of one with values of another program that no JSON of ours may have."""
    try:
        return codec.encode_bytes("value", stored, max_depth=words.ROW_DEPTH + 1).decode()
    except InvalidValue:
        return codec.encode_sound(stored).decode()
