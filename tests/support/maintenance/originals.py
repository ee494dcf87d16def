"""State databases that released versions of the third original program made, and what it changed in them later."""

from __future__ import annotations

import sqlite3
import uuid
from contextlib import closing
from pathlib import Path

#: Made by ``originals.py``, which says how.
FOLDER = Path(__file__).parents[2] / "fixtures" / "lionagi"
VERSIONS = sorted(file.stem for file in FOLDER.glob("*.sql") if not file.stem.endswith("-grown"))
NEWEST = "0.36.0"
#: When the program began.
BEGIN = 1_780_000_000.25


def database(path: Path, version: str = NEWEST) -> Path:
    """The database as a version made it."""
    return _run(path, FOLDER / f"{version}.sql")


def grown(path: Path, version: str = NEWEST) -> Path:
    """The database after the same version went on with it."""
    return _run(path, FOLDER / f"{version}-grown.sql")


def named(name: str) -> str:
    """The id of what has this name in ``originals.py``."""
    return str(uuid.uuid5(uuid.NAMESPACE_URL, name))


def ids(names: str) -> list[str]:
    """The ids of messages, each of which has a letter for its name."""
    return [named(name) for name in names]


def _run(path: Path, statements: Path) -> Path:
    with closing(sqlite3.connect(path)) as raw:
        raw.executescript(statements.read_text())
    return path
