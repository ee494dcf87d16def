"""Pieces of texts in SQL, which each product names in its own way."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement


class before(FunctionElement[str]):  # noqa: N801 - reads as the SQL function that it stands for
    """What stands in a text before the first mark; NULL where the mark does not occur."""

    type = sa.Text()
    inherit_cache = True


@compiles(before, "sqlite")
def _on_sqlite(element: before, compiler: SQLCompiler, **options: Any) -> str:
    text, mark = (compiler.process(clause, **options) for clause in element.clauses)
    return f"CASE WHEN instr({text}, {mark}) > 0 THEN substr({text}, 1, instr({text}, {mark}) - 1) END"


@compiles(before, "postgresql")
def _on_postgres(element: before, compiler: SQLCompiler, **options: Any) -> str:
    text, mark = (compiler.process(clause, **options) for clause in element.clauses)
    return f"CASE WHEN strpos({text}, {mark}) > 0 THEN split_part({text}, {mark}, 1) END"
