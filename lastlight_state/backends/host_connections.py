"""The migration lock, and the schema, on a connection that belongs to a host application.

A host may use any driver and its own way to begin, so this speaks through SQLAlchemy, and makes sure that the
transaction it was given is one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from sqlalchemy import text
from sqlalchemy.engine import Connection, Dialect, Engine, ExceptionContext, ExecutionContext
from sqlalchemy.pool import StaticPool
from sqlalchemy.schema import CreateSchema

from lastlight_state.backends.base import Checkout
from lastlight_state.backends.sql.expressions import quoted
from lastlight_state.errors import InvalidValue
from lastlight_state.keys import composed

# Statements told to the listeners of a caller's engine, as SQLAlchemy tells them of its own.
#
# What a service has for its queries, such as tracing, sees ours too: ``before_cursor_execute``,
# ``after_cursor_execute`` and ``handle_error``. Where nobody listens, nothing is in the way.


def hear(checkout: Checkout, source: Engine | Connection) -> None:
    """Tell the listeners of an engine, or of a connection and its engine, what a unit executes."""
    events: Any = source.dispatch
    if events.before_cursor_execute or events.after_cursor_execute:
        connection = source if isinstance(source, Connection) else Connection(source, connection=checkout.owner)
        checkout.execute = _told(checkout.execute, checkout.driver, connection, events)


def hear_own(engine: Engine, checkout: Checkout) -> None:
    """Tell the listeners of an engine what a unit executes on a connection that the engine has not made."""
    events: Any = engine.dispatch
    if events.before_cursor_execute or events.after_cursor_execute:
        lent = StaticPool(lambda: checkout.driver, reset_on_return=None).connect()
        connection = Connection(engine, connection=lent)
        checkout.execute = _told(checkout.execute, checkout.driver, connection, events)


def _told(execute: Callable[..., Any], driver: Any, connection: Connection, events: Any) -> Callable[..., Any]:
    def told(statement: Any, parameters: Any = (), **options: Any) -> Any:
        cursor = driver.cursor()
        context = _Context(connection, cursor, statement, parameters)
        for listener in events.before_cursor_execute:
            statement, parameters = listener(connection, cursor, statement, parameters, context, False)
        try:
            found = execute(statement, *((parameters,) if parameters else ()), **options)
        except Exception as error:  # raised again once it is told
            failed = _Failed(context, error)
            for listener in connection.dialect.dispatch.handle_error:
                with suppress(Exception):  # what the library raises for it is its own business
                    listener(failed)
            raise
        for listener in events.after_cursor_execute:
            listener(connection, found, statement, parameters, context, False)
        return found

    return told


class _Context(ExecutionContext):
    """What listeners are told of a statement, and where they keep what is theirs."""

    def __init__(self, connection: Connection, cursor: Any, statement: Any, parameters: Any) -> None:
        self.connection = self.root_connection = connection
        self.engine, self.dialect = connection.engine, connection.dialect
        self.cursor, self.statement, self.parameters = cursor, statement, parameters
        self.execution_options = connection.get_execution_options()
        self.executemany = self.isinsert = self.isupdate = False
        self.compiled = self.invoked_statement = None


class _Failed(ExceptionContext):
    """What listeners are told of a statement that failed, with the driver's exception."""

    def __init__(self, context: _Context, error: BaseException) -> None:
        self.connection, self.engine, self.dialect = context.connection, context.engine, context.dialect
        self.cursor, self.statement, self.parameters = context.cursor, context.statement, context.parameters
        self.original_exception = error
        self.execution_context = context
        self.sqlalchemy_exception = self.chained_exception = None
        self.is_disconnect = self.invalidate_pool_on_disconnect = self.is_pre_ping = False


def hold_migration_lock(connection: Connection) -> None:
    """Keep other migrations out until the caller's transaction ends.

    On SQLite the usual driver begins no transaction for DDL, and a failure would leave half a revision behind; here it
    is begun, with the file's write lock. On Postgres the lock is the one that our own migrations take; how long it is
    waited for is the caller's ``lock_timeout``. Other products have what their backends give them.
    """
    if connection.dialect.name == "sqlite":
        driver = connection.connection.dbapi_connection
        if not getattr(driver, "in_transaction", True):
            connection.exec_driver_sql("BEGIN IMMEDIATE")
    elif connection.dialect.name == "postgresql":
        schema = connection.scalar(text("SELECT current_schema()"))
        connection.execute(text("SELECT pg_advisory_xact_lock(:number)"), {"number": lock_number(schema, "migration")})


@contextmanager
def inside(connection: Connection, schema: str | None) -> Iterator[None]:
    """Run a block in which everything is in the schema, which is made if missing. The setting of before comes back."""
    if schema is None:
        yield
        return
    _refuse_schema(connection.dialect)
    if connection.scalar(text("SELECT to_regnamespace(:name)"), {"name": quoted(schema)}) is None:
        connection.execute(CreateSchema(schema))
    before = connection.scalar(text("SELECT current_setting('search_path')"))
    enter = text("SELECT set_config('search_path', :path, true)")
    connection.execute(enter, {"path": f"{quoted(schema)}, pg_temp"})
    yield
    connection.execute(enter, {"path": before})


def written_inside(dialect: Dialect, schema: str | None, body: str) -> str:
    """Return the statements as part of a script's transaction in which they go to that schema, which is made."""
    if schema is None:
        return body
    _refuse_schema(dialect)
    path = f"SET LOCAL search_path TO {quoted(schema)}, pg_temp;"
    begin = f"CREATE SCHEMA IF NOT EXISTS {quoted(schema)};\n\n{path}"
    return f"{begin}\n\n{body}\n\nSET LOCAL search_path TO DEFAULT;"


def _refuse_schema(dialect: Dialect) -> None:
    if dialect.name != "postgresql":
        raise InvalidValue("schema", "only Postgres has schemas")


def lock_number(schema: str, name: str) -> int:
    """Return the number of an advisory lock on Postgres, from schema and name. Such locks are per database already."""
    digest = hashlib.sha256(composed("lastlight_state", schema, name, by=":").encode()).digest()
    return int.from_bytes(digest[:8], "big", signed=True)
