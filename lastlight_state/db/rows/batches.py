"""The parameters of many rows of one statement, checked and converted column by column.

The rules are those of `parameters`. To look at the columns takes half the time of looking at row after row, because
the loops are the interpreter's own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from operator import itemgetter
from typing import Any, NamedTuple

import sqlalchemy as sa
from sqlalchemy.engine import Dialect
from sqlalchemy.sql.visitors import iterate
from sqlalchemy.types import TypeEngine

from lastlight_state.backends.facts import Unreadable
from lastlight_state.db.rows.parameters import LEAST, MOST, Convert, is_kept, refuse, rule
from lastlight_state.db.schema import columns
from lastlight_state.db.schema.sealing import Sealing
from lastlight_state.errors import CorruptData, InvalidValue

# What stands in a row, column by column: how it is read, and how damage is named to people.
#
# Plain SQL can put into a row what its column cannot hold. The error then says which row of which table, and which
# column, whatever alias or label the statement gave them.

#: Names of columns by which people know a row where its primary key is not shown.
_NAMES = ("id", "name", "run_id", "cron_name")


class Cell(NamedTuple):
    """One column of a result: its name there, its reading, and the column of a table that it shows (None: of none)."""

    name: str
    convert: Callable[[Any], Any] | None
    types: tuple[type, ...] | None
    column: sa.Column[Any] | None

    def read(self, value: Any) -> Any:
        """Return the Python value of a stored one that is not NULL. Raises TypeError or what the converter raises."""
        if not is_kept(type(value), self.types):
            raise TypeError(type(value).__name__)
        return value if self.convert is None else self.convert(value)


def cell(entry: Any, dialect: Dialect, sealed: Sealing | None = None) -> Cell:
    """Return the cell of an entry of a compiled statement's result, whose values may be sealed."""
    kind = entry.type.dialect_impl(dialect)
    column = next(_columns(entry.objects), None)
    convert = (sealed and sealed.reading(kind)) or kind.result_processor(dialect, None)
    types = columns.stored_types(kind)
    shape = None if column is None else column.info.get("shape")
    if shape is not None and convert is None:  # read by the driver
        types = (shape,)
    elif shape is not None:
        convert = _shaped(convert, shape)
    return Cell(entry.keyname, convert, types, column)


def damage(
    cells: Sequence[Cell], rows: Sequence[Sequence[Any]], unreadable: tuple[type[Exception], ...], of_table: str
) -> CorruptData:
    """Return the error that names the first value of these rows that cannot be read."""
    for row in rows:
        for at, value in zip(cells, row, strict=True):
            try:
                if value is not None:
                    at.read(value)
            except unreadable:
                table = of_table if at.column is None else at.column.table.name
                return CorruptData(table, _key(cells, row, table), at.name if at.column is None else at.column.name)
    return CorruptData(of_table, None, "row")


def _columns(objects: Sequence[Any]) -> Iterator[sa.Column[Any]]:
    """Yield the columns of tables that a statement shows as they are, through labels, aliases and subqueries."""
    for given in objects:
        found = given.element if isinstance(given, sa.Label) else given
        found = found.element if isinstance(found, columns.CodePoints) else found
        for base in found.base_columns if isinstance(found, sa.Column) else ():
            if isinstance(base, sa.Column):
                yield base


def table_of(statement: Any) -> str:
    """Return the first table that a statement names."""
    return next((found.name for found in iterate(statement) if isinstance(found, sa.Table)), "row")


def _key(cells: Sequence[Cell], row: Sequence[Any], table: str) -> Any:
    """Return what people know a row by: its primary key as far as it is shown, else an id or name."""
    shown = [(at, str(value) if isinstance(value, Unreadable) else value) for at, value in zip(cells, row, strict=True)]
    key = [v for at, v in shown if at.column is not None and at.column.primary_key and at.column.table.name == table]
    if not key:
        key = [value for name in _NAMES for at, value in shown if at.name == name][:1]
    return key[0] if len(key) == 1 else tuple(key) or None


def _shaped(convert: Callable[[Any], Any], shape: type) -> Callable[[Any], Any]:
    """Return a converter of JSON that takes values of one shape, and null."""

    def read(value: Any) -> Any:
        found = convert(value)
        if found.__class__ is not shape and found is not None:
            raise TypeError(f"expected JSON of type {shape.__name__}")
        return found

    return read


Row = Mapping[str, Any]

#: Rows that are looked at together. A server stores those before while the next ones are made.
_TOGETHER = 100


class Batches:
    """The parameters of many rows of one statement, in the order in which it takes them."""

    __slots__ = ("_columns", "names")

    def __init__(
        self, order: Sequence[str], types: Mapping[str, TypeEngine[Any] | None], converters: Mapping[str, Convert]
    ) -> None:
        self.names = tuple(order)
        self._columns = [Column(name, types.get(name), converters.get(name)) for name in order]

    def of(self, rows: Iterable[Row]) -> Iterator[list[list[Any]]]:
        """Yield the rows, some at a time, as their columns. Raises `InvalidValue` for a value that is wrong."""
        coming = iter(rows)
        while several := [*islice(coming, _TOGETHER)]:
            yield [column.of(several) for column in self._columns]


class Column:
    """One parameter of many rows."""

    __slots__ = ("_allowed", "_convert", "_known", "_name", "_value", "_words")

    def __init__(self, name: str, kind: TypeEngine[Any] | None, convert: Convert | None) -> None:
        self._name = name
        self._value = itemgetter(name)
        self._allowed, self._words = rule(kind)
        self._convert = convert
        #: Types that were let through.
        self._known: set[type] = {type(None)}

    def of(self, rows: Sequence[Row]) -> list[Any]:
        """Return the values of the rows, as the driver takes them."""
        given = [*map(self._value, rows)]
        kinds = {*map(type, given)}
        if not kinds <= self._known:
            self._judge(given, kinds)
        for kind in kinds:
            if issubclass(kind, str):
                self._refuse_nul(given if len(kinds) == 1 else [value for value in given if isinstance(value, str)])
            elif issubclass(kind, int):
                self._refuse_beyond(given if len(kinds) == 1 else [value for value in given if isinstance(value, int)])
        convert = self._convert
        if convert is None:
            return given
        first = given[0]
        same = None if first is None else convert(first)  # often all rows have one value, such as the present
        return [same if value is first else None if value is None else convert(value) for value in given]

    def _judge(self, given: Sequence[Any], kinds: set[type]) -> None:
        for value in given:
            if value is not None and (
                not isinstance(value, self._allowed) or (type(value) is bool and bool not in self._allowed)
            ):
                raise InvalidValue(self._name, f"expected {self._words}, got {type(value).__name__}")
        self._known |= kinds

    def _refuse_nul(self, texts: Sequence[str]) -> None:
        if "\0" in "".join(texts):
            refuse(self._name, "\0")

    def _refuse_beyond(self, numbers: Sequence[int]) -> None:
        if min(numbers) < LEAST or max(numbers) > MOST:
            refuse(self._name, MOST)
