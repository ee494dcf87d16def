"""Filters of lists: of several values, and by the beginning of a text."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, TypedDict, overload

import sqlalchemy as sa

from lastlight_state.backends.base import Backend
from lastlight_state.db import valid
from lastlight_state.db.lists.ranges import Leader
from lastlight_state.db.rows.compiled import Compiled
from lastlight_state.db.rows.shapes import SHAPES
from lastlight_state.db.rows.statements import (
    NO_VALUES,
    Family,
    Row,
    RowT,
    Shaped,
    Statement,
    Values,
    bind,
    size_for,
)
from lastlight_state.db.units.unit import Unit
from lastlight_state.keys import prefix_end

# Filters that take several values, each compared with more than one column.


@dataclass(frozen=True)
class CompoundFilter:
    """A filter that takes several values, each of which sets several parameters. A parameter that is not set is NULL.

    ``conditions`` takes the suffix of one value's parameters and returns the conditions of that value; a row must meet
    one of them. With ``ranges``, each condition is read as a separate range of an index, unless a column of the list is
    spread.
    """

    parameters: tuple[str, ...]
    conditions: Callable[[str], Sequence[sa.ColumnElement[bool]]]
    ranges: bool = True

    def parameters_for(self, values: Sequence[Mapping[str, Any]], size: int) -> dict[str, Any]:
        """Return the parameters of these values, padded to ``size`` values with None.

        A comparison with None matches no row.
        """
        padding: list[Mapping[str, Any]] = [{}] * (size - len(values))
        given = enumerate([*values, *padding])
        return {f"{name}_{i}": value.get(name) for i, value in given for name in self.parameters}

    def leader(self, name: str, size: int) -> Leader:
        """Return this filter as the `Leader` of a page, the filter whose values are read as separate index ranges."""
        if self.ranges:
            return Leader(name, self.conditions("_0"), self.parameters)
        return Leader(name, [self.any_of(size)])

    def any_of(self, size: int) -> sa.ColumnElement[bool]:
        """Return the condition that a row matches at least one of ``size`` values."""
        return sa.or_(*(condition for i in range(size) for condition in self.conditions(f"_{i}")))


# Statements about many keys, in batches. The statement finds the row of each key by an index.

#: The number of keys in one batch.
_KEYS = 200


class KeyRow(TypedDict):
    """A key that was found."""

    key: str


class IdRow(TypedDict):
    """The id of a row that was found."""

    id: str


class CountOf(KeyRow):
    """The number of rows that belong to one record."""

    rows: int


@overload
def family(make: Any) -> Family: ...


@overload
def family(make: Any, row: type[RowT]) -> Family[RowT]: ...


def family(make: Any, row: Any = None) -> Any:
    """Return the statements that take a batch of keys.

    ``make`` builds one of them from its parameters. ``row`` has the same meaning as in `Family`.
    """
    return Family("key", make, row)


def chunks(keys: Iterable[str]) -> Iterator[list[str]]:
    """Sort the keys and yield them in batches as large as one statement takes."""
    ordered = sorted(keys)
    return (ordered[at : at + _KEYS] for at in range(0, len(ordered), _KEYS))


def rows(unit: Unit, family: Family[RowT], keys: Iterable[str], values: Values = NO_VALUES) -> Iterator[RowT]:
    """Return the rows that a statement finds for any number of keys.

    ``values`` are the statement's other parameters.
    """
    for chunk in chunks(keys):
        statement, named = family.of(chunk)
        yield from unit.rows(statement, {**values, **named})


def first_column(unit: Unit, family: Family[Any], keys: Iterable[str], values: Values = NO_VALUES) -> Iterator[Any]:
    """Return the first column of what a statement finds for these keys, as `rows`."""
    for chunk in chunks(keys):
        statement, named = family.of(chunk)
        yield from unit.values(statement, {**values, **named})


class Filtered(Generic[RowT]):
    """A statement with optional filters, each of which takes several values.

    ``make`` gets the conditions, and what else `of` was called with, and returns the statement. A filter is a function
    of parameters, such as ``column.in_``. There is one statement for each combination of `SIZES`; parameters left over
    repeat the last value. ``beside`` makes what runs instead where large values lie inside the rows. ``row`` is the
    type of the rows, as of a `Statement`.
    """

    def __init__(
        self,
        make: Callable[..., sa.Executable],
        beside: Callable[..., sa.Executable] | None = None,
        row: type[RowT] | None = None,
        /,
        **filters: Callable[[Sequence[Any]], Any],
    ) -> None:
        self._make = make
        self._beside = beside
        self.row = row
        self._filters = filters

    def of(self, given: Mapping[str, Sequence[Any] | None], *also: Any) -> tuple[Statement[RowT], Row]:
        """Return the statement and its parameters for these values, at most 500 for each filter.

        None means no filter.
        """
        sizes = {name: size_for(len(values)) for name, values in given.items() if values is not None}
        values = {
            f"{name}_{i}": value
            for name, size in sizes.items()
            for i, value in enumerate([*given[name], *[given[name][-1]] * (size - len(given[name]))])  # type: ignore[index,misc,arg-type]
        }
        shape = (self, *sizes.items(), also)
        statement = SHAPES.get(shape)
        if statement is None:
            statement = SHAPES.put(shape, Shaped(shape, partial(self._compile, sizes, also), row=self.row))
        return statement, values

    def _compile(self, sizes: Mapping[str, int], also: tuple[Any, ...], backend: Backend) -> Compiled:
        conditions = [self._condition(name, size) for name, size in sizes.items()]
        make = self._beside if self._beside and backend.large_values_in_rows else self._make
        return Compiled(make(conditions, *also), backend)

    def _condition(self, name: str, size: int) -> Any:
        return self._filters[name]([sa.bindparam(f"{name}_{i}") for i in range(size)])


# Texts with a prefix: a range of an index, by code points, in which these columns are sorted.


def begins_with(name: str, column: sa.Column[Any]) -> sa.ColumnElement[bool]:
    """Return the condition that a column begins with the prefix ``name``. `prefix_range` makes its parameters."""
    return sa.and_(column >= bind(f"{name}_first", column), column < bind(f"{name}_end", column))


def prefix_range(name: str, prefix: Any) -> Row:
    """Check a prefix, and return the parameters of `begins_with`."""
    first = valid.lookup_text(name, prefix)
    return {f"{name}_first": first, f"{name}_end": prefix_end(first)}
