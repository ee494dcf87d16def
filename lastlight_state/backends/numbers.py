"""Numbers in SQL, where the products disagree about them."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement


class nearest(FunctionElement[int]):  # noqa: N801 - reads as the SQL function that it stands for
    """The whole number nearest to a float below 2**53, a half to the even one: what Python's ``round`` gives.

    Postgres rounds floats so by itself. On SQLite ``round`` takes a half away from zero, so the half is looked at.
    """

    type = sa.BigInteger()
    inherit_cache = True


@compiles(nearest, "sqlite")
def _on_sqlite(element: nearest, compiler: SQLCompiler, **options: Any) -> str:
    number = compiler.process(*element.clauses, **options)
    whole = f"CAST({number} AS INTEGER)"
    rest = f"(abs({number}) - abs({whole}))"
    away = f"(CASE WHEN {number} < 0 THEN -1 ELSE 1 END)"
    return f"(CASE WHEN {rest} > 0.5 OR ({rest} = 0.5 AND {whole} % 2 <> 0) THEN {whole} + {away} ELSE {whole} END)"


@compiles(nearest, "postgresql")
def _on_postgres(element: nearest, compiler: SQLCompiler, **options: Any) -> str:
    return f"CAST(round({compiler.process(*element.clauses, **options)}) AS BIGINT)"
