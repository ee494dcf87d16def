"""Sources whose units are known by names that another source may have, too, each with one unit."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from support.mailbox.files import send, sql
from support.maintenance import node_databases
from support.maintenance.mailbox_trees import write_session
from support.maintenance.team_files import letter, told, write_team

from lastlight_state.conversations import NewMessage, runtime
from lastlight_state.keys import composed
from lastlight_state.maintenance import PrunePolicy

_AT = "2026-02-03 12:00:00"


@dataclass(frozen=True)
class Named:
    """A kind: its unit, how a source is written with so many items, what of it is here, and what is done to it here."""

    unit: str
    write: Callable[[Path, str, int], Path]
    read: Callable[[Any, str | None], list[str]]
    go_on: Callable[[Any], object]
    remove: Callable[[Any], object]
    #: Whether what is said here and what the source appends are one after the other, and never in conflict.
    is_shared: bool = False


def _sdk(root: Path, said: str, items: int) -> Path:
    path = root / "agents.db"
    path.unlink(missing_ok=True)
    with closing(sqlite3.connect(path)) as raw, raw:
        raw.executescript(
            """
            CREATE TABLE agent_sessions (session_id TEXT PRIMARY KEY, created_at TIMESTAMP, updated_at TIMESTAMP);
            CREATE TABLE agent_messages (id INTEGER PRIMARY KEY AUTOINCREMENT, session_id TEXT NOT NULL,
                message_data TEXT NOT NULL, created_at TIMESTAMP);
            """
        )
        raw.execute("INSERT INTO agent_sessions VALUES ('user_1', ?, ?)", (_AT, _AT))
        for i in range(items):
            item = json.dumps({"role": "user", "content": f"{said} {i}"})
            raw.execute("INSERT INTO agent_messages VALUES (NULL, 'user_1', ?, ?)", (item, _AT))
    return path


def _sdk_key(scope: str | None = None) -> str:
    return composed(scope or "openai-agents", "session", "user_1")


def _read_sdk(store: Any, scope: str | None) -> list[str]:
    if store.conversations.sessions.find(_sdk_key(scope)) is None:
        return []
    found = store.conversations.branches.history(_sdk_key(scope), limit=500)
    return [runtime.unpacked(one.message.content)["content"] for one in found]


def _append_sdk(store: Any) -> None:
    content = runtime.packed({"role": "user", "content": "here"})
    store.conversations.branches.append(_sdk_key(), [NewMessage("user", content)])


def _team(root: Path, said: str, items: int) -> Path:
    read = {"bo": told(8)}
    write_team(root, "dev", *(letter(f"m{i}", i, "bo", content=f"{said} {i}", read_by=read) for i in range(items)))
    return root


def _read_team(store: Any, scope: str | None) -> list[str]:
    owner = composed("dev", "bo") if scope is None else composed(scope, "dev", "bo")
    found = store.conversations.exchange.inbox(owner, state="all").items
    return [store.conversations.messages.get(one.message_id).content for one in found]


def _remove_team(store: Any) -> None:
    store.conversations.exchange.send(NewMessage("user", "here"), to="dev/bo")  # the last delivery always stays
    store.maintenance.prune.run(PrunePolicy("exchange", keep_days=0, ids=["dev/bo"]))


def _run(root: Path, said: str, items: int) -> Path:
    path = root / "smithers.db"
    path.unlink(missing_ok=True)
    node_databases.made(path)
    done = {"status": "finished", "finished_at_ms": node_databases.BEGIN + 9_000}
    node_databases.put(path, "runs", run_id="nightly", **done)
    for seq in range(items):
        node_databases.put(path, "events", run_id="nightly", seq=seq, payload_json={"said": f"{said} {seq}"})
    return path


def _read_run(store: Any, scope: str | None) -> list[str]:
    run_id = "nightly" if scope is None else composed(scope, "nightly")
    if store.workflows.runs.find(run_id) is None:
        return []
    return [one.payload["said"] for one in store.journal.events.list(run_id)]


def _live_run(root: Path, said: str, items: int) -> Path:
    path = _run(root, said, items)
    node_databases.change(path, "runs", "nightly", status="running", finished_at_ms=None)
    return path


def _mailbox(root: Path, said: str, items: int) -> Path:
    shutil.rmtree(root / "ag-1", ignore_errors=True)
    folder = write_session(root)
    sql(folder / "inbound.db", "DELETE FROM messages_in")
    statement = "INSERT INTO messages_in (id, seq, kind, timestamp, content) VALUES (?, ?, 'chat', ?, ?)"
    for i in range(items):
        text = json.dumps({"text": f"{said} {i}"})
        sql(folder / "inbound.db", statement, [f"m-{i}", 2 * i + 2, "2026-01-05T10:00:00.000Z", text])
    return root


def _read_mailbox(store: Any, scope: str | None) -> list[str]:
    group = "ag-1" if scope is None else f"{scope}.ag-1"
    if not (store.mailbox.root / group / "sess-1").is_dir():
        return []
    rows = sql(store.mailbox.root / group / "sess-1" / "inbound.db", "SELECT content FROM messages_in ORDER BY seq")
    return [json.loads(content)["text"] for (content,) in rows]


SOURCES = {
    "openai-agents-db": Named(
        "user_1", _sdk, _read_sdk, _append_sdk, lambda store: store.conversations.sessions.delete(_sdk_key())
    ),
    "lionagi-teams": Named(
        "dev.json",
        _team,
        _read_team,
        lambda store: store.conversations.exchange.send(NewMessage("user", "here"), to="dev/bo"),
        _remove_team,
        is_shared=True,
    ),
    "smithers-db": Named(
        "runs/nightly",
        _live_run,
        _read_run,
        lambda store: store.workflows.claims.take("nightly", owner="here"),
        lambda store: store.maintenance.prune.run(PrunePolicy(kind="runs", keep_days=1, keep_n=0)),
    ),
    "nanoclaw": Named(
        "ag-1/sess-1",
        _mailbox,
        _read_mailbox,
        lambda store: send(store.mailbox.host("ag-1", "sess-1")),
        lambda store: store.mailbox.prune("ag-1", "sess-1", dry_run=False),
    ),
}
#: Of a run that has ended, which a prune removes.
ENDED_RUN = _run
