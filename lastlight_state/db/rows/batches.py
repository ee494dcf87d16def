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
from lastlight_state.db.rows.parameters import LEAST, MOST, Convert, converter, is_kept, refuse, rule
from lastlight_state.db.schema import columns
from lastlight_state.db.schema.sealing import Keyed, Sealing
from lastlight_state.errors import CorruptData, InvalidValue, SealedValue

# What stands in a row, column by column: how it is read, and how damage is named to people.
#
# Plain SQL can put into a row what its column cannot hold. The error then says which row of which table, and which
# column, whatever alias or label the statement gave them.

#: Names of columns by which people know a row where its primary key is not shown.
_NAMES = ("id", "name", "run_id", "cron_name")


class Cell(NamedTuple):
    """One column of a result: its name there, its reading, and the column of a table that it shows (None: of none).

    ``keys`` are columns of that table whose values the reading takes as well, and ``places`` where they stand.
    """

    name: str
    convert: Callable[..., Any] | None
    types: tuple[type, ...] | None
    column: sa.Column[Any] | None
    keys: tuple[str, ...] = ()
    places: tuple[int, ...] = ()

    def read(self, value: Any, row: Sequence[Any]) -> Any:
        """Return the Python value of a stored one that is not NULL. Raises TypeError or what the converter raises."""
        if not is_kept(type(value), self.types):
            raise TypeError(type(value).__name__)
        if self.convert is None:
            return value
        return self.convert(value, tuple(row[at] for at in self.places)) if self.keys else self.convert(value)


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
        convert = _shaped(converter(convert), shape)
    if isinstance(convert, Keyed):
        return Cell(entry.keyname, convert.convert, types, column, convert.keys)
    return Cell(entry.keyname, convert, types, column)


def placed(cells: Sequence[Cell]) -> tuple[Cell, ...]:
    """Return the cells of a result, with the places of what they take. Raises TypeError where a column is missing."""
    return tuple(one._replace(places=_places(cells, one)) if one.keys else one for one in cells)


def _places(cells: Sequence[Cell], sealed: Cell) -> tuple[int, ...]:
    table = None if sealed.column is None else sealed.column.table
    shown = {
        one.column.name: at for at, one in enumerate(cells) if one.column is not None and one.column.table is table
    }
    if missing := [name for name in sealed.keys if name not in shown]:
        raise TypeError(f"{sealed.name} is bound to columns that the statement does not show: {missing}")
    return tuple(shown[name] for name in sealed.keys)


def damage(
    cells: Sequence[Cell], rows: Sequence[Sequence[Any]], unreadable: tuple[type[Exception], ...], of_table: str
) -> CorruptData:
    """Return the error that names the first value of these rows that cannot be read."""
    for row in rows:
        for at, value in zip(cells, row, strict=True):
            try:
                if value is not None:
                    at.read(value, row)
            except unreadable as error:
                table = of_table if at.column is None else at.column.table.name
                key, name = _key(cells, row, table), at.name if at.column is None else at.column.name
                return error.of(table, key, name) if isinstance(error, SealedValue) else CorruptData(table, key, name)
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
        self,
        order: Sequence[str],
        types: Mapping[str, TypeEngine[Any] | None],
        converters: Mapping[str, Convert | Keyed],
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

    __slots__ = ("_allowed", "_convert", "_keys", "_known", "_name", "_value", "_words")

    def __init__(self, name: str, kind: TypeEngine[Any] | None, convert: Convert | Keyed | None) -> None:
        self._name = name
        self._value = itemgetter(name)
        self._allowed, self._words = rule(kind)
        self._convert = None if convert is None else converter(convert)
        self._keys = convert.keys if isinstance(convert, Keyed) else ()
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
        if self._keys:
            keys = [tuple(row[name] for name in self._keys) for row in rows]
            return [None if value is None else convert(value, key) for value, key in zip(given, keys, strict=True)]
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
