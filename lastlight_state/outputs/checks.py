"""Checks of arguments that name runs, nodes and iterations. The checked values become parameters of statements."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, TypedDict

from lastlight_state.db import valid
from lastlight_state.db.schema.declarations import limits_of
from lastlight_state.errors import InvalidValue
from lastlight_state.outputs import models
from lastlight_state.outputs.models import HISTORY
from lastlight_state.outputs.shapes import OutputColumn
from lastlight_state.outputs.table import OutputTable
from lastlight_state.outputs.values import Content, build_content, content_of, convert_value

# Values for tables: validated by the model, or by the table's own columns if a caller-made table has no model.


def content_for(table: OutputTable[Any], value: Any) -> Content:
    """Return a value as content for the table. Raises `InvalidValue` or `PayloadTooLarge`."""
    if table.kind != "custom":
        assert table.shape is not None  # noqa: S101 - callers have asked whether it is writable
        return content_of(table.shape, value, table.max_bytes)
    if table.shape is not None:
        content = content_of(table.shape, value, table.max_bytes)
        given = {models.PAYLOAD: content.data} if table.shape.kind == "payload" else content.data
        return _by_columns(table, given)
    return _by_columns(table, {models.PAYLOAD: value} if table.is_payload else value)


def _by_columns(table: OutputTable[Any], value: Any) -> Content:
    if not isinstance(value, Mapping):
        raise InvalidValue("value", f"must be a mapping of columns, not {type(value).__name__}")
    fields = {column.field: column for column in table.domain}
    for name in value:
        if name not in fields:
            raise InvalidValue(f"value.{name}", f"the table {table.table_name!r} has no such column")
    for column in table.domain:
        _refuse_missing(table, column, value)
    data = {column.field: _value(table, column, value) for column in table.domain}
    content = build_content(table.domain, table.is_payload, data, table.max_bytes)
    row = {column.name: _parameter(table, column, data[column.field]) for column in table.domain}
    return Content(content.data, content.json, row)


def _refuse_missing(table: OutputTable[Any], column: OutputColumn, value: Mapping[Any, Any]) -> None:
    own = table.table.c[column.name]
    if not own.nullable and value.get(column.field, _default(own)) is None:
        raise InvalidValue(f"value.{column.field}", "must be given: the column is NOT NULL and has no constant default")


def _value(table: OutputTable[Any], column: OutputColumn, value: Mapping[Any, Any]) -> Any:
    given = value.get(column.field, _default(table.table.c[column.name]))
    return convert_value(f"value.{column.field}", column.type, given)


def _default(column: Any) -> Any:
    """Return the column's constant default, or None. Defaults that the database computes are not known here."""
    return column.default.arg if column.default is not None and column.default.is_scalar else None


def _parameter(table: OutputTable[Any], column: OutputColumn, value: Any) -> Any:
    """Return a value as the column's SQLAlchemy type expects it.

    For a column without time zones, return UTC without zone.
    """
    kind = table.table.c[column.name].type
    if isinstance(value, datetime) and not getattr(kind, "timezone", True):
        return value.replace(tzinfo=None)
    return value


#: Limits of the keys of output tables, which are those of their history, and of reasons, also those of inputs.
_LIMITS = limits_of(HISTORY)


class Place(TypedDict):
    """The key of a row."""

    run_id: str
    node_id: str
    iteration: int


def run_id(value: Any) -> str:
    """Check a run id for writing, and return it."""
    return valid.identifier("run_id", value, _LIMITS.run_id)


def place(run: Any, node_id: Any, iteration: Any) -> Place:
    """Check the key of a row for writing, and return it."""
    return {
        "run_id": valid.identifier("run_id", run, _LIMITS.run_id),
        "node_id": valid.identifier("node_id", node_id, _LIMITS.node_id),
        "iteration": valid.number("iteration", iteration, most=models.LAST_ITERATION),
    }


def lookup_place(run: Any, node_id: Any, iteration: Any) -> Place:
    """Check the key of a row for a lookup, and return it."""
    return {
        "run_id": valid.lookup_text("run_id", run),
        "node_id": valid.lookup_text("node_id", node_id),
        "iteration": valid.number("iteration", iteration),
    }


def reason(value: Any) -> str:
    """Check the reason of a change, and return it. Raises `InvalidValue` for a blank text."""
    text = valid.content("reason", value, _LIMITS.reason)
    if not text.strip():
        raise InvalidValue("reason", "must not be blank: say why")
    return text
