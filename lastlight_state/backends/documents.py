"""Many values in one parameter: a JSON array of objects, read as rows, which each product does in its own way.

A statement that takes any number of values so stays one statement, and is compiled once.
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement


class elements_of(FunctionElement[Any]):  # noqa: N801 - reads as the SQL function that it stands for
    """The elements of a JSON array, given as text, one a row: ``elements_of(text).table_valued("value")``."""

    inherit_cache = True


class member_of(FunctionElement[str]):  # noqa: N801
    """The member ``key`` of a JSON object as text; NULL where it is null or absent."""

    type = sa.Text()
    inherit_cache = False

    def __init__(self, document: sa.ColumnElement[Any], key: str) -> None:
        if not key.isidentifier():
            raise ValueError(key)
        super().__init__(document)
        self.member = key


@compiles(elements_of, "sqlite")
def _elements_on_sqlite(element: elements_of, compiler: SQLCompiler, **options: Any) -> str:
    return f"json_each({compiler.process(element.clauses, **options)})"


@compiles(elements_of, "postgresql")
def _elements_on_postgres(element: elements_of, compiler: SQLCompiler, **options: Any) -> str:
    return f"jsonb_array_elements(CAST({compiler.process(element.clauses, **options)} AS JSONB))"


@compiles(member_of, "sqlite")
def _member_on_sqlite(element: member_of, compiler: SQLCompiler, **options: Any) -> str:
    return f"json_extract({compiler.process(element.clauses, **options)}, '$.{element.member}')"


@compiles(member_of, "postgresql")
def _member_on_postgres(element: member_of, compiler: SQLCompiler, **options: Any) -> str:
    return f"({compiler.process(element.clauses, **options)} ->> '{element.member}')"
