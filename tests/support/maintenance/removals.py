"""Parts of imported units that something here removes, while the unit itself stays."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from support.maintenance import node_databases, state_databases
from support.maintenance.run_folders import branch, message, write_run
from support.maintenance.team_files import letter, told, write_team

from lastlight_state.maintenance import PrunePolicy


@dataclass(frozen=True)
class Removal:
    """How a source is written at a step, what is here of the part, what removes it, and the name of its unit.

    ``new`` is what a later step of the source has of it, and comes in. A part that ``returns`` comes back when the
    unit is revived; what was emptied does not.
    """

    write: Callable[[Path, int], Path]
    here: Callable[[Any], set[str]]
    remove: Callable[[Any], object]
    unit: str
    new: frozenset[str] = frozenset()
    returns: bool = True


def _ids(step: int) -> list[str]:
    return [f"m{number}" for number in range(2 + step)]


def _state_database(root: Path, step: int) -> Path:
    path = root / "state.db"
    if not path.exists():
        state_databases.made(path)
    for number, one in enumerate(_ids(step)):
        state_databases.put_message(path, one, number, sender="ana")
    at, aside = state_databases.BEGIN + 60 + step, [f"aside{number}" for number in range(1, step + 1)]
    for one in aside:  # of one branch alone, and of the order of all messages
        state_databases.put_message(path, one, 20, sender="bo")
    marks = {"first_msg_id": "m0", "last_msg_id": [*_ids(step), *aside][-1]}
    all_ids = [*_ids(step), *aside]
    state_databases.put_session(path, "s", all_ids, status="completed", ended_at=at, updated_at=at, **marks)
    for one, user, ids in (("main", None, _ids(step)), ("side", "ana", all_ids)):
        state_databases.put_branch(path, "s", one, ids, user=user, status="completed")
    return path


def _run_folder(root: Path, step: int) -> Path:
    home = root / "runs"
    home.mkdir(exist_ok=True)
    said = [message(one, number) for number, one in enumerate(_ids(step))]
    mine = [message(f"own-{one}", number) for number, one in enumerate(_ids(step))]
    write_run(home, "r", branch("main", said), branch("side", mine))
    return home


def _branches(store: Any) -> set[str]:
    return {one.id for one in store.conversations.branches.list(session_id="s").items if one.id == "side"}


def _branches_of_run(store: Any) -> set[str]:
    found = {"side"} if store.conversations.branches.find("side") is not None else set()
    there = (store.conversations.messages.find(f"own-m{number}") for number in range(2, 6))
    return found | {one.id for one in there if one is not None}


def _history(store: Any) -> set[str]:
    return {one.message.id for one in store.conversations.branches.history("main", limit=50)}


def _lost(store: Any) -> set[str]:
    return _history(store) & {"m1"} | _pool(store) & {"m1", "m2", "m3", "m4"}


def _pool(store: Any) -> set[str]:
    order = store.conversations.sessions.get("s").progression_id
    return set(store.conversations.progressions.collection(order))


def _users(store: Any) -> set[str]:
    return {one for one in (store.conversations.branches.get("side").user,) if one is not None}


def _texts(store: Any) -> set[str]:
    found = [store.conversations.messages.get(one) for one in ("m0", "m1")]
    return {one.id for one in found if one.sender is not None or one.content == {"text": one.id}}


def _team_file(root: Path, step: int) -> Path:
    letters = [letter(f"m{i}", i, "bo", content=f"said {i}", read_by={"bo": told(8)}) for i in range(2 + step)]
    write_team(root, "dev", *letters)
    return root


def _team_database(root: Path, step: int) -> Path:
    path = root / "state.db"
    if not path.exists():
        state_databases.made(path)
        with closing(sqlite3.connect(path)) as raw, raw:
            raw.executescript(
                """
                CREATE TABLE teams (id TEXT, name TEXT, created_at REAL, updated_at REAL, members JSON);
                CREATE TABLE team_messages (id TEXT, team_id TEXT, created_at REAL, sender TEXT, recipient TEXT,
                    content TEXT, read_by JSON);
                """
            )
            raw.execute("INSERT INTO teams VALUES ('dev', 'T', 1.5, 2, ?)", [json.dumps(["ana", "bo", "cy"])])
    with closing(sqlite3.connect(path)) as raw, raw:
        raw.execute("DELETE FROM team_messages")
        for i in range(2 + step):
            row = [f"m{i}", 2.5 + i, f"said {i}"]
            raw.execute("INSERT INTO team_messages VALUES (?, 'dev', ?, 'ana', 'bo', ?, '[]')", row)
    return path


def _inbox(store: Any) -> set[str]:
    found = {one.message_id for one in store.conversations.exchange.inbox("dev/bo", state="all").items}
    members = {one for one in store.conversations.exchange.members("dev") if one == "dev/bo"}
    return found | members


def _run(root: Path, step: int) -> Path:
    path = root / "smithers.db"
    if not path.exists():
        node_databases.made(path)
        with closing(sqlite3.connect(path)) as raw:
            raw.execute(
                "CREATE TABLE plan (run_id TEXT, node_id TEXT, iteration INTEGER, title TEXT,"
                " PRIMARY KEY (run_id, node_id, iteration))"
            )
    put, at = node_databases.put, node_databases.BEGIN
    put(path, "runs", run_id="r", status="finished", finished_at_ms=at + 9_000)
    put(path, "nodes", run_id="r", node_id="n")
    put(path, "attempts", run_id="r", node_id="n")
    for i in range(2 + step):
        put(path, "events", run_id="r", seq=i)
        put(path, "signals", run_id="r", seq=i)
        put(path, "tool_calls", run_id="r", node_id="n", iteration=0, seq=i, started_at_ms=at + 9_000 - i)
        score = {"node_id": "n", "iteration": 0, "scorer_id": f"s{i}", "score": 0.5, "scored_at_ms": at + i}
        put(path, "scorers", id=f"score{i}", run_id="r", **score)
        with closing(sqlite3.connect(path)) as raw, raw:
            raw.execute("INSERT OR REPLACE INTO plan VALUES ('r', ?, 0, 't')", [f"n{i}"])
    return path


def _prune_journal(store: Any) -> None:
    store.maintenance.prune.run(PrunePolicy("journal", keep_days=1, keep_n=0))


def _calls(store: Any) -> set[str]:
    return {one.call_id for one in store.journal.tool_calls.list("r").items}


def _withdraw(store: Any) -> None:
    for one in ("n0", "n1"):
        store.outputs.results.withdraw("plan", "r", one, reason="reset")


def _shorten(store: Any) -> None:
    """Take the last message off both branches and the order of all messages, and let a prune take it."""
    order = store.conversations.sessions.get("s").progression_id
    store.conversations.branches.pop("main")
    store.conversations.branches.pop("side")
    version = store.conversations.progressions.get(order).version
    store.conversations.progressions.replace(order, ["m0"], expect_version=version)
    store.maintenance.prune.run(PrunePolicy("orphans", keep_days=0))


REMOVALS = {
    "branch of lionagi-db": Removal(
        _state_database, _branches, lambda store: store.conversations.branches.delete("side"), "s"
    ),
    "branch of lionagi-runs": Removal(
        _run_folder, _branches_of_run, lambda store: store.conversations.branches.delete("side"), "r"
    ),
    "messages of lionagi-db": Removal(_state_database, _lost, _shorten, "s", frozenset({"m2", "m3", "m4"})),
    "user of a branch": Removal(
        _state_database, _users, lambda store: store.maintenance.erase.run("ana"), "s", returns=False
    ),
    "texts of a person": Removal(
        _state_database, _texts, lambda store: store.maintenance.erase.run("ana"), "s", returns=False
    ),
    "member of lionagi-teams": Removal(
        _team_file, _inbox, lambda store: store.maintenance.erase.run("dev/bo"), "dev.json"
    ),
    "member of a team of lionagi-db": Removal(
        _team_database, _inbox, lambda store: store.maintenance.erase.run("dev/bo"), "teams/dev"
    ),
    "tool calls": Removal(_run, _calls, _prune_journal, "runs/r", frozenset(f"n:0:1:{number}" for number in (2, 3, 4))),
    "scores": Removal(
        _run,
        lambda store: {one.id for one in store.journal.scores.list().items},
        _prune_journal,
        "runs/r",
        frozenset({"score2", "score3", "score4"}),
    ),
    "signals": Removal(
        _run,
        lambda store: {str(one.seq) for one in store.journal.signals.list("r")},
        _prune_journal,
        "runs/r",
        frozenset("234"),
    ),
    "rows of an output table": Removal(
        _run,
        lambda store: {one.node_id for one in store.outputs.results.list("plan", run_id="r").items},
        _withdraw,
        "runs/r",
        frozenset({"n2", "n3", "n4"}),
    ),
}
