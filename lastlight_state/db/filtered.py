"""Statements with optional filters of several values."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic

import sqlalchemy as sa

from lastlight_state.db.statements import Row, RowT, Statement, size_for

#: The most statements that one `Filtered` keeps compiled.
MOST_FILTERED = 256


class Filtered(Generic[RowT]):
    """Statements with filters of several values each, of which none, some or all are given.

    ``make`` gets the conditions, and what else `of` was called with, and returns the statement. A filter is a function
    of parameters, such as ``column.in_``. There is one statement for each combination of `SIZES`; parameters left over
    repeat the last value. ``beside`` makes what runs instead where large values lie inside the rows. ``row`` is the
    `TypedDict` of the rows, as of a `Statement`.
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
        self._made: dict[tuple[Any, ...], Statement[RowT]] = {}

    def of(self, given: Mapping[str, Sequence[Any] | None], *also: Any) -> tuple[Statement[RowT], Row]:
        """Return the statement and its parameters for these values: up to 500 of each filter. None filters nothing."""
        sizes = {name: size_for(len(values)) for name, values in given.items() if values is not None}
        values = {
            f"{name}_{i}": value
            for name, size in sizes.items()
            for i, value in enumerate([*given[name], *[given[name][-1]] * (size - len(given[name]))])  # type: ignore[index,misc,arg-type]
        }
        shape = (*sizes.items(), also)
        statement = self._made.get(shape)
        if statement is None:
            if len(self._made) >= MOST_FILTERED:
                self._made.clear()
            conditions = [self._condition(name, size) for name, size in sizes.items()]
            beside = self._beside and self._beside(conditions, *also)
            statement = self._made[shape] = Statement(self._make(conditions, *also), beside, row=self.row)
        return statement, values

    def _condition(self, name: str, size: int) -> Any:
        return self._filters[name]([sa.bindparam(f"{name}_{i}") for i in range(size)])
