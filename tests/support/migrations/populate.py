"""Rows for every table that a database has, whatever revision it is at."""

from __future__ import annotations

import warnings
from typing import Any

from sqlalchemy import MetaData, Table, delete, insert, inspect, select
from sqlalchemy.engine import Connection
from sqlalchemy.types import Boolean, DateTime, Float, Integer, LargeBinary

from lastlight_state.db.schema.base import VERSION_TABLE
from lastlight_state.db.schema.columns import form_of, parse_time
from lastlight_state.migrations.metadata import METADATA

MOMENT = "2026-02-03T12:34:56.789Z"
ROWS = 3
PERMITS = "maintenance_permits"

#: Comes with rows of its own, which messages name by the same numbers.
NUMBERED = "message_types"


def fill(connection: Connection, label: str) -> None:
    """Insert three rows into every table, with a value in every column; ids and words begin with ``label``."""
    tables = reflected(connection)
    permits = [table for table in tables if table.name == PERMITS]
    for table in permits:  # to store words that nobody knows
        connection.execute(insert(table), {"receipt_id": label})
    for table in tables:
        if table.name not in (PERMITS, NUMBERED):
            connection.execute(insert(table), [_row(table, label, number) for number in range(ROWS)])
    for table in permits:  # at rest it would open every guard
        connection.execute(delete(table))


def contents(connection: Connection, columns: dict[str, list[str]] | None = None) -> dict[str, list[Any]]:
    """Return the rows of every table in the order of their keys, or of the given columns of the given tables alone."""
    found = {}
    for table in reflected(connection):
        if columns is not None and table.name not in columns:
            continue
        chosen = [table.c[name] for name in (columns[table.name] if columns else table.c.keys())]
        rows = connection.execute(select(*chosen).order_by(*table.primary_key.columns)).all()
        found[table.name] = [tuple(row) for row in rows]
    return found


def layout(connection: Connection) -> dict[str, list[str]]:
    """Return the columns of every table."""
    return {table.name: list(table.c.keys()) for table in reflected(connection)}


def reflected(connection: Connection) -> list[Table]:
    """Return the tables as the database describes them, owners first."""
    names = [name for name in inspect(connection).get_table_names() if name != VERSION_TABLE]
    metadata = MetaData()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*expression-based index")
        metadata.reflect(connection, only=names)
    return metadata.sorted_tables


def _row(table: Table, label: str, number: int) -> dict[str, Any]:
    return {
        column.name: _value(table, column.name, column.type, label, number)
        for column in table.columns
        if (table.name, column.name) != ("messaging_messages", "id")
    }


def _value(table: Table, name: str, kind: Any, label: str, number: int) -> Any:
    form = form_of(METADATA.tables[table.name].c[name])
    if form == "time":
        return parse_time(MOMENT) if isinstance(kind, DateTime) else MOMENT
    if isinstance(kind, Boolean):
        return number % 2 == 0
    if isinstance(kind, Float):
        return 0.5 + number
    if isinstance(kind, Integer):
        return number % 2 if form == "flag" else number
    if isinstance(kind, LargeBinary):
        return bytes(8)
    if kind.__class__.__name__ == "JSONB":
        return {"number": number}
    return f"{label}-{number}"  # a foreign key names the row of the same number
