"""The parameters of many rows of one statement, checked and converted column by column.

The rules are those of `db.parameters`. To look at the columns takes half the time of looking at row after row, because
the loops are the interpreter's own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from operator import itemgetter
from typing import Any

from sqlalchemy.types import TypeEngine

from lastlight_state.db.parameters import LEAST, MOST, Convert, refuse, rule
from lastlight_state.errors import InvalidValue

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
        """The rows, some at a time, as their columns. Raises `InvalidValue` for a value that is wrong."""
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
        """What the rows have, as the driver takes it."""
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
        same = convert(first)  # often all rows have one value, such as the present
        return [same if value is first else convert(value) for value in given]

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
