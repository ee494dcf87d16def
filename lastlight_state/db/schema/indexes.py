"""Partial indexes for both databases, indexes for one product only, and conditions that make planners use an index."""

from __future__ import annotations

from typing import Any, Literal, cast

from sqlalchemy import (
    Alias,
    BinaryExpression,
    ColumnElement,
    FromClause,
    Index,
    Join,
    Select,
    SelectBase,
    case,
    false,
    func,
    literal_column,
    text,
    true,
)
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql import operators
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.elements import Grouping

#: The key in an index's ``info`` for the name of the only product that has the index.
ONLY = "only"


def where(predicate: str, *, postgresql: str | None = None) -> dict[str, Any]:
    """Return the options that make an `Index` partial. Planners use it only for statements that repeat its predicate.

    ``postgresql`` is the predicate as Postgres writes it, if that differs, as it does for booleans.
    """
    return {"sqlite_where": text(predicate), "postgresql_where": text(postgresql or predicate)}


def through(statement: Select[Any], table: FromClause, index: str) -> Select[Any]:
    """Add a hint to the statement that makes SQLite read the table through this index.

    Without statistics, SQLite's planner prefers any equality to the order of a partial index, and then has to sort.
    """
    return statement.with_hint(table, f"INDEXED BY {index}", "sqlite")


class RepeatedPredicate(Grouping[bool]):
    """The predicate of a partial index that only SQLite has, repeated in a statement so that SQLite uses it.

    On other databases it is TRUE, because the predicate would mislead their planner's estimate and help nothing.
    """

    inherit_cache = True


@compiles(RepeatedPredicate, "postgresql")
def _true(_element: RepeatedPredicate, _compiler: SQLCompiler, **_options: Any) -> str:
    return "true"


def first_chars(column: ColumnElement[str], chars: int) -> ColumnElement[str]:
    """Return the first characters of a text column, short enough for an index entry."""
    return func.substr(column, literal_column("1"), literal_column(str(chars)), type_=column.type)


def hide_from_indexes(condition: ColumnElement[bool]) -> ColumnElement[bool]:
    """Rewrite the condition so that no index can serve it, for statements that must find their rows by key."""
    return case((condition, true()), else_=false())


class Leading(BinaryExpression[bool]):
    """An equality with the first column of a composite index, written so that planners read the index in its order.

    ORDER BY must name the column as well, in the direction of the columns that follow it in the index. With ``=``,
    Postgres drops the column from ORDER BY and may then walk the primary key, through all rows that do not match. ``IN
    (v, v)`` prevents that. SQLite uses the index with ``=``, and is faster with it.
    """

    inherit_cache = False

    def __init__(self, column: ColumnElement[Any], value: ColumnElement[Any]) -> None:
        super().__init__(column, value, operators.eq)


@compiles(Leading, "postgresql")
def _compile_leading(element: Leading, compiler: SQLCompiler, **options: Any) -> str:
    return compiler.process(element.left.in_([element.right, element.right]), **options)


class AmongFew(BinaryExpression[bool]):
    """A condition that a key is among the few keys that a correlated subquery finds.

    On Postgres it is written as ``= ANY (ARRAY(…))``, which looks the keys up by their index; with ``IN`` Postgres
    would scan the table.
    """

    inherit_cache = False

    def __init__(self, key: ColumnElement[Any], found: SelectBase) -> None:
        super().__init__(key, found.scalar_subquery(), operators.in_op)


@compiles(AmongFew, "postgresql")
def _in_array(element: AmongFew, compiler: SQLCompiler, **options: Any) -> str:
    return f"{compiler.process(element.left, **options)} = ANY (ARRAY{compiler.process(element.right, **options)})"


class LookedUp(Join):
    """A join of a few rows, given in a parameter, with the table rows that each of them finds by an index.

    On Postgres the table, which is an alias, is looked up for each row. A plain join would scan the table, because the
    planner does not know how few rows there are. On SQLite the few rows are read first. Otherwise version 3.53 would
    scan the table, judging by its statistics.
    """

    inherit_cache = True


@compiles(LookedUp, "sqlite")
def _few_first(element: LookedUp, compiler: SQLCompiler, **options: Any) -> str:
    few, table = (compiler.process(one, **{**options, "asfrom": True}) for one in (element.left, element.right))
    found = compiler.process(element.onclause, **options)  # type: ignore[arg-type]  # every one has a condition
    return f"{few} {'LEFT' if element.isouter else 'CROSS'} JOIN {table} ON {found}"


@compiles(LookedUp, "postgresql")
def _lateral(element: LookedUp, compiler: SQLCompiler, **options: Any) -> str:
    parts: tuple[Any, ...] = (element.left, element.right, element.onclause)
    few, table, found = (compiler.process(one, **options) for one in parts)
    quote, name = compiler.preparer.quote, cast("Alias", element.right).name
    shown = ", ".join(f"{quote(name)}.{quote(column.name)}" for column in element.right.columns)
    join, condition = ("LEFT JOIN", " ON true") if element.isouter else ("CROSS JOIN", "")
    return f"{few} {join} LATERAL (SELECT {shown} FROM {table} WHERE {found} OFFSET 0) AS {quote(name)}{condition}"


def only(product: Literal["sqlite", "postgresql"], index: Index) -> None:
    """Declare that the index exists on one product only, because on the other it costs more than it helps."""
    index.ddl_if(dialect=product)
    index.info[ONLY] = product
