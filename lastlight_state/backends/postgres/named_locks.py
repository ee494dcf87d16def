"""Locks that have a name and no row: advisory locks of Postgres, which last as long as a transaction."""

from __future__ import annotations

from typing import Any

import psycopg
from psycopg.pq import TransactionStatus

from lastlight_state import tracing
from lastlight_state.backends.named_locks import NamedLocks
from lastlight_state.backends.postgres.errors import translate

BEGIN_WRITE = "BEGIN ISOLATION LEVEL READ COMMITTED"
_LOCK = (
    "SELECT pg_advisory_xact_lock(hashtextextended("
    "'lastlight_state:' || coalesce(%s::text, current_schema()::text) || ':' || %s::text, 0))"
)


class PostgresLocks(NamedLocks):
    """The part of the backend that holds named locks."""

    schema: str | None
    locks_in_one_trip = psycopg.Pipeline.is_supported()

    def named_lock(self, checkout: Any, name: str) -> None:
        try:
            tracing.timed("named", checkout.driver.execute, _LOCK, (self.schema, name))
        except psycopg.Error as error:
            raise translate(error) from error

    def locked(self, checkout: Any, name: str, sql: str, parameters: Any) -> Any:
        return tracing.timed("named", self._locked, checkout, name, sql, parameters)

    def _locked(self, checkout: Any, name: str, sql: str, parameters: Any) -> Any:
        driver = checkout.driver
        commits = driver.pgconn.transaction_status == TransactionStatus.IDLE
        with driver.pipeline():  # each statement of it has a snapshot of its own, so the second sees who held the lock
            if commits:
                driver.execute(BEGIN_WRITE)
            driver.execute(_LOCK, (self.schema, name))
            cursor = checkout.execute(sql, parameters)
            if commits:
                driver.execute("COMMIT")
        return cursor
