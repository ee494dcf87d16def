"""SQLite files whose writer was killed, and what they and the files beside them are like."""

from __future__ import annotations

import hashlib
import signal
import sys
from pathlib import Path

from support.preloaded import run_program

#: Commits a row, which stands in the write-ahead log alone, and dies.
IN_THE_LOG = """
import os, sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("PRAGMA journal_mode = WAL")
connection.execute("PRAGMA wal_autocheckpoint = 0")
connection.execute("INSERT INTO workflow_overrides (name, updated_at) VALUES ('left', '2026-02-03T12:00:00.000Z')")
os.kill(os.getpid(), 9)
"""
#: Commits a row, and dies in a transaction that has written to the file already.
IN_A_TRANSACTION = """
import os, sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
for pragma in ("journal_mode = DELETE", "cache_size = 1", "cache_spill = 1"):
    connection.execute("PRAGMA " + pragma)
row = "INSERT INTO workflow_overrides (name, updated_at) VALUES (?, '2026-02-03T12:00:00.000Z')"
connection.execute(row, ("left",))
connection.execute("BEGIN IMMEDIATE")
connection.executemany(row, [("x" * 500 + str(number),) for number in range(500)])
os.kill(os.getpid(), 9)
"""
#: By what they leave beside the file.
DEATHS = {"-wal": IN_THE_LOG, "-journal": IN_A_TRANSACTION}


def killed(file: Path, ending: str) -> Path:
    """Let a writer of the file die, and return what it left beside it."""
    done = run_program([sys.executable, "-c", DEATHS[ending], str(file)], check=False)
    assert done.returncode == -signal.SIGKILL
    left = Path(f"{file}{ending}")
    assert left.stat().st_size > 0
    for path in file.parent.glob(f"{file.name}*"):
        path.chmod(0o600)
    return left


def looks_of(folder: Path) -> dict[str, tuple[str, int]]:
    """Every file below a folder by its bytes and its time of change."""
    return {
        str(path.relative_to(folder)): (hashlib.sha256(path.read_bytes()).hexdigest(), path.stat().st_mtime_ns)
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }
