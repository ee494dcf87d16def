"""How much SQLite reads from its file for a statement, which tells whether it walks large values."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

from lastlight_state.testing import Database


def bytes_read(database: Database, text: str, values: Any) -> int:
    """Run a statement on a connection with next to no cache, and return what it read in bytes."""
    connection = sqlite3.connect(database.url.removeprefix("sqlite:///"), isolation_level=None)
    try:
        for pragma in ("mmap_size = 0", "cache_size = 10", "table_list"):
            connection.execute(f"PRAGMA {pragma}").fetchall()
        before = _until_now()
        connection.execute(text, values).fetchall()
        return _until_now() - before
    finally:
        connection.close()


def _until_now() -> int:
    """What the process has read: Linux counts it."""
    [line] = [line for line in Path("/proc/self/io").read_text().splitlines() if line.startswith("rchar")]
    return int(line.split()[1])
