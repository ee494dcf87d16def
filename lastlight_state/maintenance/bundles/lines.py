"""Rows as lines of JSON, the same on every database, and back.

A message's class is written by its name: each database numbers the classes itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal
from typing import Any

import sqlalchemy as sa

from lastlight_state import codec
from lastlight_state.conversations.tables import MESSAGES
from lastlight_state.db import columns
from lastlight_state.maintenance.copy.contents import canonical
from lastlight_state.maintenance.copy.subjects import DEPTHS, is_json

Row = dict[str, Any]

#: The column whose numbers are the database's own.
CLASS = MESSAGES.c.lion_class

_READ: tuple[tuple[type, type, Callable[[Any], Any]], ...] = (
    (columns.UtcTimestamp, str, columns.parse_time),
    (sa.LargeBinary, str, bytes.fromhex),
    (columns.RawBytes, str, bytes.fromhex),
    (columns.ExactNumeric, str, Decimal),
    (columns.Float64, object, float),
    (sa.Integer, int, lambda number: number),
    (sa.Text, str, str),
)


def line_of(row: Row) -> bytes:
    """Return the line of a row. A decimal is written with all its digits, ``19.90`` too."""
    return canonical({name: _digits(value) for name, value in row.items()}) + b"\n"


def row_of(table: sa.Table, line: bytes) -> Row:
    """The row of a line. Raises ValueError for what is no row of the table."""
    row = codec.decode(line)
    if not isinstance(row, dict) or not row:
        raise ValueError("expected an object")
    if unknown := sorted(row.keys() - set(table.columns.keys())):
        raise ValueError(f"unknown column {unknown[0]!r:.80}")
    if lacking := [name for name in _needed(table) if row.get(name) is None]:
        raise ValueError(f"lacks the column {lacking[0]}")
    try:
        canonical(row)  # as it is compared with what is stored
    except (TypeError, RecursionError) as error:
        raise ValueError("nested too deeply") from error
    return {name: _value(table.c[name], value) for name, value in row.items()}


def refuse_nulls(table: sa.Table, row: Row) -> None:
    """Raise ValueError for a row without a value that its table must have. In a column of JSON, null is a value."""
    for column in table.columns:
        name = column.name
        has_value = row[name] is not None or is_json(column) if name in row else column.server_default is not None
        if not (column.nullable or has_value):
            raise ValueError(f"lacks the column {name}")


def _needed(table: sa.Table) -> Iterator[str]:
    """The columns without which a row can neither be found nor be put in order, or a message not be read."""
    yield from (column.name for column in table.primary_key)
    if table.name in DEPTHS:
        yield DEPTHS[table.name]
    if table is MESSAGES:
        yield CLASS.name


def _value(column: sa.Column[Any], value: Any) -> Any:
    if value is None:
        return value
    if column is CLASS:
        return _read(column.name, value, str, str)
    for kind, written, read in _READ:
        if isinstance(column.type, kind):
            return _read(column.name, value, written, read)
    if not _has_shape(column, value):
        raise ValueError(f"{column.name}: JSON of another shape")
    return value


def _has_shape(column: sa.Column[Any], value: Any) -> bool:
    """Whether the JSON is an object, or a list, where the column holds nothing else."""
    return isinstance(value, column.info.get("shape", object))


def _read(name: str, value: Any, written: type, read: Callable[[Any], Any]) -> Any:
    if not isinstance(value, written) or (read is float and type(value) not in (int, float)) or _is_odd(value, written):
        raise ValueError(f"{name}: a value of another type")
    try:
        return read(value)
    except (ValueError, ArithmeticError) as error:
        raise ValueError(f"{name}: not such a value") from error


def _is_odd(value: Any, written: type) -> bool:
    """Whether a number is none that a database stores: a bool, or beyond 64 bits."""
    return written is int and (isinstance(value, bool) or not -(2**63) <= value < 2**63)


def _digits(value: Any) -> Any:
    return format(value, "f") if value.__class__ is Decimal else value


def named(rows: list[Row], names: Mapping[Any, Any]) -> list[Row]:
    """The rows with their classes by name instead of by number, or the other way round."""
    return [{**row, CLASS.name: names[row[CLASS.name]]} for row in rows]
