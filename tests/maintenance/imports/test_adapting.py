"""Values of the first original system that cannot be kept as they are: refused, or replaced where the caller asks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.maintenance.workflow_databases import NEWEST, change, made, put
from support.migrations.eras import CHAT, ERAS, OPEN

[ERA] = [era for era in ERAS if era.stem == NEWEST]
AT = "2026-07-01T00:00:00.000Z"


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A database of the newest version, in a folder of its own."""
    (tmp_path / "program").mkdir()
    return made(tmp_path / "program" / "theirs.db", ERA)


def _say(source: Path, number: int, content: str) -> None:
    put(source, "messaging_messages", id=number, session_id=CHAT, role="user", content=content, timestamp=AT)


def test_a_chat_with_characters_that_no_database_holds_fails_or_gets_escapes(store: Any, source: Path) -> None:
    """maintenance M-97: the metadata of the chat name the messages; what was said in it here stays there."""
    imports = store.maintenance.imports
    _say(source, 90, "a\0b")
    refused = imports.run(source)
    assert [one.unit for one in refused.failures] == [f"messaging_sessions/{CHAT}"]
    done = imports.run(source, lenient=True)
    assert (done.units["imported"], done.noticed["adapted"]) == (1, 1)
    assert store.messaging.messages.history(CHAT)[-1].content == "a\\u0000b"
    session = store.messaging.sessions.get(CHAT)
    assert session.metadata == {"escaped": ["message 90.content"]}
    store.messaging.sessions.update(CHAT, metadata={**session.metadata, "mine": 1}, version=session.version)
    _say(source, 91, "c\0")
    assert imports.run(source, lenient=True).units["grown"] == 1
    assert store.messaging.sessions.get(CHAT).metadata == {
        "escaped": ["message 90.content", "message 91.content"],
        "mine": 1,
    }
    assert imports.run(source, lenient=True).rows == {}


@pytest.mark.parametrize(
    ("table", "key", "spoilt", "text"),
    [
        ("workflow_runs", OPEN, {"scratch": "{torn"}, "{torn"),
        ("executions", "x-2", {"error": "x\0"}, "x\\u0000"),
        ("executions", "x-2", {"turns": 2.5}, "2.5"),
        ("workflow_approvals", "gate-1", {"requested_by": "\0"}, "\\u0000"),
    ],
)
def test_a_refused_value_is_kept_as_text_beside_its_row(
    store: Any, source: Path, table: str, key: str, spoilt: dict[str, Any], text: str
) -> None:
    """maintenance M-97: under ``adapted``, and its field is empty."""
    change(source, table, key, **spoilt)
    done = store.maintenance.imports.run(source, lenient=True)
    assert (done.failures, done.noticed["adapted"]) == ((), 1)
    found = {
        "workflow_runs": lambda: store.workflows.runs.get(key).context,
        "executions": lambda: store.workflows.executions.get(key).details,
        "workflow_approvals": lambda: store.workflows.approvals.get(key).action,
    }[table]()
    [name] = spoilt
    assert found["adapted"] == {name: text}


def test_a_text_that_must_be_there_gets_escapes(store: Any, source: Path) -> None:
    """maintenance M-97: and its row names it under ``escaped``."""
    change(source, "workflow_approvals", "gate-1", summary="Lock\0it?")
    assert store.maintenance.imports.run(source, lenient=True).failures == ()
    gate = store.workflows.approvals.get("gate-1")
    assert (gate.summary, gate.action) == ("Lock\\u0000it?", {"escaped": ["summary"]})


@pytest.mark.parametrize(
    ("table", "key", "spoilt"),
    [
        ("workflow_runs", OPEN, {"status": "dancing"}),
        ("workflow_runs", OPEN, {"workflow_name": "a\0"}),
        ("executions", "x-2", {"finished_at": "yesterday"}),
        ("executions", "x-2", {"success": 7}),
    ],
)
def test_names_words_and_times_are_never_replaced(
    store: Any, source: Path, table: str, key: str, spoilt: dict[str, Any]
) -> None:
    """maintenance M-97: another value would say something else."""
    change(source, table, key, **spoilt)
    assert store.maintenance.imports.run(source, lenient=True).units["failed"] == 1
