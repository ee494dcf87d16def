"""Migration lock and schema on a connection that belongs to a host application.

A host may use any driver and begin transactions in its own way. So this module works through SQLAlchemy, and makes sure
that a transaction is really open.
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
from lastlight_state.backends.sql.expressions import quote_name
from lastlight_state.errors import InvalidValue
from lastlight_state.keys import compose_key

# Reporting of statements to the listeners of a caller's engine, as SQLAlchemy reports its own.
#
# A service's listeners for queries, such as tracing, also see this library's: ``before_cursor_execute``,
# ``after_cursor_execute`` and ``handle_error``. Without listeners, execution is not wrapped.


def hear(checkout: Checkout, source: Engine | Connection) -> None:
    """Call the event listeners of an engine, or of a connection and its engine, for each statement of a unit."""
    events: Any = source.dispatch
    if events.before_cursor_execute or events.after_cursor_execute:
        connection = source if isinstance(source, Connection) else Connection(source, connection=checkout.owner)
        checkout.execute = _tell_listeners(checkout.execute, checkout.driver, connection, events)


def hear_own(engine: Engine, checkout: Checkout) -> None:
    """Call an engine's event listeners for each statement of a unit whose connection the engine did not make."""
    events: Any = engine.dispatch
    if events.before_cursor_execute or events.after_cursor_execute:
        lent = StaticPool(lambda: checkout.driver, reset_on_return=None).connect()
        connection = Connection(engine, connection=lent)
        checkout.execute = _tell_listeners(checkout.execute, checkout.driver, connection, events)


def _tell_listeners(
    execute: Callable[..., Any], driver: Any, connection: Connection, events: Any
) -> Callable[..., Any]:
    def execute_and_tell(statement: Any, parameters: Any = (), **options: Any) -> Any:
        cursor = driver.cursor()
        context = _Context(connection, cursor, statement, parameters)
        for listener in events.before_cursor_execute:
            statement, parameters = listener(connection, cursor, statement, parameters, context, False)
        try:
            found = execute(statement, *((parameters,) if parameters else ()), **options)
        except Exception as error:  # raised again after the listeners were told
            failed = _Failed(context, error)
            for listener in connection.dialect.dispatch.handle_error:
                with suppress(Exception):  # exceptions of the listening library are ignored
                    listener(failed)
            raise
        for listener in events.after_cursor_execute:
            listener(connection, found, statement, parameters, context, False)
        return found

    return execute_and_tell


class _Context(ExecutionContext):
    """The context object that event listeners receive for a statement. They may keep their own data in it."""

    def __init__(self, connection: Connection, cursor: Any, statement: Any, parameters: Any) -> None:
        self.connection = self.root_connection = connection
        self.engine, self.dialect = connection.engine, connection.dialect
        self.cursor, self.statement, self.parameters = cursor, statement, parameters
        self.execution_options = connection.get_execution_options()
        self.executemany = self.isinsert = self.isupdate = False
        self.compiled = self.invoked_statement = None


class _Failed(ExceptionContext):
    """The context object that event listeners receive for a failed statement. It has the driver's exception."""

    def __init__(self, context: _Context, error: BaseException) -> None:
        self.connection, self.engine, self.dialect = context.connection, context.engine, context.dialect
        self.cursor, self.statement, self.parameters = context.cursor, context.statement, context.parameters
        self.original_exception = error
        self.execution_context = context
        self.sqlalchemy_exception = self.chained_exception = None
        self.is_disconnect = self.invalidate_pool_on_disconnect = self.is_pre_ping = False


def hold_migration_lock(connection: Connection) -> None:
    """Keep other migrations out until the caller's transaction ends.

    On SQLite, the usual driver begins no transaction for DDL, so that a failure would leave half a revision behind. So
    a transaction is begun here, with the file's write lock. On Postgres it takes the same lock as this library's own
    migrations; the caller's ``lock_timeout`` limits the wait. Other products have only the lock that their backends
    provide.
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
    """Run a block in which all names refer to this schema, which is created if missing.

    Restore the former setting afterwards.
    """
    if schema is None:
        yield
        return
    _refuse_schema(connection.dialect)
    if connection.scalar(text("SELECT to_regnamespace(:name)"), {"name": quote_name(schema)}) is None:
        connection.execute(CreateSchema(schema))
    before = connection.scalar(text("SELECT current_setting('search_path')"))
    enter = text("SELECT set_config('search_path', :path, true)")
    connection.execute(enter, {"path": f"{quote_name(schema)}, pg_temp"})
    yield
    connection.execute(enter, {"path": before})


def written_inside(dialect: Dialect, schema: str | None, body: str) -> str:
    """Return SQL that creates the schema and runs the statements in it, for use in a transaction."""
    if schema is None:
        return body
    _refuse_schema(dialect)
    path = f"SET LOCAL search_path TO {quote_name(schema)}, pg_temp;"
    begin = f"CREATE SCHEMA IF NOT EXISTS {quote_name(schema)};\n\n{path}"
    return f"{begin}\n\n{body}\n\nSET LOCAL search_path TO DEFAULT;"


def _refuse_schema(dialect: Dialect) -> None:
    if dialect.name != "postgresql":
        raise InvalidValue("schema", "only Postgres has schemas")


def lock_number(schema: str, name: str) -> int:
    """Return the number of the Postgres advisory lock for a schema and a name.

    The server keeps advisory locks per database, so the number depends on the schema.
    """
    digest = hashlib.sha256(compose_key("lastlight_state", schema, name, by=":").encode()).digest()
    return int.from_bytes(digest[:8], "big", signed=True)
