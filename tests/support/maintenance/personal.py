"""A row of a person in every table that `erase` reaches, with something in every personal column."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa
from support.maintenance.rows import insert

from lastlight_state.db.schema import columns
from lastlight_state.db.schema.declarations import facts_of, is_personal
from lastlight_state.migrations.metadata import METADATA
from lastlight_state.testing import Database

PERSON = "zoe"
AT = datetime(2026, 1, 1, tzinfo=UTC)

#: What each row has beside its personal columns, in an order in which they can be stored.
ROWS: dict[str, dict[str, Any]] = {
    "progressions": {"id": "order", "created_at": AT},
    "messages": {"id": "message", "created_at": AT, "role": "user"},
    "sessions": {
        "id": "talk", "created_at": AT, "updated_at": AT, "progression_id": "order", "agent_session_id": "agent",
        "first_msg_id": "message", "hold_reason": None,
    },
    "branches": {"id": "branch", "created_at": AT, "session_id": "talk", "progression_id": "order"},
    "session_transitions": {
        "id": "change", "session_id": "talk", "seq": 1, "status": "failed", "reason_code": "run.failed.exception",
        "source": "system", "created_at": AT,
    },
    "vector_namespaces": {"namespace": "texts", "dimensions": 1, "created_at": AT},
    "vectors": {"namespace": "texts", "id": "message", "dimensions": 1, "norm": 1.0, "created_at": AT},
    "exchange_inboxes": {"created_at": AT},
    "exchange_deliveries": {"ord": 0, "message_id": "message", "delivered_at": AT},
    "exchange_members": {"channel": "news", "joined_at": AT},
    "messaging_sessions": {
        "id": "chat", "platform": "p", "channel_id": "c", "created_at": AT, "last_activity_at": AT,
        "agent_session_id": "agent",
    },
    "messaging_messages": {"session_id": "chat", "role": "user", "timestamp": AT},
    "checkpoint_threads": {"id": "thread", "key": "k", "created_at": AT, "updated_at": AT},
    "checkpoints": {
        "thread_id": "thread", "id": "c", "seq": 1, "created_at": AT, "format": "f", "versions": "{}",
    },
    "checkpoint_values": {
        "thread_id": "thread", "channel": "c", "version": "1", "number": 0, "anchor": 0, "encoding": "whole",
        "format": "f", "size": 1, "digest": "d",
    },
    "checkpoint_writes": {
        "thread_id": "thread", "checkpoint_id": "c", "task": "t", "idx": 0, "channel": "c", "format": "f",
    },
    "states": {"id": "state", "key": "k", "version": "v", "created_at": AT, "updated_at": AT},
    "executions": {
        "id": "turn", "trigger_type": "t", "trigger_id": "t", "skill": "s", "started_at": AT, "session_id": "agent",
    },
}  # fmt: skip


def reached() -> set[str]:
    """Return the tables in which `erase` empties or removes rows."""
    return {name for name, table in METADATA.tables.items() if facts_of(table).erased in ("emptied", "removed")}


def fill(database: Database) -> None:
    """Store the rows."""
    raw = database.raw()
    for name, given in ROWS.items():
        table = METADATA.tables[name]
        said = {column.name: _said(column, database) for column in table.columns if is_personal(column)}
        if name == "exchange_deliveries":  # what others have, with the person's name in it
            insert(raw, "exchange_inboxes", {"owner": "bob", "created_at": AT})
            insert(raw, name, _quoted({**said, **given, "owner": "bob"}))
        insert(raw, name, _quoted({**said, **given}))


def left(database: Database, *, said: str = PERSON) -> set[str]:
    """Return the columns, of all tables, in which something of the person stands."""
    raw, found = database.raw(), set()
    for name, table in METADATA.tables.items():
        for column in table.columns:
            for (value,) in raw.execute(f'SELECT "{column.name}" FROM {name}').fetchall():
                text = bytes(value).decode("latin-1") if isinstance(value, bytes | memoryview) else str(value)
                if said in text:
                    found.add(f"{name}.{column.name}")
    return found


def _said(column: sa.Column[Any], database: Database) -> Any:
    if column.info.get("person") or (column.primary_key and column.name in ("owner", "member")):
        return PERSON
    if isinstance(column.type, columns.RawBytes):
        return sa.text(f"CAST('{PERSON}!' AS {'BLOB' if database.name == 'sqlite' else 'BYTEA'})")
    return f'{{"{PERSON}": "{column}"}}' if isinstance(column.type, columns.BinaryJson) else f"{PERSON} {column}"


def _quoted(row: dict[str, Any]) -> dict[str, Any]:
    return {f'"{name}"': value for name, value in row.items()}
