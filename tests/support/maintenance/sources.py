"""Sources of kinds that are imported, with three units or more, and how each grows."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from support.maintenance import homes, node_databases, state_databases, workflow_databases
from support.maintenance.run_folders import branch, message, write_run
from support.maintenance.team_files import letter, write_team
from support.maintenance.whole_runs import Report, whole_run
from support.migrations.eras import ERAS
from support.run_log.logs import OTHER_SESSION, SESSION, ending, event, id_of

from lastlight_state import StateStore
from lastlight_state.workflows.arguments import ExecutionOptions

#: The kind that is no kind of `imports`.
BUNDLE = "bundle"
_LINE = b'{"type":"user","message":{"role":"user","content":"hi"},"timestamp":"2026-01-05T10:00:00.000Z"}\n'
_RAW = "projects/-app/s1/raw/" + "a" * 64 + ".txt"


def _run_folders(root: Path, grown: bool) -> None:
    shared = message("m1", 1, "system")
    write_run(root, "r1", branch("b1", [shared, message("m2", 2)]), branch("b2", [shared, message("m3", 3)]))
    write_run(root, "r2", branch("b3", [message(f"n{i}", i) for i in range(4 + 3 * grown)]))
    write_run(root, "r3", branch("b4", [message(f"o{i}", i) for i in range(2 + grown)]), status="error")


def _session_database(root: Path, grown: bool) -> None:
    path = root / "state.db"
    if not grown:
        state_databases.made(path)
    for i in range(3):
        ids = [f"m{i}{j}" for j in range(3 + 2 * grown)]
        for j, one in enumerate(ids):
            state_databases.put_message(path, one, i * 10 + j)
        state_databases.put_session(path, f"s{i}", ids, status="completed", ended_at=state_databases.BEGIN + 50)
        state_databases.put_branch(path, f"s{i}", f"b{i}", ids)


def _teams(root: Path, grown: bool) -> None:
    for i in range(3):
        letters = [letter(f"m{i}{j}", j, read_by={"bo": "2026-01-05T11:00:00"}) for j in range(2 + 2 * grown)]
        write_team(root, f"t{i}", *letters)


def _workflow_database(root: Path, grown: bool) -> None:
    path = root / "theirs.db"
    if not grown:
        [newest] = [era for era in ERAS if era.stem == workflow_databases.NEWEST]
        workflow_databases.made(path, newest)
    for key in ("alone", "later") if grown else ("alone",):
        workflow_databases.put(path, "executions", **workflow_databases.execution(key))


def _node_database(root: Path, grown: bool) -> None:
    path = root / "smithers.db"
    if not grown:
        node_databases.made(path)
    for i in range(3 + grown):
        run_id = f"r{i}"
        node_databases.put(path, "runs", run_id=run_id, status="finished", finished_at_ms=node_databases.BEGIN + 9_000)
        node_databases.put(path, "nodes", run_id=run_id, node_id="plan")
        node_databases.put(path, "attempts", run_id=run_id, node_id="plan")
        node_databases.put(path, "input", run_id=run_id, payload={"text": "go"})
        for seq in range(2 + i * grown):
            node_databases.put(path, "events", run_id=run_id, seq=seq, payload_json={"nodeId": "plan"})


def _log_tree(root: Path, grown: bool) -> None:
    for name, lines in (("s1.jsonl", 2 + grown), ("s1/subagents/agent-1.jsonl", 1), ("s2.jsonl", 1 + 2 * grown)):
        _put(root / "projects/-app" / name, _LINE * lines)
    _put(root / _RAW, b"whole")


def _home(root: Path, grown: bool) -> None:
    for i in range(2):
        run_id = id_of(i)
        more = [event(1), ending()] if grown else []
        homes.write_log(root, homes.begin(run_id), *({**one, "run_id": run_id} for one in more), run_id=run_id)
    at = "2026-02-03T13:00:00.000Z" if grown else "2026-02-03T12:00:00.000Z"
    for session_id in (SESSION, OTHER_SESSION):
        homes.write_state(root, homes.state("one", session_id=session_id, at=at, invoke_seq=1 + grown), session_id)


def _agent_histories(root: Path, grown: bool) -> None:
    with closing(sqlite3.connect(root / "agents.db")) as raw, raw:
        if not grown:
            raw.executescript(
                """
                CREATE TABLE agent_sessions (session_id TEXT PRIMARY KEY, created_at TIMESTAMP, updated_at TIMESTAMP);
                CREATE TABLE agent_messages (id INTEGER PRIMARY KEY AUTOINCREMENT, session_id TEXT NOT NULL,
                    message_data TEXT NOT NULL, created_at TIMESTAMP);
                """
            )
        at = "2026-02-03 13:00:00" if grown else "2026-02-03 12:00:00"
        for i in range(3):
            session = (
                "INSERT INTO agent_sessions VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET updated_at = excluded.updated_at"
            )
            raw.execute(session, (f"s{i}", at, at))
            for text in range(2 + i * grown):
                item = json.dumps({"role": "user", "content": f"text {text} \0"})
                raw.execute("INSERT INTO agent_messages VALUES (NULL, ?, ?, ?)", (f"s{i}", item, at))


def _bundle(root: Path, _: bool) -> None:
    with StateStore.open(root / "from.db", state_dir=root, migrate=True) as store:
        store.outputs.catalog.define("report", Report)
        whole_run(store, "run", end=False)
        for name in ("s1", "s2"):
            options = ExecutionOptions(id=f"of-{name}")
            store.workflows.executions.start("wf:x", run_id="run", session_id=name, options=options)
            _put(store.settings.agent_sessions / f"projects/-app/{name}.jsonl", _LINE)
        store.maintenance.bundles.export("run", "run", root / "run.zip")


def _put(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


_MADE: dict[str, Callable[[Path, bool], None]] = {
    "lionagi-runs": _run_folders,
    "lionagi-db": _session_database,
    "lionagi-teams": _teams,
    "lastlight-db": _workflow_database,
    "smithers-db": _node_database,
    "lastlight-logs": _log_tree,
    "codelia": _home,
    "openai-agents-db": _agent_histories,
    BUNDLE: _bundle,
}
KINDS = tuple(_MADE)
#: What is imported of the folder in which a source is made.
NAMES = dict.fromkeys(KINDS, "") | {
    "lionagi-db": "state.db",
    "lastlight-db": "theirs.db",
    "smithers-db": "smithers.db",
    "openai-agents-db": "agents.db",
    BUNDLE: "run.zip",
}


def source_of(kind: str, root: Path, *, grown: bool = False) -> Path:
    """A source of a kind below a folder, which is made, and what is to be imported of it.

    ``grown`` adds to what was made there before.
    """
    root.mkdir(exist_ok=True)
    _MADE[kind](root, grown)
    return root / NAMES[kind]
