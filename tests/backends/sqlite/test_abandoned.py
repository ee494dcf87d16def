"""Connections to a file that may not be written, whose writer may have died."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from lastlight_state.backends.sqlite import locked_reads
from lastlight_state.backends.sqlite.locked_reads import FileReader


def test_a_connection_that_cannot_read_is_closed(tmp_path: Path) -> None:
    """house H-51: the driver's error is raised, and nothing is left open."""
    file, opened, copied = tmp_path / "notes.db", [], []
    file.write_bytes(b"no database" * 100)

    def connect(path: Path) -> sqlite3.Connection:
        opened.append(sqlite3.connect(path))
        return opened[-1]

    def not_held() -> sqlite3.Connection:
        raise locked_reads.LockUnavailable

    with pytest.raises(sqlite3.DatabaseError, match="not a database"):
        FileReader(file, lambda: copied.append(1)).open_connection(not_held, connect)
    [connection] = opened
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        connection.execute("SELECT 1")
    assert copied == []
