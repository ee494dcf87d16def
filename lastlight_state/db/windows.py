"""Rows of an ordered list of which some cannot be read, and the key after which the list goes on.

A damaged row keeps its place in a list. Where its key is damaged, too, it cannot be named in a page token, so the next
page begins after the last key that can be read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar

from lastlight_state.db.records import DamagedRow
from lastlight_state.db.statements import RowT
from lastlight_state.db.unit import Found
from lastlight_state.errors import CorruptData

T = TypeVar("T")

#: A row that has no type, or why it cannot be read.
Row: TypeAlias = "dict[str, Any] | CorruptData"


class Placed(NamedTuple, Generic[RowT]):
    """Rows in their order, or why one cannot be read, and the key of each by its place: None where it is damaged."""

    rows: Sequence[RowT | CorruptData]
    key: Callable[[int], list[Any] | None]


class Window(NamedTuple, Generic[RowT]):
    """The rows of a page, and the key after which the next page begins: None at the end of the list."""

    rows: Sequence[RowT | CorruptData]
    last: list[Any] | None


def placed(found: Found[RowT], key: Sequence[str]) -> Placed[RowT]:
    """Return the rows that a statement found, with their keys in these columns."""
    return Placed(found.rows, lambda at: found.columns(at, key))


def window(read: Callable[[int], Placed[RowT]], limit: int) -> Window[RowT]:
    """Return the next ``limit`` rows of what ``read`` gives: the first rows, at most as many as it is asked for.

    Where none of their keys can be read, more rows are looked at until one is found: damaged keys do not end a list.
    """
    while True:
        rows, key = read(limit + 1)
        if len(rows) <= limit:
            return Window(rows, None)
        for at in range(limit - 1, -1, -1):
            last = key(at)
            if last is not None:
                return Window(rows[:limit], last)
        limit *= 2


def parted(
    rows: Sequence[RowT | CorruptData], make: Callable[[RowT], T]
) -> tuple[tuple[T, ...], tuple[DamagedRow, ...]]:
    """Return what ``make`` makes of the rows, and what a page says about those that are damaged."""
    items = tuple(make(row) for row in rows if not isinstance(row, CorruptData))
    return items, tuple(damaged_row(row) for row in rows if isinstance(row, CorruptData))


def damaged_row(error: CorruptData) -> DamagedRow:
    """A damaged row as a page shows it."""
    return DamagedRow(table=error.table, key=error.key, column=error.column, problem=str(error))
