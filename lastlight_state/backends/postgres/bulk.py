"""Bulk inserts by COPY.

The driver would convert each row value by value, looking up a converter for each value's type. Here each column is
converted to text in one step, which takes a third of the time. Nearly always, all values of a column have one type and
need no escapes, so that one step is enough.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from typing import Any

import psycopg
from sqlalchemy import Column
from sqlalchemy.dialects.postgresql.psycopg import PGDialect_psycopg

from lastlight_state.backends.base import Checkout, Mode
from lastlight_state.backends.facts import Upkeep
from lastlight_state.backends.postgres.citus import Citus
from lastlight_state.backends.postgres.connections import product
from lastlight_state.backends.postgres.driver import translate_errors
from lastlight_state.backends.sql.expressions import literal, quote_name
from lastlight_state.clock import iso_text

# Whole tables of Postgres, read and written by COPY, for copies between databases.

#: What identifies products that claim to be Postgres: a function of Aurora's, settings of AlloyDB's.
_KINDS = "SELECT to_regproc('aurora_version') IS NOT NULL, EXISTS (SELECT FROM pg_settings WHERE name LIKE 'alloydb%')"
_IDENTITY = "SELECT pg_postmaster_start_time()::text, current_database(), coalesce(%s, current_schema())"


class Moving(Upkeep):
    """The part of the backend that is used to copy data between databases."""

    schema: str | None
    citus: Citus | None
    dialect: PGDialect_psycopg
    fill_in_schema: Callable[[str], str]

    def server(self) -> str:
        with translate_errors(), Checkout(Mode.READ, self) as checkout:  # type: ignore[arg-type]
            name = product(checkout.driver.info)
            aurora, alloy = checkout.driver.execute(_KINDS).fetchone()
        if self.citus is not None:
            return f"{name}, {self.citus}"
        return f"Aurora {name}" if aurora else f"AlloyDB, {name}" if alloy else name

    def versions(self) -> dict[str, str]:
        with translate_errors(), Checkout(Mode.READ, self) as checkout:  # type: ignore[arg-type]
            name, _, version = product(checkout.driver.info).partition(" ")
        return {name: version, "psycopg": psycopg.__version__}

    def stream(
        self, checkout: Any, sql: str, params: Mapping[str, Any], columns: Sequence[Column[Any]]
    ) -> Iterator[Sequence[Any]]:
        types = [str(column.type.compile(self.dialect).partition(" COLLATE ")[0]).lower() for column in columns]
        said = f"COPY ({self.fill_in_schema(sql)}) TO STDOUT"
        with translate_errors(), checkout.driver.cursor() as cursor, cursor.copy(said, params) as copy:
            copy.set_types(types)
            try:
                yield from copy.rows()
            except psycopg.DataError as error:
                if error.sqlstate is None:  # the driver's own error: a value that Python cannot hold
                    raise ValueError(str(error)) from error
                raise

    def load(self, checkout: Any, table: str, names: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
        sql = f"COPY {self._qualified_name(table)} ({', '.join(map(quote_name, names))}) FROM STDIN"
        with translate_errors(), checkout.driver.cursor() as cursor, cursor.copy(sql) as copy:
            for row in rows:
                copy.write_row(row)

    def last_number(self, checkout: Any, table: str, column: str) -> int | None:
        with translate_errors():
            [(sequence,)] = checkout.driver.execute(f"SELECT {self._sequence(table, column)}")
            # Not pg_sequence_last_value: from version 18 on it returns NULL to a role that may not read the sequence.
            [(last, is_called)] = checkout.driver.execute(f"SELECT last_value, is_called FROM {sequence}")
        return last if is_called else None

    def advance(self, checkout: Any, table: str, column: str, last: int | None) -> None:
        with translate_errors():
            [(most,)] = checkout.driver.execute(
                f"SELECT max({quote_name(column)}) FROM {self._qualified_name(table)}"
            ).fetchall()
            names = f"SELECT setval({self._sequence(table, column)}, greatest(".replace("%", "%%")
            checkout.driver.execute(names + "%s::bigint, %s::bigint))", (most, last))  # NULL changes nothing

    def analyze(self, checkout: Any, tables: Sequence[str]) -> None:
        with translate_errors():
            checkout.driver.execute(f"ANALYZE {', '.join(map(self._qualified_name, tables))}")

    def identity(self, checkout: Any) -> Hashable:
        with translate_errors():
            return tuple(checkout.driver.execute(_IDENTITY, (self.schema,)).fetchone())

    def _sequence(self, table: str, column: str) -> str:
        return f"pg_get_serial_sequence({literal(self._qualified_name(table))}, {literal(column)})"

    def _qualified_name(self, table: str) -> str:
        return f"{quote_name(self.schema)}.{quote_name(table)}" if self.schema else quote_name(table)


Values = Sequence[Any]

_NULL = r"\N"
#: Characters with a special meaning in the format of COPY, and their escapes.
_ESCAPES = {"\\": r"\\", "\n": r"\n", "\r": r"\r", "\t": r"\t"}


def copy_rows(driver: Any, table: str, names: Sequence[str], blocks: Iterator[Sequence[Values]]) -> None:
    """Insert rows, given in batches of columns, in their order. Raises the driver's errors; then no row is inserted.

    Each batch is sent before the next one is made. So the server stores one batch while this process makes the next.
    """
    columns = next(blocks, None)
    if columns is None:
        return
    sql = f"COPY {table} ({', '.join(map(quote_name, names))}) FROM STDIN"
    with driver.cursor() as cursor, cursor.copy(sql) as copy:
        while columns is not None:
            copy.write(_lines(columns))
            columns = next(blocks, None)


def _lines(columns: Sequence[Values]) -> str:
    rows = zip(*map(_texts, columns), strict=True)
    return "\n".join([*map("\t".join, rows), ""])


def _texts(column: Values) -> Sequence[str]:
    """Convert each value of a column to the text format of COPY."""
    kinds = {*map(type, column)}
    if kinds == {str} and _is_plain("".join(column)):
        return column
    first = column[0]
    same = _text(first)  # often all rows have one value, such as NULL or the present time
    return [same if value is first else _text(value) for value in column]


def _is_plain(text: str) -> bool:
    return not ("\\" in text or "\n" in text or "\t" in text or "\r" in text)


def _text(value: Any) -> str:
    if value is None:
        return _NULL
    write = _WRITTEN.get(type(value)) or next((_WRITTEN[kind] for kind in _WRITTEN if isinstance(value, kind)), None)
    if write is None:
        raise TypeError(f"values of type {type(value).__name__} cannot be stored in any column")
    return write(value)


def _escape_text(text: str) -> str:
    for character, written in _ESCAPES.items():
        text = text.replace(character, written)
    return text


def _bytes(value: bytes) -> str:
    return r"\\x" + value.hex()


_WRITTEN: dict[type, Callable[[Any], str]] = {
    str: _escape_text,
    bool: lambda value: "t" if value else "f",
    int: int.__repr__,
    float: float.__repr__,
    datetime: iso_text,
    bytes: _bytes,
    Decimal: lambda value: format(value, "f"),
}
