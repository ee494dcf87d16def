"""Everything that is stored, but for the receipts of maintenance."""

from __future__ import annotations

from typing import Any

from lastlight_state import StateStore
from lastlight_state.migrations.metadata import METADATA
from lastlight_state.testing import Database

_Told = dict[str, Any]


def everything(database: Database, store: StateStore) -> _Told:
    """Every row by its table, and every file by its path, with its bytes and the time of its change."""
    raw, found = database.raw(), _Told()
    for table in METADATA.tables:
        if table != "maintenance_receipts":
            found[table] = sorted(repr(list(row)) for row in raw.execute(f"SELECT * FROM {table}").fetchall())
    settings = store.settings
    for root in {*settings.line_directories, settings.mailboxes}:
        for path in root.rglob("*"):
            if path.is_file() and ".locks" not in path.parts:
                found[str(path)] = (path.read_bytes(), path.stat().st_mtime_ns)
    return found
