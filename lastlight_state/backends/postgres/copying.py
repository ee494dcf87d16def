"""Many rows at once, by COPY."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from lastlight_state.backends.sql.quoting import quoted


def copy_rows(driver: Any, table: str, rows: Sequence[Mapping[str, Any]]) -> None:
    """Insert rows of equal columns in one order. Raises the driver's errors; then nothing is inserted."""
    if not rows:
        return
    names = list(rows[0])
    sql = f"COPY {table} ({', '.join(map(quoted, names))}) FROM STDIN"
    with driver.cursor() as cursor, cursor.copy(sql) as copy:
        for row in rows:
            copy.write_row(tuple(row.values()))
