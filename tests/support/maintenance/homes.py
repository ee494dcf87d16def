"""Homes like those of the program that writes run logs and session states, in both its layouts."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

from support.run_log.logs import AT, RUN, SESSION, head, line

from lastlight_state.codec import dump_line

DAY = ("2026", "02", "03")
_INDEX = """
CREATE TABLE IF NOT EXISTS session_state (
  session_id TEXT PRIMARY KEY, updated_at TEXT NOT NULL, run_id TEXT, invoke_seq INTEGER,
  schema_version INTEGER NOT NULL, meta_json TEXT, message_count INTEGER, last_user_message TEXT)
"""


def write_log(home: Path, *records: Any, run_id: str = RUN, name: str | None = None) -> Path:
    """The log of a run: its header and these records."""
    folder = home.joinpath("sessions", *DAY)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / (name or f"{run_id}.jsonl")
    path.write_bytes(b"".join(dump_line(one) for one in (head(run_id), *records)))
    return path


def said(text: str) -> dict[str, Any]:
    """A message."""
    return {"role": "user", "content": text}


def begin(run_id: str = RUN) -> dict[str, Any]:
    """The first record of a run."""
    return line("run.start", run_id, input={"type": "text", "text": "go"})


def state(*texts: str, session_id: str = SESSION, at: str = AT, **more: Any) -> dict[str, Any]:
    """A snapshot with these messages."""
    messages = [said(text) for text in texts]
    return {"schema_version": 1, "session_id": session_id, "updated_at": at, "messages": messages, **more}


def write_state(home: Path, value: Any, name: str = SESSION) -> Path:
    """A snapshot of the older layout."""
    folder = home / "sessions" / "state"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.json"
    path.write_text(value if isinstance(value, str) else json.dumps(value), encoding="utf-8")
    return path


def write_indexed(home: Path, session_id: Any, messages: str | None, **row: Any) -> Path:
    """A snapshot of the later layout, and its database."""
    sessions = home / "sessions"
    (sessions / "messages").mkdir(parents=True, exist_ok=True)
    if messages is not None:
        (sessions / "messages" / f"{session_id}.jsonl").write_text(messages, encoding="utf-8")
    told = {"session_id": session_id, "updated_at": AT, "schema_version": 1, **row}
    with closing(sqlite3.connect(sessions / "state.db")) as database:
        database.execute(_INDEX)
        marks = ", ".join("?" for _ in told)
        statement = f"INSERT OR REPLACE INTO session_state ({', '.join(told)}) VALUES ({marks})"
        database.execute(statement, tuple(told.values()))
        database.commit()
    return sessions / "state.db"
