"""Postgres databases with the original program's tables. Types, keys and checks are the server's, so rows are sound."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from lastlight_state.backends.facts import Entry, Form, Malformed
from lastlight_state.backends.sql.quoting import quoted

_UNIQUES = """
    SELECT n.conname FROM pg_constraint n JOIN pg_class c ON c.oid = n.conrelid
    WHERE n.contype = 'u' AND c.relname = %s AND c.relnamespace =
        (SELECT oid FROM pg_namespace WHERE nspname = current_schema())"""


class PostgresOriginal:
    """A `lastlight_state.backends.facts.Original` on a driver connection that is inside a transaction."""

    def __init__(self, driver: Any) -> None:
        self._driver = driver

    @contextmanager
    def limited(self) -> Iterator[None]:
        yield  # as the server is set: ``statement_timeout``

    def displacing(self, tables: Collection[str]) -> list[str]:
        return []  # what stands in a database on a server is its owner's

    def computing(self, tables: Collection[str], known: Collection[Entry]) -> list[str]:
        return []

    def damages(self) -> list[str]:
        return []

    def orphans(self) -> list[str]:
        return []

    def malformed(self, table: str, key: Sequence[str], column: str, form: Form) -> Malformed:
        return Malformed(0, ())

    def repair(self, table: str, column: str, form: Form) -> None:
        pass

    def loosen(self, table: str) -> int:
        for (name,) in self._driver.execute(_UNIQUES, (table,)).fetchall():
            self._driver.execute(f"ALTER TABLE {quoted(table)} DROP CONSTRAINT {quoted(name)}")
        return int(self._driver.execute(f"SELECT count(*) FROM {quoted(table)}").fetchone()[0])
