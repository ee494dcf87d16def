"""Many rows at once: several in one INSERT, which costs SQLite a third of what one statement for each row costs."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Sequence
from functools import lru_cache
from itertools import chain
from typing import Any

#: Rows in one statement. More gain nothing, and SQLite takes at most 32,766 parameters.
_ROWS = 50
#: The end of an INSERT of one row that has a parameter for each column, and nothing after them.
_PARAMETERS = re.compile(r"VALUES (\((?:\?, )*\?\))\s*$")


def insert_rows(driver: sqlite3.Connection, sql: str, rows: Sequence[Sequence[Any]]) -> None:
    """Insert rows in their order; ``sql`` inserts one of them. Raises the driver's errors."""
    several, whole = _several(sql), len(rows) - len(rows) % _ROWS
    if several is None:
        driver.executemany(sql, rows)
        return
    if whole:
        starts = range(0, whole, _ROWS)
        driver.executemany(several, (list(chain.from_iterable(rows[start : start + _ROWS])) for start in starts))
    if whole < len(rows):
        driver.executemany(sql, rows[whole:])


@lru_cache(maxsize=64)
def _several(sql: str) -> str | None:
    """The statement for many rows; None for one that cannot be extended."""
    found = _PARAMETERS.search(sql)
    if found is None or found[1].count("?") * _ROWS > 32_766:
        return None
    return sql.rstrip() + f", {found[1]}" * (_ROWS - 1)
