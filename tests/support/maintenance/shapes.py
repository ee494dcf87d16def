"""Empty databases in the shapes of other programs' tables, as ``tests/fixtures/shapes`` has them."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

#: Made by ``shapes.py``, which says how.
FOLDER = Path(__file__).parents[2] / "fixtures" / "shapes"


def versions(program: str) -> list[str]:
    """The versions of a program whose shapes there are, the oldest first."""
    return sorted(_read(program))


def tables(program: str, version: str) -> dict[str, list[list[Any]]]:
    """The columns of each table: name, type, whether it must have a value, its default, and its place in the key."""
    found: dict[str, list[list[Any]]] = _read(program)[version]
    return found


def statements(shape: dict[str, list[list[Any]]]) -> str:
    """The statements that make these tables, on either product."""
    return "\n".join(_statement(name, columns) for name, columns in shape.items())


def made(path: Path, shape: dict[str, list[list[Any]]]) -> Path:
    """A SQLite file with these tables."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with closing(sqlite3.connect(path)) as raw:
        raw.executescript(statements(shape))
    return path


def _statement(name: str, columns: list[list[Any]]) -> str:
    lines = [
        f'"{column}" {kind}{" NOT NULL" if required else ""}{"" if default is None else f" DEFAULT {default}"}'
        for column, kind, required, default, _ in columns
    ]
    if key := [column for column, *_, place in sorted(columns, key=lambda one: one[4]) if place]:
        lines.append("PRIMARY KEY ({})".format(", ".join(f'"{one}"' for one in key)))
    return f'CREATE TABLE "{name}" ({", ".join(lines)});'


def _read(program: str) -> dict[str, Any]:
    return json.loads((FOLDER / f"{program}.json").read_text())  # type: ignore[no-any-return]
