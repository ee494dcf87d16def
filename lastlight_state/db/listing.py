"""A list as its repository declares it: columns, order, filters. Each combination of filters is compiled once.

Filters of one value are conditions. A filter of several values over the column that leads an index is *spread*: one
bounded index range for each value, merged, so that a page never sorts or scans what it does not show.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, TypeAlias, TypeVar

import sqlalchemy as sa

from lastlight_state.db import columns, pages, valid
from lastlight_state.db.indexes import through
from lastlight_state.db.records import Page
from lastlight_state.db.statements import Statement, Values, constant
from lastlight_state.db.unit import NOTHING, Unit
from lastlight_state.errors import InvalidValue

T = TypeVar("T")

#: Conditions of which a row meets one, and the condition that it meets any.
_Alternatives: TypeAlias = tuple[Sequence[sa.ColumnElement[bool]], sa.ColumnElement[bool]]

#: The values of a column that is spread: how many parameters, or the words themselves.
_Several = int | tuple[str, ...]

MOST_VALUES = 50
MOST_SHAPES = 512
_SIZES = (1, 2, 4, 8, 20, 50)


class Listing:
    """A keyset list. ``filters`` and ``spread`` are named after the arguments of the method that lists.

    ``columns`` are what a summary shows; ``order`` columns are among them, all descending or all ascending.
    A condition of ``filters`` uses the parameter of its own name, or those of the mapping that it is given;
    ``spread`` names columns that take several values; ``either`` filters by conditions of which a row meets one, each
    with an index range of its own where no column is spread; ``through`` the index to read by (`db.indexes.through`);
    ``source`` the join that the columns come from, if they are of more than one table. ``worded`` are those of
    ``spread`` whose values are checked words of ours: they stand in the SQL itself. A plan that is made for any word
    may go through all that is common to find what is rare.
    """

    def __init__(
        self,
        name: str,
        shown: Sequence[sa.ColumnElement[Any]],
        *,
        order: Sequence[sa.Column[Any]],
        filters: Mapping[str, sa.ColumnElement[bool]] | None = None,
        spread: Mapping[str, sa.Column[Any]] | None = None,
        either: Mapping[str, Sequence[sa.ColumnElement[bool]]] | None = None,
        always: Sequence[sa.ColumnElement[bool]] = (),
        descending: bool = True,
        through: str | None = None,
        source: sa.FromClause | None = None,
        worded: Collection[str] = (),
    ) -> None:
        self._name = name
        self._shown = tuple(shown)
        self._order = tuple(order)
        self._key = [column.name for column in order]
        self._filters = dict(filters or {})
        self._spread = dict(spread or {})
        self._either = dict(either or {})
        self._always = tuple(always)
        self._descending = descending
        self._through = through
        self._source = source
        self._worded = frozenset(worded)
        self._made: dict[tuple[Any, ...], Statement] = {}

    def page(
        self,
        unit: Unit,
        make: Callable[[dict[str, Any]], T],
        *,
        limit: int,
        page_token: str | None = None,
        given: Mapping[str, Any] | None = None,
        also: Values = NOTHING,
    ) -> Page[T]:
        """One page of the rows that the filters ``given`` admit. None filters nothing; an empty sequence admits none.

        ``also`` are parameters of the conditions that always stand, such as the present time: no part of a token.
        """
        chosen = {name: value for name, value in (given or {}).items() if value is not None}
        key = self.key_of(chosen, page_token)
        rows = self.rows(unit, chosen, key, limit + 1, also=also)
        more = len(rows) > limit
        kept = rows[:limit]
        token = pages.encode_token([self._name, chosen], self.key(kept[-1])) if more else None
        return Page.of({"items": tuple(map(make, kept)), "next_page_token": token})

    def rows(
        self,
        unit: Unit,
        chosen: Mapping[str, Any],
        key: Sequence[Any] | None,
        limit: int,
        *,
        also: Values = NOTHING,
    ) -> list[dict[str, Any]]:
        """The next ``limit`` rows after ``key``."""
        if any(name in self._spread and not value for name, value in chosen.items()):
            return []
        statement, values = self._statement(chosen, key, limit)
        return unit.rows(statement, {**values, **also})

    def key(self, row: Mapping[str, Any]) -> list[Any]:
        """The key of a row: its values in the order columns."""
        return [row[name] for name in self._key]

    def key_of(self, chosen: Mapping[str, Any], page_token: str | None) -> list[Any] | None:
        """The key that a token stands for. Raises `InvalidValue` for a token of another list or filter."""
        key = pages.decode_token([self._name, chosen], page_token)
        return None if key is None else self.checked_key(key)

    def checked_key(self, key: Sequence[Any]) -> list[Any]:
        """A key as it came out of a token, its times as times. Raises `InvalidValue` when it is no key of this list."""
        try:
            return [_part(column, part) for part, column in zip(key, self._order, strict=True)]
        except (InvalidValue, TypeError, ValueError, OverflowError):
            raise InvalidValue("page_token", "damaged, or made by something else") from None

    def statement(self, chosen: Mapping[str, Any], *, paged: bool, limit: int = 51) -> Statement:
        """The statement that a page with these filters runs, for tests of its plan."""
        return self._statement(chosen, [None] * len(self._order) if paged else None, limit)[0]

    def _statement(
        self, chosen: Mapping[str, Any], key: Sequence[Any] | None, limit: int
    ) -> tuple[Statement, dict[str, Any]]:
        values: dict[str, Any] = {} if key is None else pages.after_values(key)
        several: list[tuple[str, _Several]] = []
        for name, value in chosen.items():
            if name not in self._spread:
                values |= value if isinstance(value, Mapping) else {name: value}
                continue
            if len(value) > MOST_VALUES:
                raise InvalidValue(name, f"{len(value)} values, more than the limit of {MOST_VALUES}")
            unique = list(dict.fromkeys(value))
            if name in self._worded:
                several.append((name, tuple(sorted(unique))))
                continue
            size = next(size for size in _SIZES if size >= len(unique))
            several.append((name, size))
            values |= {f"{name}_{i}": part for i, part in enumerate([*unique, *[None] * (size - len(unique))])}
        shape = (frozenset(chosen), tuple(several), key is not None, limit)
        statement = self._made.get(shape)
        if statement is None:
            if len(self._made) >= MOST_SHAPES:
                self._made.clear()
            built = self._build(chosen, dict(several), paged=key is not None, limit=limit)
            statement = self._made[shape] = Statement(built)
        return statement, values

    def _build(self, chosen: Mapping[str, Any], spread: Mapping[str, _Several], *, paged: bool, limit: int) -> Any:
        conditions = [*self._always, *(self._filters[name] for name in chosen if name in self._filters)]
        if paged:
            conditions.append(pages.after(self._order, descending=self._descending))
        several = [self._alternatives(self._spread[name], name, values) for name, values in spread.items()]
        several += [(self._either[name], sa.or_(*self._either[name])) for name in chosen if name in self._either]
        if not several:
            return self._range(conditions, limit)
        (leading, _), *others = several
        conditions += [any_of_them for _, any_of_them in others]
        ranges = [self._range([*conditions, one], limit) for one in leading]
        return ranges[0] if len(ranges) == 1 else self._merged([sa.select(one.subquery()) for one in ranges], limit)

    @staticmethod
    def _alternatives(column: sa.Column[Any], name: str, values: _Several) -> _Alternatives:
        words: list[sa.ColumnElement[Any]]
        if isinstance(values, int):
            words = [sa.bindparam(f"{name}_{i}", type_=column.type) for i in range(values)]
        else:
            words = [constant(word) for word in values]
        return [column == word for word in words], column.in_(words)

    def _range(self, conditions: Sequence[sa.ColumnElement[bool]], limit: int) -> sa.Select[Any]:
        shown = sa.select(*self._shown).where(*conditions)
        if self._source is not None:
            shown = shown.select_from(self._source)
        if self._through:
            shown = through(shown, self._order[0].table, self._through)
        return shown.order_by(*self._directions(self._order)).limit(_written(limit))

    def _merged(self, ranges: Sequence[sa.Select[Any]], limit: int) -> sa.Select[Any]:
        merged = sa.union_all(*ranges).subquery()
        order = [merged.c[column.name] for column in self._order]
        return sa.select(merged).order_by(*self._directions(order)).limit(_written(limit))

    def _directions(self, order: Sequence[sa.ColumnElement[Any]]) -> list[sa.ColumnElement[Any]]:
        return [column.desc() if self._descending else column.asc() for column in order]


def _part(column: sa.Column[Any], part: Any) -> Any:
    """A value of the column, from JSON that anybody may have written."""
    if part is None:
        return None
    if column.type is columns.Timestamp:
        return columns.parse_time(part)
    kind = column.type.python_type
    if kind is str:
        return valid.content("page_token", part, pages.LONGEST)
    if kind is int:
        return valid.number("page_token", part, least=-(2**63))
    if type(part) is not kind:
        raise TypeError(part)
    return part


def _written(limit: int) -> sa.ColumnElement[int]:
    """The limit in the SQL itself: as a parameter it would keep Postgres from planning a prepared page only once."""
    return sa.literal_column(str(limit), sa.Integer)
