"""The migration lock on a connection that belongs to a host application.

A host may use any driver and its own way to begin, so this speaks through SQLAlchemy, and makes sure that the
transaction it was given is one.
"""

from __future__ import annotations

import hashlib

from sqlalchemy import text
from sqlalchemy.engine import Connection


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


def lock_number(schema: str, name: str) -> int:
    """The number of an advisory lock on Postgres, from schema and name. Such locks are per database already."""
    digest = hashlib.sha256(f"lastlight_state:{schema}:{name}".encode()).digest()
    return int.from_bytes(digest[:8], "big", signed=True)
