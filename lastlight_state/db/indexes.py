"""Indexes for both databases: partial ones said once, and those that only one of the two needs."""

from __future__ import annotations

from typing import Any, Literal

from sqlalchemy import BinaryExpression, ColumnElement, FromClause, Index, Select, SelectBase, case, false, text, true
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql import operators
from sqlalchemy.sql.compiler import SQLCompiler

#: The key in an index's ``info`` that holds the name of the one product that has it.
ONLY = "only"


def where(predicate: str, *, postgresql: str | None = None) -> dict[str, Any]:
    """The options that make an `Index` partial. A planner uses it only where a statement repeats the predicate.

    ``postgresql`` is for the predicates that are spelt differently there, such as truth values.
    """
    return {"sqlite_where": text(predicate), "postgresql_where": text(postgresql or predicate)}


def through(statement: Select[Any], table: FromClause, index: str) -> Select[Any]:
    """The statement, reading the table through this index on SQLite.

    Its planner, as long as it has no statistics, takes any equality for better than the order of a partial index.
    """
    return statement.with_hint(table, f"INDEXED BY {index}", "sqlite")


def unindexed(condition: ColumnElement[bool]) -> ColumnElement[bool]:
    """The condition in a form that no planner takes for an index, where the rows are to be found by their keys."""
    return case((condition, true()), else_=false())


class Leading(BinaryExpression[bool]):
    """Equality with the first column of the index whose order is wanted; the order names that column too.

    With a plain equality Postgres takes the column's part of the order for given. Then the primary key would do for
    the rest, and where many rows are equal it walks that one backwards, through everything that is not. A list, of
    the value and the value again, leaves only the index. On SQLite a plain equality reads by that index, and faster.
    """

    inherit_cache = False

    def __init__(self, column: ColumnElement[Any], value: ColumnElement[Any]) -> None:
        super().__init__(column, value, operators.eq)


@compiles(Leading, "postgresql")
def _listed(element: Leading, compiler: SQLCompiler, **options: Any) -> str:
    return compiler.process(element.left.in_([element.right, element.right]), **options)


class AmongFew(BinaryExpression[bool]):
    """Whether a key is among the few that a subquery finds anew for each row of what it is joined to.

    Postgres looks such keys up by their index only when they come as an array; of an IN it would go through the table.
    """

    inherit_cache = False

    def __init__(self, key: ColumnElement[Any], found: SelectBase) -> None:
        super().__init__(key, found.scalar_subquery(), operators.in_op)


@compiles(AmongFew, "postgresql")
def _in_array(element: AmongFew, compiler: SQLCompiler, **options: Any) -> str:
    return f"{compiler.process(element.left, **options)} = ANY (ARRAY{compiler.process(element.right, **options)})"


def only(product: Literal["sqlite", "postgresql"], index: Index) -> None:
    """Declare that the index exists on one product alone, because it costs more than it brings on the other."""
    index.ddl_if(dialect=product)
    index.info[ONLY] = product
