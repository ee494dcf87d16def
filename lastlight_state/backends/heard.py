"""Statements told to the listeners of a caller's engine, as SQLAlchemy tells them of its own.

What a service has for its queries, such as tracing, sees ours too: ``before_cursor_execute``, ``after_cursor_execute``
and ``handle_error``. Where nobody listens, nothing is in the way.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from sqlalchemy.engine import Connection, Engine, ExceptionContext, ExecutionContext

from lastlight_state.backends.base import Checkout


def hear(checkout: Checkout, source: Engine | Connection) -> None:
    """Tell the listeners of an engine, or of a connection and its engine, what a unit executes."""
    events: Any = source.dispatch
    if events.before_cursor_execute or events.after_cursor_execute:
        connection = source if isinstance(source, Connection) else Connection(source, connection=checkout.owner)
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
