"""Statements about many keys: some hundred at a time, each of which finds its rows by an index."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, TypedDict, overload

from lastlight_state.db.statements import NO_VALUES, Family, RowT, Values
from lastlight_state.db.unit import Unit

#: How many keys one statement names.
_KEYS = 200


class KeyRow(TypedDict):
    """A key that was found."""

    key: str


class IdRow(TypedDict):
    """The id of a row that was found."""

    id: str


class CountOf(KeyRow):
    """How many rows a record has."""

    rows: int


@overload
def family(make: Any) -> Family: ...


@overload
def family(make: Any, row: type[RowT]) -> Family[RowT]: ...


def family(make: Any, row: Any = None) -> Any:
    """Return statements about keys, made of a list of their parameters; ``row`` as of a `Family`."""
    return Family("key", make, row)


def chunks(keys: Iterable[str]) -> Iterator[list[str]]:
    """Yield the keys in their order, as many at a time as one statement names."""
    ordered = sorted(keys)
    return (ordered[at : at + _KEYS] for at in range(0, len(ordered), _KEYS))


def rows(unit: Unit, family: Family[RowT], keys: Iterable[str], values: Values = NO_VALUES) -> Iterator[RowT]:
    """Return what a statement finds for these keys, however many, with these values of its other parameters."""
    for chunk in chunks(keys):
        statement, named = family.of(chunk)
        yield from unit.rows(statement, {**values, **named})
