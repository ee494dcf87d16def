"""Rows written past the library, of any age and state, and counts of all rows."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import sqlalchemy as sa

from lastlight_state.clock import iso_text
from lastlight_state.migrations.metadata import METADATA
from lastlight_state.testing import Database

#: How many rows one statement inserts.
CHUNK = 500


def insert(raw: Any, table: str, *rows: dict[str, Any]) -> None:
    """Insert these rows, which have the same columns."""
    for at in range(0, len(rows), CHUNK):
        values = ", ".join(f"({', '.join(map(literal, row.values()))})" for row in rows[at : at + CHUNK])
        raw.execute(f"INSERT INTO {table} ({', '.join(rows[0])}) VALUES {values}")


def literal(value: Any) -> str:
    """A value as both databases read it; SQL stays as it is."""
    if isinstance(value, sa.TextClause):
        return value.text
    if value is None:
        return "NULL"
    if isinstance(value, int | float):
        return str(value)
    text = iso_text(value) if isinstance(value, datetime) else str(value)
    return "'" + text.replace("'", "''") + "'"


def run_row(key: str, ended: datetime, status: str = "succeeded", **more: Any) -> dict[str, Any]:
    """A run that began an hour before it ended; a live one only began then."""
    live = status in ("queued", "running", "paused")
    return {
        "id": key,
        "workflow_name": "wf",
        "trigger_id": "t",
        "current_phase": "p",
        "status": status,
        "started_at": ended - timedelta(hours=1),
        "updated_at": ended,
        "finished_at": None if live else ended,
        **more,
    }


def counts(database: Database, *more: str) -> dict[str, int]:
    """The rows of every table, and of these tables."""
    raw = database.raw()
    names = [*METADATA.tables, *more]
    return {name: raw.execute(f"SELECT count(*) FROM {name}").fetchone()[0] for name in names}


def difference(before: dict[str, int], after: dict[str, int]) -> dict[str, int]:
    """How many rows went, by table."""
    own = ("maintenance_receipts", "tombstones")
    return {name: rows - after[name] for name, rows in before.items() if rows != after[name] and name not in own}
