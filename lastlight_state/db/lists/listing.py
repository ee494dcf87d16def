"""A list as its repository declares it: columns, order, filters. Each combination of filters is compiled once.

A filter of one value is a condition. A filter of several values is *spread* if its column is the first of an index:
each value is a bounded index range, and the ranges are merged. So a page neither sorts rows nor scans rows that it does
not show.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any, Generic, TypeAlias

import sqlalchemy as sa
from sqlalchemy.sql import operators

from lastlight_state.backends.base import Backend
from lastlight_state.db import valid
from lastlight_state.db.lists import pages
from lastlight_state.db.lists.covering import Covering, SelfJoin
from lastlight_state.db.lists.filters import CompoundFilter
from lastlight_state.db.lists.pages import KeyedRows, keyed_rows, split_damaged, window
from lastlight_state.db.lists.ranges import Form, Leader, limit_mark, words_of
from lastlight_state.db.rows.compiled import Compiled
from lastlight_state.db.rows.records import Page
from lastlight_state.db.rows.shapes import SHAPES
from lastlight_state.db.rows.statements import (
    NO_VALUES,
    AnyOf,
    Row,
    RowT,
    Shaped,
    Statement,
    Values,
    bind,
    padded_parameters,
    size_for,
)
from lastlight_state.db.schema import columns
from lastlight_state.db.schema.indexes import Leading, through
from lastlight_state.db.units.unit import Unit

#: The values of a filter of several: how many parameters, or the words themselves.
_Sizes: TypeAlias = int | tuple[str, ...]

#: The most values that one filter takes, unless the list says otherwise.
MOST_VALUES = 50


class Listing(Generic[RowT]):
    """A keyset list. ``filters`` and ``spread`` are named after the arguments of the method that lists.

    ``shown``       the columns of an item, those of ``order`` among them
    ``order``       the columns to sort by, all descending or, with ``descending=False``, all ascending
    ``filters``     conditions; each uses the parameter of its own name, or those of the mapping given as its value
    ``spread``      columns with a filter of several values, each value an index range of its own
    ``worded``      names in ``spread`` with a closed vocabulary: their values are SQL literals, because with parameters
                    Postgres' generic plan may scan all rows of a common status to find a rare one
    ``leading``     the name in ``worded`` whose column leads the index of the order, where another index has that order
                    as well: Postgres may walk the other one, past all rows of other words
    ``walked``      names in ``spread`` that no index leads: their values are one condition, and rare ones are found by
                    walking past the others
    ``either``      filters by conditions of which a row must meet one; each condition is an index range of its own as
                    long as no column is spread
    ``several``     filters of several values that are each compared with more than one column
    ``always``      conditions of every page
    ``through``     the index that SQLite must read by (`db.schema.indexes.through`)
    ``covering``    the index that holds what is shown, and how rows are found for it (`db.lists.covering`)
    ``few``         the rows are few, and found by an index that has not their order: they are sorted by an expression
                    that no index serves, or Postgres may walk all rows in that order to find them
    ``source``      the join that the columns come from, if they are of more than one table
    ``most``        how many values a spread filter takes
    ``row``         the type of an item, as of a `Statement`
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
        several: Mapping[str, CompoundFilter] | None = None,
        always: Sequence[sa.ColumnElement[bool]] = (),
        descending: bool = True,
        through: str | None = None,
        covering: Covering | None = None,
        few: bool = False,
        source: sa.FromClause | None = None,
        worded: Collection[str] = (),
        leading: str | None = None,
        walked: Collection[str] = (),
        most: int = MOST_VALUES,
        row: type[RowT] | None = None,
    ) -> None:
        self.row = row
        self._name = name
        self._shown = tuple(shown)
        self._order = tuple(order)
        called = {column.element: column.name for column in shown if isinstance(column, sa.Label)}
        self._key = [called.get(column, column.name) for column in order]
        self._kinds = [datetime if column.type is columns.Timestamp else column.type.python_type for column in order]
        self._filters = dict(filters or {})
        self._spread = dict(spread or {})
        self._either = dict(either or {})
        self._groups = dict(several or {})
        self._always = tuple(always)
        self._descending = descending
        self._through = through
        self._covering = covering
        self._sorting = (sa.func.coalesce(order[0], order[0]), *order[1:]) if few else self._order
        self._source = source
        self._worded = frozenset(worded)
        self._leading = leading
        self._walked = frozenset(walked)
        self._most = most

    def page(
        self,
        unit: Unit,
        *,
        limit: int,
        page_token: str | None = None,
        given: Mapping[str, Any] | None = None,
        also: Values = NO_VALUES,
    ) -> Page[RowT]:
        """Return one page of the rows that pass the filters ``given``.

        A filter of None matches every row; an empty sequence matches no row. ``also`` are parameters of the ``always``
        conditions, such as the current time. They are not part of a page token.
        """
        chosen = {name: value for name, value in (given or {}).items() if value is not None}
        key = self.key_of(chosen, page_token)
        shown = window(lambda size: self.rows_after(unit, chosen, key, size, also=also), limit)
        items, damaged = split_damaged(shown.rows)
        token = None if shown.last is None else pages.encode_token([self._name, chosen], shown.last)
        return Page.of({"items": items, "next_page_token": token, "damaged": damaged})

    def rows_after(
        self, unit: Unit, chosen: Mapping[str, Any], key: Sequence[Any] | None, limit: int, *, also: Values = NO_VALUES
    ) -> KeyedRows[RowT]:
        """Return the next ``limit`` rows after ``key``, and the key of each of them."""
        if self._is_empty(chosen):
            return KeyedRows((), lambda _at: None)
        statement, values = self._statement(chosen, key, limit)
        return keyed_rows(unit.rows_or_errors(statement, {**values, **also}), self._key)

    def count(self, unit: Unit, given: Mapping[str, Any], *, also: Values = NO_VALUES) -> int:
        """Return how many rows match the filters ``given``, on all pages together."""
        chosen = {name: value for name, value in given.items() if value is not None}
        if self._is_empty(chosen):
            return 0
        statement, values = self._statement(chosen, None, 0)
        return int(unit.value(statement, {**values, **also}))

    def key(self, row: Mapping[str, Any]) -> list[Any]:
        """Return the key of a row: the row's values in the columns of the order."""
        return [row[name] for name in self._key]

    def key_of(self, chosen: Mapping[str, Any], page_token: str | None) -> list[Any] | None:
        """Return the key in a page token. Raises `InvalidValue` for a token of another list, or of other filters."""
        key = pages.decode_token([self._name, chosen], page_token)
        return None if key is None else self.checked_key(key)

    def checked_key(self, key: Sequence[Any]) -> list[Any]:
        """Return the key from a token, with its times parsed.

        Raises `InvalidValue` if it is not a key of this list.
        """
        return pages.check_key(key, self._kinds, nullable=True)

    @property
    def orders_by_time(self) -> bool:
        """True if the first column of the order is a time, for tests of query plans."""
        return self._kinds[0] is datetime

    def statement(self, chosen: Mapping[str, Any], *, paged: bool, limit: int = 51) -> Statement[RowT]:
        """Return the statement of a page with these filters, for tests of its plan.

        With a limit of 0, that of a count.
        """
        return self._statement(chosen, [None] * len(self._order) if paged else None, limit)[0]

    def _is_empty(self, chosen: Mapping[str, Any]) -> bool:
        """True if one of the filters is an empty sequence, which means that no row can match."""
        return any(not value and (name in self._spread or name in self._groups) for name, value in chosen.items())

    def _statement(
        self, chosen: Mapping[str, Any], key: Sequence[Any] | None, limit: int
    ) -> tuple[Statement[RowT], Row]:
        values: Row = {} if key is None else pages.after_values(key)
        several: list[tuple[str, _Sizes]] = []
        for name, value in chosen.items():
            if name in self._groups:
                valid.at_most(name, value, self._most)
                size = size_for(len(value))
                several.append((name, size))
                values |= self._groups[name].parameters_for(value, size)
                continue
            if name not in self._spread:
                values |= value if isinstance(value, Mapping) else {name: value}
                continue
            valid.at_most(name, value, self._most)
            unique = list(dict.fromkeys(value))
            if name in self._worded:
                several.append((name, tuple(sorted(unique))))
                continue
            size = size_for(len(unique))
            several.append((name, size))
            values |= padded_parameters(name, unique, size)
        shape = (self, frozenset(chosen), tuple(several), key is not None, limit)
        statement = SHAPES.get(shape)
        if statement is None:
            page = partial(self._compile_page, tuple(chosen), dict(several), key is not None, limit)
            statement = SHAPES.put(shape, Shaped(shape, page, row=self.row))
        return statement, values

    def _compile_page(
        self, names: Sequence[str], several: Mapping[str, Any], paged: bool, limit: int, backend: Backend
    ) -> Compiled:
        """Return the compiled page for these filters.

        SQL text that differs only in words and limits is compiled once and cached.
        """
        sizes = {name: size for name, size in several.items() if isinstance(size, int)}
        words = {name: size for name, size in several.items() if not isinstance(size, int)}
        leader = self._leader(names, several) if limit else None
        values = sizes.pop(leader.name) if leader and leader.parameters else 1
        fixed = frozenset(sizes.items())
        shape = (self, frozenset(names), fixed, paged, limit > 0, backend.key)
        form: Form | None = SHAPES.get(shape)
        if form is None:
            ranges = self._ranges(names, several, leader, paged=paged, counted=not limit, backend=backend)
            form = Form(ranges, leader, self._key, backend, descending=self._descending)
            SHAPES.put(shape, form, form.size)
        return form.fill_page(words, values, limit)

    def _leader(self, names: Sequence[str], several: Mapping[str, Any]) -> Leader | None:
        """Return the filter whose values are read as separate index ranges, if there is one."""
        for name in self._range_names(several):
            if name in self._groups:
                return self._groups[name].leader(name, several[name])
            column = self._spread[name]
            if name in self._worded:
                same = Leading if name == self._leading else operators.eq
                return Leader(name, [same(column, words_of(name))], worded=True)
            return Leader(name, [column == bind(f"{name}_0", column)], (name,))
        return next((Leader(name, self._either[name]) for name in names if name in self._either), None)

    def _range_names(self, several: Mapping[str, Any]) -> list[str]:
        return sorted(several.keys() - self._walked, key=lambda name: (name in self._groups, name))

    def _ranges(
        self,
        names: Sequence[str],
        several: Mapping[str, Any],
        leader: Leader | None,
        *,
        paged: bool,
        counted: bool,
        backend: Backend,
    ) -> list[sa.Select[Any]]:
        """Return the SELECTs of the leader's first value, with marks in place of that value.

        For a count, return its one SELECT.
        """
        finding = None
        if self._covering and backend.large_values_in_rows and (narrow := self._covering.narrow(names)):
            finding = SelfJoin(self._covering, narrow, self._order)
        conditions = [*self._always, *(self._filters[name] for name in names if name in self._filters)]
        if paged:
            order = self._order if finding else self._sorting
            conditions.append(pages.after(order, descending=self._descending))
        others = [*sorted(self._walked & several.keys()), *self._range_names(several)]
        others += [name for name in names if name in self._either]
        conditions += [self._any_of(name, several.get(name)) for name in others if not leader or name != leader.name]
        if counted:
            return [self._select_count(conditions)]
        leading = leader.conditions if leader else [sa.true()]
        return [self._range([*conditions, *([one] if leader else [])], finding) for one in leading]

    def _select_count(self, conditions: Sequence[sa.ColumnElement[bool]]) -> sa.Select[Any]:
        source = self._source if self._source is not None else self._order[0].table
        return sa.select(sa.func.count()).select_from(source).where(*conditions)

    def _any_of(self, name: str, size: Any) -> sa.ColumnElement[bool]:
        """Return the condition that a row matches a filter of several values."""
        if name in self._either:
            return sa.or_(*self._either[name])
        if name in self._groups:
            return self._groups[name].any_of(size)
        column = self._spread[name]
        if name in self._worded:
            found: sa.ColumnElement[bool] = column.in_([words_of(name)])
            return found
        return AnyOf(name, column, size).condition

    def _range(self, conditions: Sequence[sa.ColumnElement[bool]], finding: SelfJoin | None) -> sa.Select[Any]:
        led = [condition.left for condition in conditions if isinstance(condition, Leading)]
        if finding is not None:
            found = finding.select(self._shown, conditions)
            return found.order_by(*map(finding.rewrite_element, self._directions([*led, *self._order]))).limit(
                limit_mark()
            )
        shown = sa.select(*self._shown).where(*conditions)
        if self._source is not None:
            shown = shown.select_from(self._source)
        if self._through:
            shown = through(shown, self._order[0].table, self._through)
        return shown.order_by(*self._directions([*led, *self._sorting])).limit(limit_mark())

    def _directions(self, order: Sequence[sa.ColumnElement[Any]]) -> list[sa.ColumnElement[Any]]:
        return [column.desc() if self._descending else column.asc() for column in order]
