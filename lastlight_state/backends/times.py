"""Arithmetic on stored times in SQL, which each product writes in its own way."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement


class millis_between(FunctionElement[int]):  # noqa: N801 - reads as the SQL function that it stands for
    """Whole milliseconds from the first time to the second; negative when that is earlier, NULL when one is NULL."""

    type = sa.BigInteger()
    inherit_cache = True


@compiles(millis_between, "sqlite")
def _on_sqlite(element: millis_between, compiler: SQLCompiler, **options: Any) -> str:
    start, end = (compiler.process(clause, **options) for clause in element.clauses)
    return f"CAST(round((julianday({end}) - julianday({start})) * 86400000) AS INTEGER)"


@compiles(millis_between, "postgresql")
def _on_postgres(element: millis_between, compiler: SQLCompiler, **options: Any) -> str:
    start, end = (compiler.process(clause, **options) for clause in element.clauses)
    return f"CAST(round(EXTRACT(epoch FROM ({end} - {start})) * 1000) AS BIGINT)"


class utc_bucket(FunctionElement[str]):  # noqa: N801 - reads as the SQL function that it stands for
    """The first letters of a time's ISO-8601 text in UTC: ``utc_bucket(time, 10)`` its day, 13 its hour."""

    type = sa.Text()
    inherit_cache = True


@compiles(utc_bucket, "sqlite")
def _text_on_sqlite(element: utc_bucket, compiler: SQLCompiler, **options: Any) -> str:
    moment, length = (compiler.process(clause, **options) for clause in element.clauses)
    return f"substr({moment}, 1, {length})"


@compiles(utc_bucket, "postgresql")
def _text_on_postgres(element: utc_bucket, compiler: SQLCompiler, **options: Any) -> str:
    moment, length = (compiler.process(clause, **options) for clause in element.clauses)
    return f"substr(to_char({moment} AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24'), 1, {length})"
