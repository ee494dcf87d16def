"""A caller's connection of aiosqlite, used as the driver's own is: each call is made on its thread, with all its rows.

As `lastlight_state.backends.postgres.awaited`.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from lastlight_state.backends.sqlite.reading import fetched

T = TypeVar("T")


class AwaitedConnection:
    """The driver's connection below one of SQLAlchemy's."""

    def __init__(self, adapted: Any) -> None:
        self._adapted = adapted

    @property
    def in_transaction(self) -> bool:
        return bool(self._raw.in_transaction)

    def execute(self, sql: str, params: Any = ()) -> _Result:
        return self._made(lambda driver: _Result(driver.execute(sql, params)))

    def executemany(self, sql: str, params: Any) -> _Result:
        return self._made(lambda driver: _Result(driver.executemany(sql, params)))

    def setconfig(self, option: int, on: bool) -> None:
        self._made(lambda driver: driver.setconfig(option, on))

    def cursor(self) -> AwaitedConnection:
        """Return the connection itself: no rows are left unread, so a cursor would have nothing of its own."""
        return self

    def close(self) -> None:
        """Do nothing: there is nothing to close."""

    @property
    def _raw(self) -> Any:
        return self._adapted.driver_connection

    def _made(self, call: Callable[[Any], T]) -> T:
        def on_its_thread(raw: Any) -> Any:
            return raw._execute(lambda: call(raw._conn))

        try:
            made: T = self._adapted.run_async(on_its_thread)
        except ValueError as error:  # so aiosqlite says that it is closed
            raise sqlite3.ProgrammingError(str(error)) from error
        return made


class _Result:
    """What a statement gave."""

    def __init__(self, cursor: sqlite3.Cursor) -> None:
        self._rows = iter(fetched(cursor))
        self.rowcount = cursor.rowcount
        cursor.close()

    def __iter__(self) -> Iterator[Any]:
        return self._rows

    def fetchone(self) -> Any:
        return next(self._rows, None)

    def fetchall(self) -> list[Any]:
        return list(self._rows)
