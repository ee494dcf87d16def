"""Partial indexes for both databases, indexes of one product, and conditions that make planners use an index."""

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

#: The key in an index's ``info`` for the name of the only product that has it.
ONLY = "only"


def where(predicate: str, *, postgresql: str | None = None) -> dict[str, Any]:
    """Return the options that make an `Index` partial. A planner uses it only where a statement repeats the predicate.

    ``postgresql`` is the predicate as it is spelt there, if that differs; booleans do.
    """
    return {"sqlite_where": text(predicate), "postgresql_where": text(postgresql or predicate)}


def through(statement: Select[Any], table: FromClause, index: str) -> Select[Any]:
    """Return the statement, reading the table through this index on SQLite.

    Without statistics, SQLite's planner prefers any equality to the order of a partial index, and sorts.
    """
    return statement.with_hint(table, f"INDEXED BY {index}", "sqlite")


class RepeatedPredicate(Grouping[bool]):
    """The predicate of a partial index that SQLite alone has, repeated so that it may serve the statement.

    TRUE elsewhere, where it would only mislead the planner's estimate.
    """

    inherit_cache = True


@compiles(RepeatedPredicate, "postgresql")
def _true(_element: RepeatedPredicate, _compiler: SQLCompiler, **_options: Any) -> str:
    return "true"


def beginning(column: ColumnElement[str], chars: int) -> ColumnElement[str]:
    """Return the first characters of a text, as an index can hold them."""
    return func.substr(column, literal_column("1"), literal_column(str(chars)), type_=column.type)


def unindexed(condition: ColumnElement[bool]) -> ColumnElement[bool]:
    """Return the condition in a form that no index can serve, for statements that must find their rows by key."""
    return case((condition, true()), else_=false())


class Leading(BinaryExpression[bool]):
    """Equality with the first column of a composite index whose order is wanted. ORDER BY must name the column, too,
    in the direction of the columns behind it.

    Forces that index: with ``=``, Postgres drops the column from ORDER BY and may walk the primary key instead, through
    all rows that do not match; ``IN (v, v)`` prevents that. On SQLite ``=`` uses the index, and is faster.
    """

    inherit_cache = False

    def __init__(self, column: ColumnElement[Any], value: ColumnElement[Any]) -> None:
        super().__init__(column, value, operators.eq)


@compiles(Leading, "postgresql")
def _listed(element: Leading, compiler: SQLCompiler, **options: Any) -> str:
    return compiler.process(element.left.in_([element.right, element.right]), **options)


class AmongFew(BinaryExpression[bool]):
    """Whether a key is among the few that a correlated subquery finds.

    As ``= ANY (ARRAY(…))`` on Postgres, which looks such keys up by their index; for ``IN`` it would scan the table.
    """

    inherit_cache = False

    def __init__(self, key: ColumnElement[Any], found: SelectBase) -> None:
        super().__init__(key, found.scalar_subquery(), operators.in_op)


@compiles(AmongFew, "postgresql")
def _in_array(element: AmongFew, compiler: SQLCompiler, **options: Any) -> str:
    return f"{compiler.process(element.left, **options)} = ANY (ARRAY{compiler.process(element.right, **options)})"


class LookedUp(Join):
    """A few rows that a parameter holds, and those of a table that each of them finds by an index.

    On Postgres the table, which is an alias, is looked up for each: as a join it would be scanned, because nobody knows
    how few they are. On SQLite the few rows are read first: by its statistics 3.53 would scan the table.
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
    """Declare that the index exists on one product only, because it costs more than it helps on the other."""
    index.ddl_if(dialect=product)
    index.info[ONLY] = product
