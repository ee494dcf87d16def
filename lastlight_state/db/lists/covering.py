"""Lists of tables with large values, for databases that store large values inside the row (SQLite).

To read a column stored behind a large value, SQLite must walk the whole value. So a list finds its rows through a
narrow index, and reads the values to show from a covering index. The two are joined by the first columns of the
covering index. From the row itself, such a statement reads only columns before the first large value.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.elements import Grouping
from sqlalchemy.sql.selectable import Join
from sqlalchemy.sql.visitors import replacement_traverse

from lastlight_state.db.schema.indexes import through


@dataclass(frozen=True)
class NarrowIndex:
    """An index that finds rows. It names the columns that conditions read from it, apart from those of the order.

    ``only`` is the predicate of a partial index whose columns the conditions do not name. ``ordered`` is False for an
    index that does not have the columns of the order.
    """

    index: str
    columns: tuple[str, ...] = ()
    only: sa.ColumnElement[bool] | None = None
    ordered: bool = True


@dataclass(frozen=True)
class JoinedTable:
    """Another table whose columns a list shows, and the index that has those columns. This table is read last."""

    table: sa.Table
    index: str

    def after(self, source: sa.FromClause) -> sa.FromClause:
        """Join this table after ``source``. The list's own conditions state which columns must be equal."""
        first: Any = source.left if isinstance(source, Join) else source
        return _InOrder(source, self.table, _Few(sa.func.typeof(next(iter(first.c))) != sa.literal_column("''")))


@dataclass(frozen=True)
class Covering:
    """The covering index of a list. ``key`` names its first columns, which identify a row.

    ``found_by`` maps a filter's name to the narrow index that finds rows by it. The first entry whose filter is given
    is used, or else the entry with the name "". If that entry is None or missing, the statement needs no join. ``only``
    is the predicate of a partial index.
    """

    index: str
    key: tuple[str, ...]
    found_by: Mapping[str, NarrowIndex | None]
    only: sa.ColumnElement[bool] | None = None
    other: JoinedTable | None = None

    def narrow(self, given: Collection[str]) -> NarrowIndex | None:
        """Return the narrow index that finds rows for these filters; None if none is needed."""
        return next((narrow for name, narrow in self.found_by.items() if name in given or not name), None)


class _InOrder(Join):
    """A join whose left side is read first. SQLite keeps the order of tables only in a CROSS JOIN."""

    inherit_cache = True


@compiles(_InOrder)
def _joined_in_order(element: _InOrder, compiler: SQLCompiler, **options: Any) -> str:
    as_sides = {**options, "asfrom": True}
    left, right = (compiler.process(side, **as_sides) for side in (element.left, element.right))
    on = compiler.process(element.onclause)  # type: ignore[arg-type]  # every one has a condition
    return f"{left} CROSS JOIN {right} ON {on}"


class _Few(Grouping[bool]):
    """A condition that is true of every row, although SQLite's planner estimates that few rows meet it.

    If the planner expects more look-ups in a table than the table has rows, it first reads the whole table to build a
    Bloom filter. With the statistics of a small database, it would always expect that.
    """

    inherit_cache = True


@compiles(_Few, "sqlite")
def _unlikely(element: _Few, compiler: SQLCompiler, **options: Any) -> str:
    return f"likelihood({compiler.process(element.element, **options)}, 0.000001)"


class SelfJoin:
    """A join of a table with itself: one side finds the rows, the other shows them."""

    def __init__(self, covering: Covering, narrow: NarrowIndex, order: Sequence[sa.Column[Any]]) -> None:
        self._covering = covering
        self._narrow = narrow
        self._table: Any = order[0].table
        self._found = self._table.alias("found")
        self._names = {*narrow.columns, *covering.key, *(column.name for column in order if narrow.ordered)}

    def select(
        self, shown: Sequence[sa.ColumnElement[Any]], conditions: Sequence[sa.ColumnElement[bool]]
    ) -> sa.Select[Any]:
        """Return the SELECT of the rows that meet the conditions.

        It reads the columns of the narrow index from that index.
        """
        covering, other = self._covering, self._covering.other
        same = sa.and_(*(self._table.c[name] == self._found.c[name] for name in covering.key))
        source: sa.FromClause = _InOrder(self._found, self._table, same)
        selected = sa.select(*map(self.rewrite_element, shown)).select_from(other.after(source) if other else source)
        selected = selected.where(*map(self.rewrite_element, conditions), *self._predicates())
        selected = through(selected, self._found, self._narrow.index)
        selected = through(selected, self._table, covering.index)
        return through(selected, other.table, other.index) if other else selected

    def _predicates(self) -> Iterator[sa.ColumnElement[bool]]:
        """Yield the predicates of the partial indexes.

        The statement must repeat them, or SQLite does not use the indexes.
        """
        if self._narrow.only is not None:
            yield replacement_traverse(self._narrow.only, {}, self._of_found)
        if self._covering.only is not None:
            yield self._covering.only

    def rewrite_element(self, element: Any) -> Any:
        """Rewrite an SQL element so that it reads the columns of the narrow index from that index."""
        return replacement_traverse(element, {}, self._replacement)

    def _replacement(self, element: Any, **_: Any) -> Any:
        return self._of_found(element) if getattr(element, "name", None) in self._names else None

    def _of_found(self, element: Any, **_: Any) -> Any:
        if isinstance(element, sa.Column) and element.table is self._table:
            return self._found.c[element.name]
        return None
