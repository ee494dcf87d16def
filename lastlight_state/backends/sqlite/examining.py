"""What SQLite finds when it examines a file, and its vacuum."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from lastlight_state.errors import Conflict

#: How many problems are told.
_MOST = 50


def examined(driver: Any, *, deep: bool) -> list[str]:
    """The problems of the file: of its pages and indexes, and rows whose foreign keys refer to no row."""
    check = "integrity_check" if deep else "quick_check"
    found = [str(line) for (line,) in driver.execute(f"PRAGMA {check}({_MOST})").fetchall()]
    rows = driver.execute('SELECT "table", count(*), parent FROM pragma_foreign_key_check GROUP BY 1, 3').fetchall()
    orphans = [f"{count} rows of {table} refer to no row of {parent}" for table, count, parent in rows]
    return [*(found if found != ["ok"] else []), *orphans]


def checkpointed(driver: Any, mode: str) -> tuple[bool, int, int] | None:
    """What a checkpoint did: None for a file without a write-ahead log."""
    busy, log, brought = driver.execute(f"PRAGMA wal_checkpoint({mode})").fetchone()
    return None if log < 0 else (bool(busy), log, brought)


def rebuilt(driver: Any, files: tuple[Path, ...]) -> None:
    """Rebuild the file without its free pages. Raises `Conflict` unless twice its size is free: SQLite copies it."""
    for path in files[:1]:
        size, free = path.stat().st_size, shutil.disk_usage(path.parent).free
        if free < 2 * size:
            text = f"a vacuum needs {2 * size} free bytes beside the database, and there are {free}"
            raise Conflict(text, code="no_space", needed=2 * size, free=free)
    driver.execute("VACUUM")
