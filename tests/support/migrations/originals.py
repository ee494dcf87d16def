"""Databases as the original program makes them."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

from support.migrations.support import Place

LEGACY = Path(__file__).parents[2] / "fixtures" / "legacy"
SEED = (LEGACY / "seed.sql").read_text("utf-8")
LATER = (LEGACY / "later.sql").read_text("utf-8")
ROWS = (LEGACY / "rows.sql").read_text("utf-8")

ACTIVE = "  active INTEGER DEFAULT 1\n)"
ONE_ACTIVE = SEED[SEED.index("CREATE UNIQUE INDEX") : SEED.index("CREATE TABLE IF NOT EXISTS messaging_messages")]
"""The statement of the original's own unique index."""

WITHOUT_INDEX = SEED.replace(ONE_ACTIVE, "")
STRICT = WITHOUT_INDEX.replace(
    ACTIVE, "  active INTEGER DEFAULT 1,\n  UNIQUE(platform, channel_id, thread_id, user_id)\n)"
)
"""As its first versions made them, which let a key have one session for ever."""


def original(place: Place, *scripts: str) -> Any:
    """A file that these scripts have made, and the connection that made it."""
    connection = sqlite3.connect(place.path, isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    for script in scripts:
        connection.executescript(script)
    return place.opened(connection)


def dump(connection: Any) -> str:
    """Return the schema and all rows of the database as one text."""
    schema = connection.execute("SELECT type, name, sql FROM sqlite_master ORDER BY type, name").fetchall()
    tables = [name for kind, name, sql in schema if kind == "table" and sql]
    rows = [(name, *connection.execute(f'SELECT * FROM "{name}" ORDER BY rowid').fetchall()) for name in tables]
    return "\n".join(map(str, [*schema, *rows]))


def session(key: str, *, thread: str | None = "T", active: str = "1", at: str = "2026-06-29T20:15:00.000Z") -> str:
    """The statement that stores a chat session."""
    place = "NULL" if thread is None else f"'{thread}'"
    return (
        "INSERT INTO messaging_sessions (id, platform, channel_id, thread_id, user_id, created_at, last_activity_at,"
        f" message_count, active) VALUES ('{key}', 'slack', 'C', {place}, 'U', '{at}', '{at}', 1, {active});"
        "INSERT INTO messaging_messages (session_id, role, content, timestamp)"
        f" VALUES ('{key}', 'user', 'said in {key}', '{at}');"
    )
