"""Imports of sessions of the OpenAI Agents SDK."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from support.maintenance.sources import source_of

from lastlight_state.conversations import runtime


def _items(store: Any, session: str) -> list[Any]:
    found = store.conversations.branches.history(f"openai-agents/session/{session}", limit=500)
    return [runtime.unpack_item(one.message.content) for one in found]


def test_sessions_come_with_their_items_and_follow(store: Any, tmp_path: Path) -> None:
    """integrations AD-30."""
    source = source_of("openai-agents-db", tmp_path / "program")
    imports = store.maintenance.imports
    assert imports.detect(source) == "openai-agents-db"
    assert imports.plan(source).units == {"imported": 3}
    assert imports.run(source).units == {"imported": 3}
    told = [{"role": "user", "content": f"text {number} \0"} for number in range(2)]
    assert [_items(store, f"s{number}") for number in range(3)] == [told] * 3
    session = store.conversations.sessions.get("openai-agents/session/s1")
    assert (session.project, session.created_at.isoformat()) == ("openai-agents", "2026-02-03T12:00:00+00:00")
    assert imports.run(source).units == {"unchanged": 3}

    source_of("openai-agents-db", tmp_path / "program", grown=True)
    imports.run(source)
    assert [len(_items(store, f"s{number}")) for number in range(3)] == [4, 5, 6]


#: Texts that are no JSON, each in its own way, and what is no text.
NO_JSON: list[Any] = ["{", "", '"\0"', "[" * 5_000, "1" * 5_000, 7, None, b"\xff\xfe", b"{"]


@pytest.mark.parametrize("no_json", NO_JSON)
def test_an_item_that_is_no_json_fails_its_session_alone(store: Any, tmp_path: Path, no_json: Any) -> None:
    """integrations AD-31."""
    source = source_of("openai-agents-db", tmp_path / "program")
    with closing(sqlite3.connect(source)) as raw, raw:
        (made,) = raw.execute("SELECT sql FROM sqlite_master WHERE name = 'agent_messages'").fetchone()
        raw.execute("ALTER TABLE agent_messages RENAME TO before")
        raw.execute(made.replace("TEXT NOT NULL", ""))  # whatever a program puts there
        raw.execute("INSERT INTO agent_messages SELECT * FROM before")
        raw.execute("DROP TABLE before")
        raw.execute("UPDATE agent_messages SET message_data = ? WHERE id = 1", [no_json])
        raw.execute("INSERT INTO agent_messages VALUES (NULL, 'alone', '[1]', '2026-02-03 12:00:00')")
    report = store.maintenance.imports.run(source)
    assert report.units == {"imported": 3, "failed": 1}
    assert [(one.unit, one.code) for one in report.failures] == [("s0", "invalid_value")]
    assert _items(store, "alone") == [[1]]
    report = store.maintenance.imports.run(source, lenient=True)
    assert (report.units["imported"], report.noticed["item_unreadable"]) == (1, 1)
    assert len(_items(store, "s0")) == 1


def test_an_item_that_the_source_took_back_stays_here_and_later_ones_come_behind(store: Any, tmp_path: Path) -> None:
    """integrations AD-30; maintenance M-120: nothing is taken away because a file has lost it."""
    source, imports = source_of("openai-agents-db", tmp_path / "program"), store.maintenance.imports
    imports.run(source)
    item = "INSERT INTO agent_messages VALUES (NULL, 's0', ?, '2026-02-03 12:00:00')"
    with closing(sqlite3.connect(source)) as raw, raw:
        raw.execute("DELETE FROM agent_messages WHERE session_id = 's0' AND id = 2")
        raw.execute(item, ['{"role": "user", "content": "later"}'])
    assert imports.run(source).units == {"grown": 1, "unchanged": 2}
    assert [one["content"] for one in _items(store, "s0")] == ["text 0 \0", "text 1 \0", "later"]
    with closing(sqlite3.connect(source)) as raw, raw:
        raw.execute("DELETE FROM agent_messages WHERE session_id = 's0'")
        raw.execute(item, ['{"role": "user", "content": "further"}'])
    assert imports.run(source).units == {"grown": 1, "unchanged": 2}
    assert [one["content"] for one in _items(store, "s0")] == ["text 0 \0", "text 1 \0", "later", "further"]
