"""What stands in a row, column by column: how it is read, and how damage is named to people.

Plain SQL can put into a row what its column cannot hold. The error then says which row of which table, and which
column, whatever alias or label the statement gave them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import sqlalchemy as sa
from sqlalchemy.engine import Dialect
from sqlalchemy.sql.visitors import iterate

from lastlight_state.backends.cells import Unreadable
from lastlight_state.db import columns
from lastlight_state.db.rows import is_kept
from lastlight_state.errors import CorruptData

#: Names of columns by which people know a row where its primary key is not shown.
_NAMES = ("id", "name", "run_id", "cron_name")


class Cell(NamedTuple):
    """One column of a result: its name there, its reading, and the column of a table that it shows (None: of none)."""

    name: str
    convert: Callable[[Any], Any] | None
    types: tuple[type, ...] | None
    column: sa.Column[Any] | None

    def read(self, value: Any) -> Any:
        """The Python value of a stored one that is not NULL. Raises TypeError or what the converter raises."""
        if not is_kept(type(value), self.types):
            raise TypeError(type(value).__name__)
        return value if self.convert is None else self.convert(value)


def cell(entry: Any, dialect: Dialect) -> Cell:
    """The cell of an entry of a compiled statement's result."""
    kind = entry.type.dialect_impl(dialect)
    column = next(_columns(entry.objects), None)
    convert = kind.result_processor(dialect, None)
    types = columns.stored_types(kind)
    shape = None if column is None else column.info.get("shape")
    if shape is not None and convert is None:  # read by the driver
        types = (shape,)
    elif shape is not None:
        convert = _shaped(convert, shape)
    return Cell(entry.keyname, convert, types, column)


def damage(
    cells: Sequence[Cell], rows: Sequence[Sequence[Any]], unreadable: tuple[type[Exception], ...], statement: Any
) -> CorruptData:
    """The error that names the first value of these rows that cannot be read."""
    for row in rows:
        for at, value in zip(cells, row, strict=True):
            try:
                if value is not None:
                    at.read(value)
            except unreadable:
                table = _table(statement) if at.column is None else at.column.table.name
                return CorruptData(table, _key(cells, row, table), at.name if at.column is None else at.column.name)
    return CorruptData(_table(statement), None, "row")


def _columns(objects: Sequence[Any]) -> Iterator[sa.Column[Any]]:
    """The columns of tables that a statement shows as they are, through labels, aliases and subqueries."""
    for given in objects:
        found = given.element if isinstance(given, sa.Label) else given
        found = found.element if isinstance(found, columns.CodePoints) else found
        for base in found.base_columns if isinstance(found, sa.Column) else ():
            if isinstance(base, sa.Column):
                yield base


def _table(statement: Any) -> str:
    """The first table that a statement names."""
    return next((found.name for found in iterate(statement) if isinstance(found, sa.Table)), "row")


def _key(cells: Sequence[Cell], row: Sequence[Any], table: str) -> Any:
    """What people know a row by: its primary key as far as it is shown, else an id or name."""
    shown = [(at, str(value) if isinstance(value, Unreadable) else value) for at, value in zip(cells, row, strict=True)]
    key = [v for at, v in shown if at.column is not None and at.column.primary_key and at.column.table.name == table]
    if not key:
        key = [value for name in _NAMES for at, value in shown if at.name == name][:1]
    return key[0] if len(key) == 1 else tuple(key) or None


def _shaped(convert: Callable[[Any], Any], shape: type) -> Callable[[Any], Any]:
    """A converter of JSON that takes values of one shape, and null."""

    def read(value: Any) -> Any:
        found = convert(value)
        if found.__class__ is not shape and found is not None:
            raise TypeError(f"expected JSON of type {shape.__name__}")
        return found

    return read
