"""Texts of foreign databases whose bytes are not UTF-8: they fail the unit that they stand in, and no other."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from support.maintenance.homes import write_indexed
from support.maintenance.mailbox_trees import write_session
from support.maintenance.node_databases import put as put_node_row
from support.maintenance.sources import source_of
from support.maintenance.state_databases import put, put_session
from support.run_log.logs import OTHER_SESSION, RUN, SESSION

from lastlight_state.files.mailbox.folder import INBOUND_DB

ODD = b"a\xffz"


def _spoil(path: Path, table: str, column: str, where: str) -> None:
    with closing(sqlite3.connect(path)) as raw, raw:
        changed = raw.execute(f"UPDATE {table} SET {column} = CAST(? AS TEXT) WHERE {where}", [ODD])
        assert changed.rowcount == 1


@pytest.mark.parametrize(
    ("kind", "table", "column", "key", "unit"),
    [
        ("lionagi-db", "sessions", "name", "id = 's1'", "s1"),
        ("lionagi-db", "messages", "content", "id = 'm10'", "s1"),
        ("lastlight-db", "workflow_runs", "workflow_name", "id = 'run-open'", "workflow_runs/run-open"),
        ("lastlight-db", "cron_overrides", "schedule", "name = 'nightly'", "cron_overrides/nightly"),
        ("lastlight-db", "messaging_sessions", "platform", "id = 'chat-1'", "messaging_sessions/chat-1"),
        ("lastlight-db", "messaging_messages", "content", "id = 1", "messaging_sessions/chat-1"),
        ("smithers-db", "_smithers_runs", "workflow_name", "run_id = 'r1'", "runs/r1"),
        ("smithers-db", "_smithers_events", "payload_json", "run_id = 'r1' AND seq = 0", "runs/r1"),
        ("smithers-db", "_smithers_cron", "pattern", "cron_id = 'c1'", "cron/c1"),
        ("smithers-db", "_smithers_cron", "cron_id", "cron_id = 'c1'", "cron/a\\udcffz"),
        ("openai-agents-db", "agent_messages", "message_data", "id = 1", "s0"),
    ],
)
def test_a_text_that_is_not_utf_8_fails_its_unit_by_name(
    store: Any, tmp_path: Path, kind: str, table: str, column: str, key: str, unit: str
) -> None:
    """maintenance OP-35, OP-38: also where it stands in the row by which the unit is found."""
    path = source_of(kind, tmp_path / "program")
    if kind == "smithers-db":
        put_node_row(path, "cron", cron_id="c1")
    imports = store.maintenance.imports
    units = imports.plan(path).units["imported"]
    _spoil(path, table, column, key)
    done = imports.run(path)
    assert (done.units, [one.unit for one in done.failures]) == ({"failed": 1, "imported": units - 1}, [unit])
    assert (done.failures[0].code, column in done.failures[0].reason) == ("invalid_value", True)


def test_a_row_of_a_session_state_that_is_not_utf_8_fails_alone(store: Any, tmp_path: Path) -> None:
    """maintenance OP-35, OP-83."""
    write_indexed(tmp_path, OTHER_SESSION, "", run_id=RUN, meta_json="{}")
    index = write_indexed(tmp_path, SESSION, "", run_id=RUN, meta_json="{}")
    _spoil(index, "session_state", "meta_json", f"session_id = '{SESSION}'")
    done = store.maintenance.imports.run(tmp_path)
    assert (done.units, [one.unit for one in done.failures]) == ({"failed": 1, "imported": 1}, [f"state/{SESSION}"])


@pytest.mark.parametrize(
    ("kind", "table", "column", "key", "units"),
    [
        ("lionagi-db", "sessions", "id", "s1", ["a\\udcffz", "missing_sessions/s1"]),
        ("smithers-db", "_smithers_runs", "run_id", "r1", ["runs/a\\udcffz", "missing_runs/r1"]),
    ],
)
def test_an_id_that_is_not_utf_8_leaves_its_rows_without_a_head(
    store: Any, tmp_path: Path, kind: str, table: str, column: str, key: str, units: list[str]
) -> None:
    """maintenance OP-35, OP-80, OP-86: what belonged to it is named too, and the others are imported."""
    path = source_of(kind, tmp_path / "program")
    _spoil(path, table, column, f"{column} = '{key}'")
    done = store.maintenance.imports.run(path)
    assert (done.units, [one.unit for one in done.failures]) == ({"failed": 2, "imported": 2}, units)


def test_a_lenient_import_keeps_bytes_that_are_not_utf_8_as_escapes(store: Any, tmp_path: Path) -> None:
    """maintenance OP-38."""
    path = source_of("lionagi-db", tmp_path / "program")
    put_session(path, "s9", [])
    put(path, "sessions", id="s9", created_at=1.0, updated_at=1.0, progression_id="order-s9", playbook_name="x")
    _spoil(path, "sessions", "playbook_name", "id = 's9'")
    done = store.maintenance.imports.run(path, lenient=True)
    assert (done.units, done.noticed["adapted"]) == ({"imported": 4}, 1)
    session = store.conversations.sessions.get("s9")
    assert (session.playbook_name, session.extra["adapted"]) == (None, {"playbook_name": "a\\udcffz"})


def test_a_mailbox_is_copied_with_bytes_that_are_not_utf_8(store: Any, tmp_path: Path) -> None:
    """maintenance OP-87: it is a copy, byte for byte."""
    folder = write_session(tmp_path / "sessions")
    _spoil(folder / INBOUND_DB, "messages_in", "content", "id = 'm-1'")
    assert store.maintenance.imports.run(tmp_path / "sessions").units == {"imported": 1}
    [copy] = store.mailbox.root.rglob(INBOUND_DB)
    with closing(sqlite3.connect(copy)) as raw:
        assert raw.execute("SELECT CAST(content AS BLOB) FROM messages_in WHERE id = 'm-1'").fetchone() == (ODD,)
