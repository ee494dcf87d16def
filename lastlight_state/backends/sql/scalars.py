"""Functions on single values in SQL that each product writes in its own way: rounding, times and pieces of texts."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement


class nearest(FunctionElement[int]):  # noqa: N801 - reads as the SQL function that it stands for
    """The whole number nearest to a float below 2**53, a half to the even one: what Python's ``round`` gives.

    Postgres does so by itself. SQLite's ``round`` takes a half away from zero, so a half is handled apart.
    """

    type = sa.BigInteger()
    inherit_cache = True


@compiles(nearest, "sqlite")
def _nearest_on_sqlite(element: nearest, compiler: SQLCompiler, **options: Any) -> str:
    number = compiler.process(*element.clauses, **options)
    whole = f"CAST({number} AS INTEGER)"
    rest = f"(abs({number}) - abs({whole}))"
    away = f"(CASE WHEN {number} < 0 THEN -1 ELSE 1 END)"
    return f"(CASE WHEN {rest} > 0.5 OR ({rest} = 0.5 AND {whole} % 2 <> 0) THEN {whole} + {away} ELSE {whole} END)"


@compiles(nearest, "postgresql")
def _nearest_on_postgres(element: nearest, compiler: SQLCompiler, **options: Any) -> str:
    return f"CAST(round({compiler.process(*element.clauses, **options)}) AS BIGINT)"


class millis_between(FunctionElement[int]):  # noqa: N801 - reads as the SQL function that it stands for
    """Whole milliseconds from the first time to the second; negative when that is earlier, NULL when one is NULL."""

    type = sa.BigInteger()
    inherit_cache = True


@compiles(millis_between, "sqlite")
def _millis_on_sqlite(element: millis_between, compiler: SQLCompiler, **options: Any) -> str:
    start, end = (compiler.process(clause, **options) for clause in element.clauses)
    return f"CAST(round((julianday({end}) - julianday({start})) * 86400000) AS INTEGER)"


@compiles(millis_between, "postgresql")
def _millis_on_postgres(element: millis_between, compiler: SQLCompiler, **options: Any) -> str:
    start, end = (compiler.process(clause, **options) for clause in element.clauses)
    return f"CAST(round(EXTRACT(epoch FROM ({end} - {start})) * 1000) AS BIGINT)"


class utc_bucket(FunctionElement[str]):  # noqa: N801 - reads as the SQL function that it stands for
    """The first characters of a time's ISO-8601 text in UTC: ``utc_bucket(time, 10)`` its day, 13 its hour."""

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


class before(FunctionElement[str]):  # noqa: N801 - reads as the SQL function that it stands for
    """The part of a text before the first ``mark``; NULL where the mark does not occur."""

    type = sa.Text()
    inherit_cache = True


@compiles(before, "sqlite")
def _before_on_sqlite(element: before, compiler: SQLCompiler, **options: Any) -> str:
    text, mark = (compiler.process(clause, **options) for clause in element.clauses)
    return f"CASE WHEN instr({text}, {mark}) > 0 THEN substr({text}, 1, instr({text}, {mark}) - 1) END"


@compiles(before, "postgresql")
def _before_on_postgres(element: before, compiler: SQLCompiler, **options: Any) -> str:
    text, mark = (compiler.process(clause, **options) for clause in element.clauses)
    return f"CASE WHEN strpos({text}, {mark}) > 0 THEN split_part({text}, {mark}, 1) END"


class bytes_of(FunctionElement[int]):  # noqa: N801 - reads as the SQL function that it stands for
    """The bytes of a value's text, as the product writes it."""

    type = sa.BigInteger()
    inherit_cache = True


@compiles(bytes_of, "sqlite")
def _bytes_on_sqlite(element: bytes_of, compiler: SQLCompiler, **options: Any) -> str:
    return f"length(CAST({compiler.process(*element.clauses, **options)} AS BLOB))"


@compiles(bytes_of, "postgresql")
def _bytes_on_postgres(element: bytes_of, compiler: SQLCompiler, **options: Any) -> str:
    return f"octet_length(CAST({compiler.process(*element.clauses, **options)} AS TEXT))"
