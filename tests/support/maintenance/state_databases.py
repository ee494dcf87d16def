"""Databases like those of the third original system, with facts of its schema: real times, arrays of ids in text."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

BEGIN = 1_767_225_600.25

OLD = """
CREATE TABLE message_types (type_id INTEGER PRIMARY KEY, lion_class TEXT);
INSERT INTO message_types VALUES (0, '__unknown__'), (7, 'program.messages.Instruction');
CREATE TABLE messages (
  id TEXT PRIMARY KEY, created_at REAL, node_metadata JSON, content JSON, embedding BLOB, sender TEXT, recipient TEXT,
  channel TEXT, role TEXT, lion_class INTEGER);
CREATE TABLE progressions (id TEXT PRIMARY KEY, created_at REAL, collection TEXT);
CREATE TABLE sessions (
  id TEXT PRIMARY KEY, created_at REAL, node_metadata JSON, name TEXT, user TEXT, progression_id TEXT,
  first_msg_id TEXT, last_msg_id TEXT, updated_at REAL);
CREATE TABLE branches (
  id TEXT PRIMARY KEY, created_at REAL, node_metadata JSON, user TEXT, name TEXT, session_id TEXT, progression_id TEXT,
  system_msg_id TEXT);
"""
LATER = (
    *(
        "playbook_name",
        "agent_name",
        "invocation_kind",
        "show_topic",
        "show_play_name",
        "artifacts_path",
        "source_kind",
    ),
    *("status", "started_at REAL", "ended_at REAL", "last_message_at REAL", "model", "project"),
    "artifact_contract_json",
)
HISTORY = """
CREATE TABLE status_transitions (
  id TEXT PRIMARY KEY, entity_type TEXT, entity_id TEXT, previous_status TEXT, status TEXT, reason_code TEXT,
  reason_summary TEXT, evidence_refs JSON, source TEXT, actor TEXT, created_at REAL, metadata JSON);
"""


def made(path: Path, *, is_old: bool = False) -> Path:
    """An empty database, of the first version or of a later one."""
    with closing(sqlite3.connect(path)) as raw:
        raw.executescript(OLD)
        if not is_old:
            raw.executescript(HISTORY)
            for column in LATER:
                raw.execute(f"ALTER TABLE sessions ADD COLUMN {column}")
            for column in ("model", "provider", "agent_name", "status", "started_at REAL", "ended_at REAL"):
                raw.execute(f"ALTER TABLE branches ADD COLUMN {column}")
    return path


def put(path: Path, table: str, **row: Any) -> None:
    """Store a row in the place of the one of its id."""
    with closing(sqlite3.connect(path)) as raw, raw:
        names, marks = ", ".join(row), ", ".join("?" * len(row))
        raw.execute(f"INSERT OR REPLACE INTO {table} ({names}) VALUES ({marks})", list(row.values()))


def put_message(path: Path, name: str, second: float, **given: Any) -> None:
    """A message of a user, whose text is its id."""
    told = {"content": json.dumps({"text": name}), "role": "user", "lion_class": 7, **given}
    put(path, "messages", id=name, created_at=BEGIN + second, **told)


def put_order(path: Path, name: str, ids: Sequence[str] | str) -> str:
    """An array of ids, or a text in its place."""
    put(path, "progressions", id=name, created_at=BEGIN, collection=ids if isinstance(ids, str) else json.dumps(ids))
    return name


def put_session(path: Path, key: str, ids: Sequence[str] | str, **given: Any) -> None:
    """A session of the order ``order-<name>``."""
    told = {"created_at": BEGIN, "updated_at": BEGIN + 60, "progression_id": f"order-{key}", **given}
    put_order(path, told["progression_id"], ids)
    put(path, "sessions", id=key, **told)


def put_branch(path: Path, session: str, key: str, ids: Sequence[str] | str, **given: Any) -> None:
    """A branch of the order ``order-<name>``."""
    told = {"created_at": BEGIN, "progression_id": f"order-{key}", **given}
    put_order(path, told["progression_id"], ids)
    put(path, "branches", id=key, session_id=session, **told)
