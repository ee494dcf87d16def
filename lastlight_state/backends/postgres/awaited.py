"""A caller's asynchronous connection of psycopg, used as the synchronous one is.

SQLAlchemy runs synchronous code in a greenlet of the event loop. A connection of its asynchronous engines takes from
there what has to be awaited, by ``run_async``.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Self

from sqlalchemy.engine import Connection

from lastlight_state.backends.base import Backend, Checkout, Mode
from lastlight_state.backends.statement_log import logged

Run = Callable[[Callable[[Any], Awaitable[Any]]], Any]


def of_caller(connection: Connection, backend: Backend) -> Checkout:
    """Return a checkout on a caller's connection, as it is. The log is told of statements as the backend says."""
    driver: Any = connection.connection.dbapi_connection
    if connection.dialect.is_async:
        driver = AwaitedConnection(driver)
    checkout = Checkout.of(driver, Mode.WRITE, owner=connection.connection)
    checkout.is_awaited = connection.dialect.is_async
    checkout.execute = logged(checkout.execute, backend)
    return checkout


class AwaitedConnection:
    """The driver's connection below one of SQLAlchemy's."""

    def __init__(self, adapted: Any) -> None:
        self._run: Run = adapted.run_async
        self._raw = adapted.driver_connection

    def __getattr__(self, name: str) -> Any:
        return getattr(self._raw, name)

    def execute(self, sql: Any, params: Any = None) -> _Cursor:
        return _Cursor(self._run, self._run(lambda raw: raw.execute(sql, params)))

    def cursor(self) -> _Cursor:
        return _Cursor(self._run, self._raw.cursor())


class _Cursor:
    def __init__(self, run: Run, cursor: Any) -> None:
        self._run = run
        self._cursor = cursor

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cursor, name)

    def fetchall(self) -> Any:
        return self._run(lambda _: self._cursor.fetchall())

    def fetchone(self) -> Any:
        return self._run(lambda _: self._cursor.fetchone())

    def copy(self, sql: Any) -> _Copy:
        return _Copy(self._run, self._cursor.copy(sql))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._run(lambda _: self._cursor.close())


class _Copy:
    def __init__(self, run: Run, block: Any) -> None:
        self._run = run
        self._block = block
        self._copy: Any = None

    def write(self, rows: str) -> None:
        self._run(lambda _: self._copy.write(rows))

    def __enter__(self) -> Self:
        self._copy = self._run(lambda _: self._block.__aenter__())
        return self

    def __exit__(self, *raised: object) -> None:
        self._run(lambda _: self._block.__aexit__(*raised))
