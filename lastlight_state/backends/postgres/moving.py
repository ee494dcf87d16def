"""Whole tables of Postgres, read and written by COPY for copies between databases."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import psycopg
from sqlalchemy import Column
from sqlalchemy.dialects.postgresql.psycopg import PGDialect_psycopg

from lastlight_state.backends.postgres.errors import translate
from lastlight_state.backends.sql.quoting import literal, quoted
from lastlight_state.backends.upkeep import Upkeep

_IDENTITY = "SELECT pg_postmaster_start_time()::text, current_database(), coalesce(%s, current_schema())"


class Moving(Upkeep):
    """The part of the backend that copies between databases use."""

    schema: str | None
    dialect: PGDialect_psycopg

    def stream(
        self, checkout: Any, sql: str, params: Mapping[str, Any], columns: Sequence[Column[Any]]
    ) -> Iterator[Sequence[Any]]:
        types = [str(column.type.compile(self.dialect).partition(" COLLATE ")[0]).lower() for column in columns]
        said = f"COPY ({sql}) TO STDOUT"
        with _translated(), checkout.driver.cursor() as cursor, cursor.copy(said, params) as copy:
            copy.set_types(types)
            try:
                yield from copy.rows()
            except psycopg.DataError as error:
                if error.sqlstate is None:  # the driver's own: a value that Python cannot hold
                    raise ValueError(str(error)) from error
                raise

    def load(self, checkout: Any, table: str, names: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
        sql = f"COPY {self._named(table)} ({', '.join(map(quoted, names))}) FROM STDIN"
        with _translated(), checkout.driver.cursor() as cursor, cursor.copy(sql) as copy:
            for row in rows:
                copy.write_row(row)

    def given(self, checkout: Any, table: str, column: str) -> int | None:
        with _translated():
            [(sequence,)] = checkout.driver.execute(f"SELECT {self._sequence(table, column)}")
            # Not pg_sequence_last_value: from version 18 on it answers NULL to a role that may not read the sequence.
            [(last, is_called)] = checkout.driver.execute(f"SELECT last_value, is_called FROM {sequence}")
        return last if is_called else None

    def advance(self, checkout: Any, table: str, column: str, last: int | None) -> None:
        greatest = f"SELECT max({quoted(column)}) FROM {self._named(table)}"
        names = f"SELECT setval({self._sequence(table, column)}, greatest(({greatest}), "
        sql = names.replace("%", "%%") + "%s::bigint))"
        with _translated():
            checkout.driver.execute(sql, (last,))  # NULL, of an empty table, changes nothing

    def analyze(self, checkout: Any, tables: Sequence[str]) -> None:
        with _translated():
            checkout.driver.execute(f"ANALYZE {', '.join(map(self._named, tables))}")

    def identity(self, checkout: Any) -> Hashable:
        with _translated():
            return tuple(checkout.driver.execute(_IDENTITY, (self.schema,)).fetchone())

    def _sequence(self, table: str, column: str) -> str:
        return f"pg_get_serial_sequence({literal(self._named(table))}, {literal(column)})"

    def _named(self, table: str) -> str:
        return f"{quoted(self.schema)}.{quoted(table)}" if self.schema else quoted(table)


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except psycopg.Error as error:
        raise translate(error) from error
