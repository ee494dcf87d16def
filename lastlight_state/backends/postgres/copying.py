"""Many rows at once, by COPY."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from lastlight_state.backends.sql.quoting import quoted


def copy_rows(driver: Any, table: str, rows: Iterable[Mapping[str, Any]]) -> None:
    """Insert rows of equal columns in one order. Raises the driver's errors; then nothing is inserted.

    Each row is asked for when those before it are on their way: the server stores them while the next ones are made.
    """
    coming = iter(rows)
    first = next(coming, None)
    if first is None:
        return
    sql = f"COPY {table} ({', '.join(map(quoted, first))}) FROM STDIN"
    with driver.cursor() as cursor, cursor.copy(sql) as copy:
        copy.write_row(tuple(first.values()))
        for row in coming:
            copy.write_row(tuple(row.values()))
