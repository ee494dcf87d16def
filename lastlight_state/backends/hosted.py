"""The migration lock, and the schema, on a connection that belongs to a host application.

A host may use any driver and its own way to begin, so this speaks through SQLAlchemy, and makes sure that the
transaction it was given is one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import text
from sqlalchemy.engine import Connection, Dialect
from sqlalchemy.schema import CreateSchema

from lastlight_state.backends.sql.quoting import quoted
from lastlight_state.errors import InvalidValue


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
    """A block in which the schema, which is made if it is missing, is the place of everything. Afterwards as before."""
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
    """The statements as part of a script's transaction in which they go to that schema, which is made."""
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
    """The number of an advisory lock on Postgres, from schema and name. Such locks are per database already."""
    digest = hashlib.sha256(f"lastlight_state:{schema}:{name}".encode()).digest()
    return int.from_bytes(digest[:8], "big", signed=True)
