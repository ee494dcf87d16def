"""Queries: read-only SQL for people.

The database itself refuses writes; the SQL text is not searched for forbidden words.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lastlight_state.backends.waiting import shorter_wait, within
from lastlight_state.db import valid
from lastlight_state.db.repository import Repository
from lastlight_state.db.units.unit import Unit
from lastlight_state.errors import InvalidValue, MisuseError
from lastlight_state.outputs import models
from lastlight_state.outputs.records import QueryRows

#: A query that begins within this many seconds has not waited.
_NO_WAIT = 0.01


class Query(Repository):
    """``store.outputs.query``: run read-only SQL."""

    def rows(
        self, sql: str, params: Mapping[str, Any] | None = None, *, limit: int = 500, timeout: float = 5.0
    ) -> QueryRows:
        """Return the rows of one SQL statement with parameters like ``:name``. Values are as the database stores them.

        Returns at most ``limit`` rows (500, up to 10,000). ``timeout`` is in seconds and includes waits for locks.
        Raises `ReadOnlyTransaction` for a statement that would write, and `InvalidValue` for a text that is not one
        statement that returns rows. Raises `MisuseError` in a transaction that writes: use its ``connection``.
        """
        most = valid.number("limit", limit, least=1, most=models.QUERY_ROWS)
        return self._run_query(sql, params, most, timeout, plan=False)

    def explain(self, sql: str, params: Mapping[str, Any] | None = None, *, timeout: float = 5.0) -> QueryRows:
        """Return the database's own plan of how it would execute a statement.

        The statement is not run. Errors as in `rows`.
        """
        return self._run_query(sql, params, models.QUERY_ROWS, timeout, plan=True)

    def _run_query(
        self, sql: str, params: Mapping[str, Any] | None, most: int, timeout: float, *, plan: bool
    ) -> QueryRows:
        text = valid.content("sql", sql, models.QUERY)
        if not text.strip():
            raise InvalidValue("sql", "must be one statement, not empty")
        seconds = _seconds(timeout)
        if self._scope.writes_now:
            raise MisuseError("a query reads by itself or in a view: inside a transaction use its connection")

        def ask(unit: Unit) -> QueryRows:
            columns, found = unit.backend.ask(
                unit, text, dict(params or {}), limit=most + 1, timeout=_seconds_left(seconds), plan=plan
            )
            kept = tuple(tuple(row) for row in found[:most])
            return QueryRows(columns=tuple(columns), rows=kept, truncated=len(found) > most)

        return within(seconds, lambda: self._viewing(ask))


def _seconds_left(seconds: float) -> float:
    """Return the seconds left of the timeout, rounded to milliseconds.

    If nothing was waited for, return all of them.
    """
    left = shorter_wait(seconds)
    return seconds if left is None or seconds - left < _NO_WAIT else max(round(left, 3), 0.001)


def _seconds(timeout: Any) -> float:
    if isinstance(timeout, bool) or not isinstance(timeout, int | float) or not 0 < timeout <= models.QUERY_SECONDS:
        raise InvalidValue("timeout", f"must be more than 0 and at most {models.QUERY_SECONDS} seconds")
    return float(timeout)
