"""Each value of a folder of another program arrives somewhere, or the report names it."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from support.maintenance import shapes
from support.maintenance.every_value import filled, unseen
from support.maintenance.run_folders import branch, message, write_run
from support.maintenance.team_files import letter, write_team
from support.run_log.logs import RUN, SESSION

from lastlight_state.files.run_log import RunLog
from lastlight_state.testing import Database

AT = "2026-08-01T10:00:00.000Z"
BEGIN = 1_780_000_000.25
_IN = ("messages_in", "delivered", "destinations", "session_routing")
_MAILBOX: dict[str, dict[str, Any]] = {
    "messages_in": {"seq": 2, "kind": "chat", "timestamp": AT, "status": "pending", "content": '{"text": "told in"}'},
    "messages_out": {"seq": 3, "kind": "chat", "timestamp": AT, "content": '{"text": "told out"}'},
    "session_routing": {"id": 1},
    "container_state": {"id": 1},
    "processing_ack": {"status": "completed", "status_changed": AT},
    "delivered": {"status": "delivered", "delivered_at": AT},
    "destinations": {"type": "channel"},
}


@pytest.mark.parametrize("version", shapes.versions("nanoclaw"))
def test_every_value_of_a_mailbox_arrives(sqlite_database: Database, tmp_path: Path, version: str) -> None:
    """maintenance OP-87, M-95: of every table of both files, as each version since April 2026 makes them."""
    store, shape = sqlite_database.open(), shapes.tables("nanoclaw", version)
    source = tmp_path / "theirs" / "group" / "session"
    inbound = shapes.made(source / "inbound.db", {name: shape[name] for name in shape if name in _IN})
    outbound = shapes.made(source / "outbound.db", {name: shape[name] for name in shape if name not in _IN})
    cells = filled(inbound, _MAILBOX, begin=BEGIN) | filled(outbound, _MAILBOX, begin=BEGIN)
    done = store.maintenance.imports.run(source.parents[1])
    assert (done.kind, done.units, done.failures) == ("nanoclaw", {"imported": 1}, ())
    copied = store.mailbox.root / "group" / "session"
    told = [*_rows(copied / "inbound.db"), *_rows(copied / "outbound.db")]
    assert unseen(cells, told, done.noticed) == []
    [found] = store.mailbox.host("group", "session").inbox.list().items
    assert store.mailbox.host("group", "session").inbox.get(found.id).content == {"text": "told in"}


def _rows(path: Path) -> Iterator[Any]:
    with closing(sqlite3.connect(path)) as raw:
        for (name,) in raw.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
            for row in raw.execute(f'SELECT * FROM "{name}"').fetchall():
                yield [json.loads(one) if isinstance(one, str) and one[:1] == "{" else one for one in row]


@pytest.mark.parametrize("version", shapes.versions("codelia"))
def test_every_value_of_a_session_state_arrives_or_is_named(
    sqlite_database: Database, tmp_path: Path, version: str
) -> None:
    """maintenance OP-83, M-95: of every column of the index, as each version since February 2026 makes it."""
    store, shape = sqlite_database.open(), shapes.tables("codelia", version)
    [(table, columns)] = shape.items()
    index = shapes.made(tmp_path / "sessions" / "state.db", {table: [*columns, ["later", "TEXT", False, None, 0]]})
    given = {
        "session_id": SESSION,
        "updated_at": AT,
        "schema_version": 1,
        "message_count": 1,
        "last_user_message": "told",
        "workspace_root": "/root",
        "meta_json": '{"codelia_workspace_root": "/root"}',
    }
    cells = filled(index, {table: given}, begin=BEGIN)
    (index.parent / "messages").mkdir()
    said = {"role": "user", "content": "told", "later": "told later"}
    (index.parent / "messages" / f"{SESSION}.jsonl").write_text(json.dumps(said) + "\n")
    done = store.maintenance.imports.run(tmp_path)
    assert [one.reason for one in done.failures] == []
    assert (done.kind, done.units, done.failures) == ("codelia", {"imported": 1}, ())
    state = RunLog(store.run_log.root).states.find(SESSION).to_json()  # type: ignore[union-attr]
    assert unseen({**cells, (table, "updated_at"): AT}, [state, 1], done.noticed) == []
    assert (state["messages"], done.noticed) == ([said], {"later_left": 1})


#: A line of each kind as the program has written it since February 2026, with every key that its types have.
LINES: list[dict[str, Any]] = [
    {
        "type": "header",
        "schema_version": 1,
        "run_id": RUN,
        "session_id": SESSION,
        "started_at": AT,
        "client": {"name": "tui", "version": "1"},
        "server": {"name": "runtime", "version": "2"},
        "model": {"provider": "p", "name": "m", "reasoning": "high", "fast": True, "source": "session"},
        "prompts": {"system": "s"},
        "tools": {"definitions": [{"name": "t"}], "source": "x"},
        "runtime": {"cwd": "/w", "os": "linux", "arch": "x64", "version": "3"},
        "meta": {"k": 1},
    },
    {"type": "run.start", "input": {"type": "parts", "parts": [{"type": "text", "text": "go"}]}, "ui_context": {}},
    {"type": "run.context", "context_left_percent": 97.5},
    {"type": "agent.event", "seq": 1, "event": {"type": "text", "content": "hi"}},
    {
        "type": "tool.output",
        "tool": "bash",
        "tool_call_id": "c1",
        "result_raw": "out",
        "is_error": False,
        "output_ref": {"id": "r1", "byte_size": 3, "line_count": 1},
    },
    {"type": "llm.request", "seq": 2, "input": {"messages": [], "tools": None, "tool_choice": "auto", "model": "m"}},
    {"type": "llm.response", "seq": 3, "output": {"messages": [], "usage": None, "stop_reason": "end"}},
    {"type": "run.status", "status": "awaiting_ui", "message": "wait"},
    {"type": "run.error", "error": {"name": "E", "message": "m", "provider": "p", "kind": "rate_limit", "attempts": 2}},
    {"type": "run.end", "outcome": "completed", "final": "done", "meta": {"later": True}},
]


def test_every_line_of_a_log_arrives_byte_for_byte(sqlite_database: Database, tmp_path: Path) -> None:
    """maintenance OP-83, M-95: each is read as a record of its kind."""
    store = sqlite_database.open()
    folder = tmp_path / "home" / "sessions" / "2026" / "08" / "01"
    folder.mkdir(parents=True)
    lines = [LINES[0], *({"run_id": RUN, "ts": AT, **line} for line in LINES[1:])]
    data = "".join(f"{json.dumps(line)}\n" for line in lines)
    (folder / f"{RUN}.jsonl").write_text(data)
    done = store.maintenance.imports.run(tmp_path / "home")
    assert [one.reason for one in done.failures] == []
    assert (done.kind, done.units) == ("codelia", {"imported": 1})
    log = RunLog(store.run_log.root)
    [copied] = store.run_log.root.rglob(f"{RUN}.jsonl")
    assert copied.read_text() == data
    found = list(log.runs.read(RUN))
    assert [one.to_json() for one in found] == lines
    assert [one.problem for one in found] == [None] * len(found)


def test_every_value_of_a_run_folder_arrives(store: Any, tmp_path: Path) -> None:
    """maintenance OP-35, M-95: also what a later version says in a manifest, a branch, an order and a message."""
    one = branch("b", [message("m", 1, later="told message", sender="told sender")], user="told user")
    one |= {"name": "told branch", "later": "told later", "metadata": {"k": "told metadata"}}
    one["messages"] |= {"name": "told pile"}
    one["messages"]["progression"]["name"] = "told order"
    write_run(tmp_path / "runs", "run", one, later={"told": "manifest"}, branches=[{"id": "b", "provider": "told p"}])
    done = store.maintenance.imports.run(tmp_path / "runs")
    assert (done.kind, done.units) == ("lionagi-runs", {"imported": 1})
    talks = store.conversations
    found = [talks.sessions.get("run"), talks.branches.get("b"), talks.messages.get("m")]
    cells = {("file", str(i)): value for i, value in enumerate(_texts(one))} | {("file", "manifest"): "manifest"}
    assert unseen(cells, found, done.noticed) == []


def _texts(value: Any) -> Iterator[Any]:
    """Each text of a JSON value."""
    if isinstance(value, Mapping | list):
        for inner in value.values() if isinstance(value, Mapping) else value:
            yield from _texts(inner)
    elif isinstance(value, str) and value != "m":
        yield value


def test_every_value_of_a_team_arrives_or_is_named(store: Any, tmp_path: Path) -> None:
    """maintenance OP-84, M-95: a channel has no name."""
    write_team(tmp_path, "t", letter("l", 1, later="told letter"), later="told team")
    done = store.maintenance.imports.run(tmp_path)
    assert (done.kind, done.noticed) == ("lionagi-teams", {"name_left": 1, "later_left": 1})
    assert store.conversations.messages.get("l").extra == {"later": "told letter"}


def test_a_session_past_the_limit_of_a_tree_fails_alone(
    sqlite_database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """maintenance OP-35: the error names the limit, and the others go on."""
    store = sqlite_database.open()
    monkeypatch.setattr("lastlight_state.conversations.words.TREE", 2)
    write_run(tmp_path / "runs", "long", branch("b1", [message(f"m{i}", i) for i in range(3)]))
    write_run(tmp_path / "runs", "short", branch("b2", [message("s", 1)]))
    done = store.maintenance.imports.run(tmp_path / "runs", lenient=True)
    assert done.units == {"failed": 1, "imported": 1}
    [failed] = done.failures
    assert (failed.unit, failed.code) == ("long", "invalid_value")
    assert "3 values, more than the limit of 2" in failed.reason
