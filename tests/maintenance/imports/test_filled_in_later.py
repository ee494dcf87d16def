"""A source that fills in later what it left empty is the same one: what it appends comes in, and what is here stays."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.maintenance import node_databases, workflow_databases as theirs
from support.maintenance.named_sources import SOURCES
from support.migrations.eras import AT, CHAT, ERAS

_UNIT = f"messaging_sessions/{CHAT}"


def _chat(root: Path, items: int, platform_id: str | None = None) -> Path:
    source = SOURCES["lastlight-db"].write(root, "said", items)
    theirs.change(source, "messaging_messages", "2", platform_message_id=platform_id)
    return source


def _history(store: Any) -> list[tuple[str, str | None]]:
    found = store.messaging.messages.history(CHAT, limit=50)
    return [(one.content, one.platform_message_id) for one in found]


def test_a_chat_goes_on_whose_message_got_its_platform_id_later(store: Any, tmp_path: Path) -> None:
    """maintenance OP-36: the message stays as it was said here, and the report names it."""
    imports, source = store.maintenance.imports, _chat(tmp_path, 2)
    imports.run(source)
    theirs.change(source, "messaging_messages", "2", platform_message_id="p-2")
    done = imports.run(source)
    assert [(one.unit, one.kept) for one in done.conflicts] == [(_UNIT, "messaging_messages 2: platform_message_id")]
    _chat(tmp_path, 3, "p-2")
    assert imports.run(source).failures == ()
    assert _history(store) == [("said 0", None), ("said 1", None), ("said 2", None)]
    assert imports.run(source).units == {"unchanged": 1}


def test_a_chat_goes_on_whose_message_has_lost_its_platform_id(store: Any, tmp_path: Path) -> None:
    """maintenance OP-36."""
    imports, source = store.maintenance.imports, _chat(tmp_path, 2, "p-2")
    imports.run(source)
    _chat(tmp_path, 3)
    assert imports.run(source).failures == ()
    assert _history(store) == [("said 0", None), ("said 1", "p-2"), ("said 2", None)]


def test_a_message_with_another_platform_id_is_another_one(store: Any, tmp_path: Path) -> None:
    """maintenance M-120: nothing of the chat is written."""
    imports, source = store.maintenance.imports, _chat(tmp_path, 2, "p-2")
    imports.run(source)
    _chat(tmp_path, 3, "p-3")
    assert [one.unit for one in imports.run(source).failures] == [_UNIT]
    assert _history(store) == [("said 0", None), ("said 1", "p-2")]


def test_a_refusal_names_another_file_only_where_one_stands_there(store: Any, tmp_path: Path) -> None:
    """maintenance M-120."""
    imports, source = store.maintenance.imports, _chat(tmp_path, 2)
    imports.run(source)
    theirs.change(source, "messaging_messages", "2", content="edited")
    [failed] = imports.run(source).failures
    assert f"came from this file at {str(source)!r}" in failed.reason
    SOURCES["lastlight-db"].write(tmp_path, "said", 1)
    [failed] = imports.run(source).failures
    assert f"came from another file at {str(source)!r}" in failed.reason


@pytest.mark.parametrize(
    ("table", "row", "filled"),
    [
        ("workflow_runs", "late", {"issue_number": 7}),
        ("executions", "x-late", {"workflow_run_id": "late"}),
        ("messaging_sessions", "chat-late", {"thread_id": "thread"}),
    ],
)
def test_a_row_that_was_filled_in_later_stays_and_keeps_nothing_back(
    store: Any, tmp_path: Path, table: str, row: str, filled: dict[str, Any]
) -> None:
    """maintenance OP-36: the report names it, and what is new comes in."""
    imports = store.maintenance.imports
    [newest] = [era for era in ERAS if era.stem == theirs.NEWEST]
    source = theirs.made(tmp_path / "theirs.db", newest)
    run = {"workflow_name": "build", "trigger_id": "t", "current_phase": "p", "phase_history": [], "context": {}}
    theirs.put(source, "workflow_runs", id="late", status="running", started_at=AT, updated_at=AT, **run)
    theirs.put(source, "executions", **theirs.execution("x-late"))
    chat = {"platform": "slack", "channel_id": "late", "user_id": "u", "created_at": AT, "last_activity_at": AT}
    theirs.put(source, "messaging_sessions", id="chat-late", active=1, message_count=0, **chat)
    imports.run(source)
    theirs.change(source, table, row, **filled)
    theirs.put(source, "executions", **theirs.execution("x-new", workflow_run_id="late"))
    done = imports.run(source)
    assert done.failures == ()
    assert f"{table} {row}: {next(iter(filled))}" in [one.kept for one in done.conflicts]
    assert store.workflows.executions.get("x-new").run_id == "late"
    assert set(imports.run(source).units) == {"unchanged"}


def test_a_run_goes_on_whose_signal_was_filled_in_later(store: Any, tmp_path: Path) -> None:
    """maintenance OP-36."""
    imports, source = store.maintenance.imports, SOURCES["smithers-db"].write(tmp_path, "said", 1)
    signal = {"run_id": "nightly", "seq": 0, "signal_name": "go"}
    node_databases.put(source, "signals", **signal, correlation_id=None)
    imports.run(source)
    node_databases.put(source, "signals", **signal, correlation_id="c")
    node_databases.put(source, "events", run_id="nightly", seq=1, payload_json={"said": "said 1"})
    done = imports.run(source)
    assert (done.failures, len(done.conflicts)) == ((), 1)
    assert "correlation_id" in done.conflicts[0].kept
    assert SOURCES["smithers-db"].read(store, None) == ["said 0", "said 1"]
