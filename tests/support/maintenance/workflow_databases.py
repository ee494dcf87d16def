"""Databases like those of the first original system, of each of its versions, with rows."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

from support.migrations.eras import AT, ROWS

NEWEST = "6-v0.21"


def made(path: Path, era: Path) -> Path:
    """The database of a version with the rows that its tables can hold."""
    with closing(sqlite3.connect(path)) as raw, raw:
        raw.executescript(era.read_text("utf-8"))
        for table, rows in ROWS.items():
            columns = {name for _, name, *_ in raw.execute(f"PRAGMA table_info({table})")}
            for row in rows if columns else ():
                _insert(raw, table, {name: value for name, value in row.items() if name in columns})
    return path


def put(path: Path, table: str, **row: Any) -> None:
    """Store a row."""
    with closing(sqlite3.connect(path)) as raw, raw:
        _insert(raw, table, row)


def change(path: Path, table: str, key: str, **columns: Any) -> None:
    """Change columns of the row with this id or name."""
    with closing(sqlite3.connect(path)) as raw, raw:
        name = "name" if table.endswith("overrides") else "id"
        sets = ", ".join(f"{column} = ?" for column in columns)
        raw.execute(f"UPDATE {table} SET {sets} WHERE {name} = ?", [*map(_value, columns.values()), key])


def execution(key: str, **more: Any) -> dict[str, Any]:
    """An execution that is in flight."""
    told = {"trigger_type": "webhook", "trigger_id": "t", "skill": "build:reviewer", "started_at": AT}
    return {"id": key, **told, **more}


def stored(row: dict[str, Any]) -> dict[str, Any]:
    """A row as it stands in the database: lists and objects as JSON."""
    return {name: _value(value) for name, value in row.items()}


def _insert(raw: sqlite3.Connection, table: str, row: dict[str, Any]) -> None:
    names, marks = ", ".join(row), ", ".join("?" * len(row))
    raw.execute(f"INSERT OR REPLACE INTO {table} ({names}) VALUES ({marks})", [*map(_value, row.values())])


def _value(value: Any) -> Any:
    return json.dumps(value) if isinstance(value, list | dict) else value
