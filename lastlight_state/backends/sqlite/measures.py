"""Size and settings of a SQLite database."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lastlight_state.backends.facts import Measures, TableSize

_TABLES = "SELECT name FROM sqlite_master WHERE type = 'table'"
_SYNCHRONOUS = ("off", "normal", "full", "extra")


def measured(driver: Any, files: Sequence[Path], tables: Sequence[str], journal_mode: str | None) -> Measures:
    """The measures, read on this connection: its settings are those of the connection, except the journal mode.

    ``journal_mode`` is given where the connection does not know it.
    """
    page = _pragma(driver, "page_size")
    free = _pragma(driver, "freelist_count")
    present = {row[0] for row in driver.execute(_TABLES).fetchall()}
    return Measures(
        version=f"SQLite {sqlite3.sqlite_version}",
        size_bytes=page * _pragma(driver, "page_count"),
        tables={table: TableSize() for table in tables if table in present},
        settings={
            "journal_mode": journal_mode or _pragma(driver, "journal_mode"),
            "wal_autocheckpoint": _pragma(driver, "wal_autocheckpoint"),
            "busy_timeout": _pragma(driver, "busy_timeout"),
            "synchronous": _SYNCHRONOUS[_pragma(driver, "synchronous")],
            "foreign_keys": bool(_pragma(driver, "foreign_keys")),
        },
        wal_bytes=_wal_bytes(files),
        free_pages=free,
        free_bytes=free * page,
    )


def _pragma(driver: Any, name: str) -> Any:
    return driver.execute(f"PRAGMA {name}").fetchone()[0]


def _wal_bytes(files: Sequence[Path]) -> int:
    try:
        return files[1].stat().st_size if files else 0
    except FileNotFoundError:
        return 0
