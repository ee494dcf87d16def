"""A copy of a source at another place, older or gone on by itself: nothing of what is here is cut or replaced."""

from __future__ import annotations

import json
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from support.maintenance import homes, state_databases
from support.maintenance.run_folders import branch, message, write_run
from support.maintenance.sources import source_of
from support.run_log.logs import SESSION

from lastlight_state.conversations import runtime


def order(store: Any, branch_id: str) -> list[str]:
    return [one.message.id for one in store.conversations.branches.history(branch_id, limit=50)]


def put(source: Path, ids: list[str], seconds: int) -> None:
    for number, one in enumerate(ids):
        state_databases.put_message(source, one, number)
    at = state_databases.BEGIN + 60 + seconds
    state_databases.put_session(source, "s", ids, updated_at=at)
    state_databases.put_branch(source, "s", "b", ids)


def test_an_older_copy_of_a_state_database_cuts_no_conversation(store: Any, tmp_path: Path) -> None:
    """maintenance M-120: a moved file that has only grown goes on."""
    imports, source = store.maintenance.imports, state_databases.made(tmp_path / "state.db")
    put(source, ["m0", "m1"], 0)
    older = shutil.copy(source, tmp_path / "older.db")
    put(source, ["m0", "m1", "m2", "m3"], 50)
    imports.run(source)
    assert imports.run(Path(older)).units["failed"] == 1
    assert order(store, "b") == ["m0", "m1", "m2", "m3"]
    moved = Path(shutil.move(source, tmp_path / "moved.db"))
    put(moved, ["m0", "m1", "m2", "m3", "m4"], 60)
    assert "failed" not in imports.run(moved).units
    assert order(store, "b") == ["m0", "m1", "m2", "m3", "m4"]


def test_an_older_copy_with_the_same_messages_changes_no_field(store: Any, tmp_path: Path) -> None:
    """maintenance M-120: a newer copy does, wherever it stands."""
    imports, source = store.maintenance.imports, state_databases.made(tmp_path / "state.db")

    def named(file: Path, name: str, seconds: int) -> None:
        put(file, ["m0", "m1"], seconds)
        at = state_databases.BEGIN + 60 + seconds
        state_databases.put_session(file, "s", ["m0", "m1"], updated_at=at, name=name)

    named(source, "first", 0)
    older = Path(shutil.copy(source, tmp_path / "older.db"))
    named(source, "second", 50)
    imports.run(source)
    assert [one.unit for one in imports.run(older).failures] == ["s"]
    assert store.conversations.sessions.get("s").name == "second"
    named(older, "third", 70)
    assert imports.run(older).failures == ()
    assert store.conversations.sessions.get("s").name == "third"


def test_an_older_copy_of_run_folders_cuts_no_conversation(store: Any, tmp_path: Path) -> None:
    """maintenance M-120"""
    for name, length in (("home", 4), ("copy", 2)):
        (tmp_path / name).mkdir()
        write_run(tmp_path / name, "r", branch("b", [message(f"n{number}", number) for number in range(length)]))
    store.maintenance.imports.run(tmp_path / "home")
    assert store.maintenance.imports.run(tmp_path / "copy").units["failed"] == 1
    assert order(store, "b") == ["n0", "n1", "n2", "n3"]


def test_a_state_of_another_home_replaces_none(store: Any, tmp_path: Path) -> None:
    """maintenance M-120: one that is compacted where it stands goes on."""
    imports, ours, theirs = store.maintenance.imports, tmp_path / "ours", tmp_path / "theirs"
    for home, text, hour in ((ours, "our text", 12), (theirs, "their text", 13)):
        home.mkdir()
        at = f"2026-02-03T{hour}:00:00.000Z"
        homes.write_state(home, homes.state("one", text, session_id=SESSION, at=at, invoke_seq=1), SESSION)
    imports.run(ours)
    assert imports.run(theirs).units == {"failed": 1}
    later = homes.state("compacted", session_id=SESSION, at="2026-02-03T14:00:00.000Z", invoke_seq=2)
    homes.write_state(ours, later, SESSION)
    assert imports.run(ours).units == {"grown": 1}


@pytest.mark.parametrize("also_new", [True, False])
def test_two_copies_of_a_session_that_went_on_apart_are_not_merged(
    store: Any, tmp_path: Path, *, also_new: bool
) -> None:
    """maintenance M-120: a scope keeps both."""
    source = source_of("openai-agents-db", tmp_path / "program")
    other = Path(shutil.copy(source, tmp_path / "other.db"))
    imports = store.maintenance.imports

    def add(file: Path, number: int, text: str) -> None:
        with closing(sqlite3.connect(file)) as raw, raw:
            said = json.dumps({"role": "user", "content": text})
            raw.execute("INSERT INTO agent_messages VALUES (?, 's1', ?, '2026-02-03 13:00:00')", [number, said])

    add(source, 900, "ours")
    if also_new:
        add(other, 800, "theirs")
    imports.run(source)
    assert imports.run(other).units.get("failed", 0) == 1
    history = store.conversations.branches.history("openai-agents/session/s1", limit=500)
    assert [runtime.unpack_item(one.message.content)["content"] for one in history][-1] == "ours"
