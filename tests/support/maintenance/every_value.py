"""A source in which each cell has a value of its own, and which of these values an import neither kept nor named.

The frame of a property that each kind of import has: what a column holds arrives somewhere, or the report names it.
"""

from __future__ import annotations

import json
import sqlite3
import struct
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from datetime import date, datetime
from decimal import Decimal
from itertools import count
from pathlib import Path
from typing import Any

Cells = dict[tuple[str, str], Any]


def filled(path: Path, given: Mapping[str, Mapping[str, Any]], *, begin: float, but: Iterable[str] = ()) -> Cells:
    """Leave one row in each table of a SQLite file, and return its cells by table and column.

    Each column gets a value that no other cell has, of its type; ``given`` has those that must be others, such as
    words and references. Tables ``but`` are left as they are. Numbers with a fraction are times from ``begin`` on.
    """
    with closing(sqlite3.connect(path)) as raw, raw:
        raw.execute("PRAGMA ignore_check_constraints = ON")
        names = raw.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name").fetchall()
        columns = "SELECT name, type FROM pragma_table_info(?)"
        tables = {
            name: dict(raw.execute(columns, (name,)).fetchall())
            for (name,) in names
            if name not in but and not name.startswith("sqlite_")
        }
        rows = rows_of(tables, given, begin=begin)
        for table, row in rows.items():
            raw.execute(f'DELETE FROM "{table}"')
            raw.execute(inserting(table, row).replace("%s", "?"), list(row.values()))
    return cells_of(rows)


def rows_of(
    tables: Mapping[str, Mapping[str, str]], given: Mapping[str, Mapping[str, Any]], *, begin: float
) -> dict[str, dict[str, Any]]:
    """A row for each table, as `filled` leaves it; ``tables`` has the types of the columns."""
    numbers = count(1)
    return {
        table: {name: _value(f"{table}.{name}", kind, next(numbers), begin) for name, kind in columns.items()}
        | {name: value for name, value in given.get(table, {}).items() if name in columns}
        for table, columns in tables.items()
    }


def cells_of(rows: Mapping[str, Mapping[str, Any]]) -> Cells:
    """The cells of rows, by table and column."""
    return {(table, name): value for table, row in rows.items() for name, value in row.items()}


def inserting(table: str, row: Mapping[str, Any]) -> str:
    """The statement that inserts a row."""
    listed, marks = ", ".join(f'"{name}"' for name in row), ", ".join(["%s"] * len(row))
    return f'INSERT INTO "{table}" ({listed}) VALUES ({marks})'


def unseen(cells: Cells, told: Iterable[Any], noticed: Mapping[str, int]) -> list[str]:
    """The cells whose value is neither among what is ``told`` of the store nor in a table or column that is noticed."""
    leaves = set(_leaves(list(told)))
    text = "\n".join(sorted(one for one in leaves if isinstance(one, str)))
    return [
        f"{table}.{column}"
        for (table, column), value in cells.items()
        if not any(name.startswith((f"{table}_", f"{column}_", f"{table}.{column}_")) for name in noticed)
        and value is not True
        and not all(one in leaves or (isinstance(one, str) and one in text) for one in _wanted(value))
    ]


def _value(name: str, kind: str, number: int, begin: float) -> Any:
    match kind.upper():
        case "REAL" | "FLOAT" | "DOUBLE" | "DOUBLE PRECISION" | "TIMESTAMP":
            return begin + number + 0.25
        case "INTEGER":
            return 1_000 + number
        case "BLOB":
            return struct.pack("<f", number)
        case "JSON" | "JSONB":
            return json.dumps({"of": name})
        case "BOOLEAN":
            return True
    return name


def _wanted(value: Any) -> Iterator[Any]:
    """What must be found of a cell: of a JSON text the values in it."""
    if isinstance(value, str) and value[:1] in ("{", "["):
        yield from _leaves(json.loads(value))
    else:
        yield from _leaves(value)


def _leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, Mapping):
        for inner in value.values():
            yield from _leaves(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _leaves(inner)
    elif isinstance(value, datetime):
        yield round(value.timestamp(), 3)
    elif isinstance(value, bytes):
        yield from _leaves(list(struct.unpack(f"<{len(value) // 4}f", value)) if len(value) % 4 == 0 else value.hex())
    elif hasattr(value, "__dict__") and not isinstance(value, date):
        yield from _leaves(vars(value))
    elif isinstance(value, float | Decimal):
        yield round(float(value), 3)
    elif value is not None:
        yield value
