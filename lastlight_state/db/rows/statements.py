"""Statements that are compiled once and executed with little overhead.

A repository's statements are module-level constants. The first use on a backend compiles one into driver text, the
order of its parameters and the converters of its columns; every later use is a dictionary lookup and one call of the
driver. Two rules follow: every parameter has a name, and **the value for a JSON column is text** made by
`lastlight_state.codec.encode`, so that it is checked and encoded once.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

import sqlalchemy as sa

from lastlight_state.backends.base import Backend
from lastlight_state.db.rows.compiled import Compiled, alike, keep
from lastlight_state.db.rows.records import needed_columns, row_maker
from lastlight_state.db.rows.shapes import SHAPES
from lastlight_state.db.schema import columns
from lastlight_state.errors import CorruptData

Row = dict[str, Any]
Values = Mapping[str, Any]

if TYPE_CHECKING:
    from typing_extensions import TypeVar as TypeVarWithDefault

    RowT = TypeVarWithDefault("RowT", default=Row)
else:
    RowT = TypeVar("RowT")

NO_VALUES: Values = {}

#: How many values a list of parameters can hold. Few sizes, so that few statements are ever compiled.
SIZES = (1, 2, 4, 8, 20, 50, 100, 200, 500)


def has_damage(rows: Iterable[Any]) -> bool:
    """True if there is an error among the rows. Looks at each type once, without a call for each row."""
    kinds = {*map(type, rows)}
    if kinds <= _SOUND:
        return False
    found = any(issubclass(kind, CorruptData) for kind in kinds)
    _SOUND.update(() if found else kinds)
    return found


#: The types of rows that were seen and are no errors.
_SOUND: set[type] = {dict}


class Statement(Generic[RowT]):
    """A statement constant with the type of its rows. Safe to share between threads and stores.

    ``row`` is that type: a `Record`, a `NamedTuple`, ``tuple``, or a `TypedDict`. Without it the rows are plain dicts.
    A test compares the statement's columns with the type's fields. ``beside`` is the statement that runs instead on
    databases that store large values inside the rows (`lists.covering`).
    """

    __slots__ = ("_beside", "compiled", "element", "make", "row")

    def __init__(
        self, element: sa.Executable, beside: sa.Executable | None = None, *, row: type[RowT] | None = None
    ) -> None:
        self.element = element
        self.row = row
        #: Makes a row from the values of its columns by name. None where that dict itself is the row.
        self.make = row_maker(row)
        self._beside = element if beside is None else beside
        #: By the backend's key. Looked into before `on` is called, because a call costs more than the look.
        self.compiled: dict[tuple[Any, ...], Compiled] = {}

    def on(self, backend: Backend) -> Compiled:
        """Return the statement compiled for this backend."""
        found = self.compiled.get(backend.key)
        if found is None:
            element = self._beside if backend.large_values_in_rows else self.element
            there = alike(self.compiled, backend)
            found = Compiled(element, backend) if there is None else there.sealed_by(backend.sealing)
            keep(self.compiled, backend, found)
        return found


class Shaped(Statement[RowT]):
    """A statement for one shape of arguments. Its compiled size is counted. It has no ``element``."""

    __slots__ = ("_compile", "_shape")

    def __init__(
        self, shape: Hashable, compile_on: Callable[[Backend], Compiled], *, row: type[RowT] | None = None
    ) -> None:
        self.row = row
        self.make = row_maker(row)
        self.compiled = {}
        self._shape = shape
        self._compile = compile_on

    def on(self, backend: Backend) -> Compiled:
        """Return the statement compiled for this backend."""
        found = self.compiled.get(backend.key)
        if found is None:
            there = alike(self.compiled, backend)
            found = self._compile(backend) if there is None or there.seals else there
            dropped = keep(self.compiled, backend, found)
            gone = sum(each.size for each in dropped if each not in self.compiled.values())
            SHAPES.grow(self._shape, (0 if found is there else found.size) - gone)
        return found


@overload
def statement_of(element: sa.Executable) -> Statement: ...


@overload
def statement_of(element: sa.Executable, row: type[RowT]) -> Statement[RowT]: ...


def statement_of(element: sa.Executable, row: Any = None) -> Any:
    """Return the `Statement` for an SQLAlchemy statement, whose rows have the type ``row``."""
    return Statement(element, row=row)


def columns_of(record: Any, table: sa.Table) -> tuple[sa.Column[Any], ...]:
    """Return those columns of the table that the record has, in the order of the table."""
    shown = needed_columns(record)
    return tuple(column for column in table.columns if column.name in shown)


def every_column_of(record: Any, table: sa.Table, *, hidden: Collection[str] = ()) -> tuple[sa.Column[Any], ...]:
    """Return `columns_of` for a record that must have all columns of the table.

    Raises TypeError if a column is neither in the record nor named in ``hidden``. So a new column must be declared both
    in the model and in the record.
    """
    missing = {column.name for column in table.columns} - needed_columns(record) - {*hidden}
    if missing:
        raise TypeError(f"{record.__name__} has no field for {', '.join(sorted(missing))} of {table.name}")
    return columns_of(record, table)


def bind(name: str, column: sa.ColumnElement[Any]) -> sa.BindParameter[Any]:
    """Return a parameter with the type of a column."""
    return sa.bindparam(name, type_=column.type)


def exactly(name: str, column: sa.ColumnElement[Any]) -> sa.BindParameter[Any]:
    """Return a parameter to compare with a value read from the column. A time keeps its microseconds."""
    return sa.bindparam(name, type_=columns.key_type(column))


def number(value: int) -> sa.ColumnElement[int]:
    """Return a whole number written into the SQL text. As a parameter, it would hide its value from the planner.

    With a LIMIT in a parameter, Postgres plans each page anew, or for an average limit.
    """
    return sa.literal_column(str(int(value)), sa.Integer)


def constant(word: str) -> sa.ColumnElement[str]:
    """Return a word written into the SQL text, so that a partial index on that word can be used."""
    return sa.literal_column(quote_word(word), columns.Text)


def quote_word(word: str) -> str:
    """Return a word as an SQL literal. Raises ValueError for anything but letters and underscores."""
    if not word.replace("_", "").isalpha():
        raise ValueError(word)
    return f"'{word}'"


def among(column: Any, words: Iterable[str]) -> sa.ColumnElement[bool]:
    """Return the condition that the column holds one of these words, which are written into the SQL text."""
    found: sa.ColumnElement[bool] = column.in_([constant(word) for word in words])
    return found


def size_for(count: int) -> int:
    """Return the smallest of `SIZES` that is at least ``count`` (at most 500)."""
    return SIZES[bisect_left(SIZES, count)]


def padded_parameters(name: str, values: Sequence[Any], size: int) -> Row:
    """Return these values as parameters ``<name>_0`` … ``<name>_{size-1}``.

    Unused parameters are None, which equals no stored value.
    """
    padding = [None] * (size - len(values))
    return {f"{name}_{i}": value for i, value in enumerate([*values, *padding])}


class AnyOf:
    """``column IN (…)`` with ``size`` parameters, named ``<name>_0`` … ``<name>_{size-1}``."""

    def __init__(self, name: str, column: sa.ColumnElement[Any], size: int) -> None:
        self._name = name
        self._size = size
        self.parameters = [bind(f"{name}_{i}", column) for i in range(size)]
        self.condition: sa.ColumnElement[bool] = column.in_(self.parameters)

    def of(self, values: Sequence[Any]) -> Row:
        """Return the parameters for at most ``size`` values, padded as by `padded_parameters`."""
        return padded_parameters(self._name, values, self._size)


class Family(Generic[RowT]):
    """Statements that differ only in the number of values that they compare with, such as ``id IN (…)``.

    ``make`` gets a list of parameters, named ``<name>_0``, ``<name>_1`` …, and returns the statement. There is one
    statement for each of `SIZES`. Unused parameters repeat the last value.
    """

    def __init__(
        self,
        name: str,
        make: Callable[[Sequence[sa.BindParameter[Any]]], sa.Executable | Statement[RowT]],
        row: type[RowT] | None = None,
    ) -> None:
        self.row = row
        self._name = name
        self._make = make
        self._names: dict[int, tuple[str, ...]] = {}

    def of(self, values: Sequence[Any]) -> tuple[Statement[RowT], Row]:
        """Return the statement for this number of values (1 to 500), and its parameters."""
        size = size_for(len(values))
        names = self._names.get(size)
        if names is None:
            names = self._names[size] = tuple(f"{self._name}_{i}" for i in range(size))
        shape = self, size
        statement = SHAPES.get(shape) or SHAPES.put(shape, Shaped(shape, partial(self._compile, size), row=self.row))
        return statement, dict(zip(names, [*values, *[values[-1]] * (size - len(values))], strict=True))

    def _compile(self, size: int, backend: Backend) -> Compiled:
        made = self._make([sa.bindparam(name) for name in self._names[size]])
        return made.on(backend) if isinstance(made, Statement) else Compiled(made, backend)
