"""Indexes for both databases: partial ones said once, and those that only one of the two needs."""

from __future__ import annotations

from typing import Any, Literal

from sqlalchemy import BinaryExpression, BindParameter, Column, FromClause, Index, Select, text
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql import operators
from sqlalchemy.sql.compiler import SQLCompiler

ONLY = "only"
"""The key in an index's ``info`` that holds the name of the one product that has it."""


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


class Leading(BinaryExpression[bool]):
    """Equality with the first column of the index whose order is wanted; the order names that column too.

    With a plain equality Postgres takes the column's part of the order for given. Then the primary key would do for
    the rest, and where many rows are equal it walks that one backwards, through everything that is not. A list, of
    the value and the value again, leaves only the index. On SQLite a plain equality reads by that index, and faster.
    """

    inherit_cache = False

    def __init__(self, column: Column[Any], value: BindParameter[Any]) -> None:
        super().__init__(column, value, operators.eq)


@compiles(Leading, "postgresql")
def _listed(element: Leading, compiler: SQLCompiler, **options: Any) -> str:
    return compiler.process(element.left.in_([element.right, element.right]), **options)


def only(product: Literal["sqlite", "postgresql"], index: Index) -> None:
    """Declare that the index exists on one product alone, because it costs more than it brings on the other."""
    index.ddl_if(dialect=product)
    index.info[ONLY] = product
