"""Sources of each kind with one unit, whose name another source may have, too."""

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
from support.maintenance import homes, node_databases, state_databases, workflow_databases
from support.maintenance.mailbox_trees import write_session
from support.maintenance.run_folders import branch, message, write_run
from support.maintenance.team_files import letter, told, write_team
from support.migrations.eras import CHAT, ERAS, ROWS
from support.run_log.logs import RUN, SESSION, lines_of

from lastlight_state.codec import dump_line
from lastlight_state.conversations import NewMessage, runtime
from lastlight_state.keys import compose_key
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
    #: Whether names may be given a scope.
    has_scope: bool = True
    #: Whether what the source appends comes in behind, where nothing was said here.
    grows: bool = True


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
    return compose_key(scope or "openai-agents", "session", "user_1")


def _read_sdk(store: Any, scope: str | None) -> list[str]:
    if store.conversations.sessions.find(_sdk_key(scope)) is None:
        return []
    found = store.conversations.branches.history(_sdk_key(scope), limit=500)
    return [runtime.unpack_item(one.message.content)["content"] for one in found]


def _append_sdk(store: Any) -> None:
    content = runtime.pack_item({"role": "user", "content": "here"})
    store.conversations.branches.append(_sdk_key(), [NewMessage("user", content)])


def _team(root: Path, said: str, items: int) -> Path:
    read = {"bo": told(8)}
    write_team(root, "dev", *(letter(f"m{i}", i, "bo", content=f"{said} {i}", read_by=read) for i in range(items)))
    return root


def _read_team(store: Any, scope: str | None) -> list[str]:
    owner = compose_key("dev", "bo") if scope is None else compose_key(scope, "dev", "bo")
    found = store.conversations.exchange.inbox(owner, state="all", limit=500).items
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
    run_id = "nightly" if scope is None else compose_key(scope, "nightly")
    if store.workflows.runs.find(run_id) is None:
        return []
    return [one.payload["said"] for one in store.journal.events.list(run_id, limit=500)]


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


def _state_database(root: Path, said: str, items: int) -> Path:
    path = root / "state.db"
    path.unlink(missing_ok=True)
    state_databases.made(path)
    ids = [f"{said} {i}" for i in range(items)]
    for i, one in enumerate(ids):
        state_databases.put_message(path, one, i)
    state_databases.put_session(path, "s", ids, updated_at=state_databases.BEGIN + 60 + items)
    state_databases.put_branch(path, "s", f"branch of {said}", ids)
    return path


def _run_folder(root: Path, said: str, items: int) -> Path:
    home = root / "runs"
    shutil.rmtree(home, ignore_errors=True)
    home.mkdir()
    messages = [message(f"{said} {i}", i) for i in range(items)]
    write_run(home, "s", branch(f"branch of {said}", messages), agent_name=said)
    return home


def _read_session(store: Any, _: str | None) -> list[str]:
    found = store.conversations.branches.list(session_id="s").items
    told = (store.conversations.branches.history(one.id, limit=500) for one in found)
    return [one.message.id if one.message.id.startswith(_SAID) else "here" for said in told for one in said]


def _append_session(store: Any) -> None:
    [one] = store.conversations.branches.list(session_id="s").items
    store.conversations.branches.append(one.id, [NewMessage("user", "here")])


def _chats(root: Path, said: str, items: int) -> Path:
    path = root / "theirs.db"
    path.unlink(missing_ok=True)
    workflow_databases.made(path, next(era for era in ERAS if era.stem == workflow_databases.NEWEST))
    with closing(sqlite3.connect(path)) as raw, raw:
        for (table,) in raw.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
            raw.execute(f"DELETE FROM {table}")
    row = {
        **ROWS["messaging_sessions"][0],
        "created_at": "2026-01-01T00:00:00.000Z",
        "last_activity_at": f"2026-01-02T00:00:0{items}.000Z",
    }
    workflow_databases.put(path, "messaging_sessions", **row)
    for i in range(items):
        told = {"id": i + 1, "role": "user", "content": f"{said} {i}", "timestamp": f"2026-01-02T00:00:0{i}.000Z"}
        workflow_databases.put(path, "messaging_messages", session_id=CHAT, **told)
    return path


def _read_chat(store: Any, _: str | None) -> list[str]:
    return [one.content for one in store.messaging.messages.history(CHAT, limit=500)]


def _ended_chat(root: Path, said: str, items: int) -> Path:
    path, at = _chats(root, said, items), "2026-01-02T00:00:09.000Z"
    with closing(sqlite3.connect(path)) as raw, raw:
        raw.execute("UPDATE messaging_sessions SET active = 0, last_activity_at = ?", [at])
    return path


def _remove_chat(store: Any) -> None:
    store.maintenance.prune.run(PrunePolicy("messaging", keep_days=1, keep_n=0))


def _home(root: Path, said: str, items: int) -> Path:
    homes.write_log(root, homes.begin(), *(homes.said(f"{said} {i}") for i in range(items)))
    return root


def _logs(root: Path, said: str, items: int) -> Path:
    path = root / "projects" / "-app" / f"{SESSION}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"".join(dump_line(homes.said(f"{said} {i}")) for i in range(items)))
    return root


def _files(store: Any) -> list[Path]:
    roots = [store.agent_log.root, store.run_log.root]
    return sorted({one for root in roots if root.is_dir() for one in root.rglob("*.jsonl")})


def _read_file(store: Any, _: str | None) -> list[str]:
    return [one["content"] for path in _files(store) for one in lines_of(path) if "content" in one]


def _append_file(store: Any) -> None:
    [path] = _files(store)
    with path.open("ab") as file:
        file.write(dump_line(homes.said("here")))


def _remove_file(store: Any) -> None:
    [path] = _files(store)
    path.unlink()


#: With what the ids of messages that a source has begin.
_SAID = ("said", "shop", "clinic", "first", "second")
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
        grows=False,
    ),
    "lionagi-db": Named(
        "s",
        _state_database,
        _read_session,
        _append_session,
        lambda store: store.conversations.sessions.delete("s"),
        has_scope=False,
    ),
    "lionagi-runs": Named(
        "s",
        _run_folder,
        _read_session,
        _append_session,
        lambda store: store.conversations.sessions.delete("s"),
        has_scope=False,
    ),
    "lastlight-db": Named(
        f"messaging_sessions/{CHAT}",
        _chats,
        _read_chat,
        lambda store: store.messaging.messages.append(CHAT, role="user", content="here"),
        _remove_chat,
        has_scope=False,
    ),
    "codelia": Named(f"2026/02/03/{RUN}.jsonl", _home, _read_file, _append_file, _remove_file, has_scope=False),
    "lastlight-logs": Named(f"-app/{SESSION}.jsonl", _logs, _read_file, _append_file, _remove_file, has_scope=False),
}
#: Sources of a run and a chat that have ended, which a prune removes.
ENDED = {"smithers-db": _run, "lastlight-db": _ended_chat}
