"""Two copies of one source that went on apart: what both have is one, and the second one is refused by name."""

from __future__ import annotations

import json
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

from support.maintenance import node_databases, state_databases, workflow_databases
from support.maintenance.named_sources import SOURCES
from support.maintenance.sources import source_of


def _texts(path: Path, prefix: str, ids: list[str], seconds: int) -> None:
    for number, one in enumerate(ids):
        state_databases.put_message(path, one, number, content=json.dumps({"text": prefix + one}))
    state_databases.put_session(path, "s", ids, updated_at=state_databases.BEGIN + 60 + seconds)
    state_databases.put_branch(path, "s", "b", ids)


def test_copies_of_a_session_with_branches_of_their_own_are_not_merged(store: Any, tmp_path: Path) -> None:
    """maintenance M-120."""
    imports, ours = store.maintenance.imports, state_databases.made(tmp_path / "ours.db")
    _texts(ours, "", ["m0"], 0)
    theirs = Path(shutil.copy(ours, tmp_path / "theirs.db"))
    state_databases.put_branch(ours, "s", "ours", ["m0"])
    state_databases.put_branch(theirs, "s", "theirs", ["m0"])
    _texts(theirs, "", ["m0"], 9)
    imports.run(ours)
    assert [one.unit for one in imports.run(theirs).failures] == ["s"]
    assert store.conversations.branches.find("theirs") is None
    assert imports.run(ours).units == {"unchanged": 1}


def test_a_text_is_not_replaced_by_that_of_a_copy(store: Any, tmp_path: Path) -> None:
    """maintenance M-120."""
    imports, ours = store.maintenance.imports, state_databases.made(tmp_path / "ours.db")
    _texts(ours, "our ", ["m0"], 0)
    theirs = Path(shutil.copy(ours, tmp_path / "theirs.db"))
    _texts(theirs, "their ", ["m0"], 9)
    imports.run(ours)
    assert [one.unit for one in imports.run(theirs).failures] == ["s"]
    assert store.conversations.messages.get("m0").content == {"text": "our m0"}


def test_copies_of_a_smithers_run_that_went_on_apart_are_not_merged(store: Any, tmp_path: Path) -> None:
    """maintenance M-120: one that has all that the last import had goes on, wherever it lies."""
    put, imports = node_databases.put, store.maintenance.imports
    ours = node_databases.made(tmp_path / "ours.db")
    put(ours, "runs", run_id="r", status="running")
    put(ours, "events", run_id="r", seq=0)
    theirs = Path(shutil.copy(ours, tmp_path / "theirs.db"))
    put(ours, "events", run_id="r", seq=1)
    put(theirs, "nodes", run_id="r", node_id="n")
    put(theirs, "attempts", run_id="r", node_id="n", attempt=1)
    imports.run(ours)
    assert [one.unit for one in imports.run(theirs).failures] == ["runs/r"]
    assert store.workflows.executions.list(run_id="r").items == ()
    later = Path(shutil.copy(ours, tmp_path / "later.db"))
    put(later, "events", run_id="r", seq=2)
    assert imports.run(later).units == {"grown": 1}
    assert [one.seq for one in store.journal.events.list("r")] == [0, 1, 2]


def test_copies_of_a_lastlight_run_that_went_on_apart_are_not_merged(store: Any, tmp_path: Path) -> None:
    """maintenance M-120."""
    ours = source_of("lastlight-db", tmp_path)
    theirs = Path(shutil.copy(ours, tmp_path / "copy.db"))
    for path, name in ((ours, "ours"), (theirs, "theirs")):
        at = {"ours": "2026-09-01T00:00:01.000Z", "theirs": "2026-09-01T00:00:02.000Z"}[name]
        workflow_databases.change(path, "workflow_runs", "run-open", current_phase=name, updated_at=at)
        workflow_databases.put(path, "executions", **workflow_databases.execution(name, workflow_run_id="run-open"))
    imports = store.maintenance.imports
    imports.run(ours)
    assert [one.unit for one in imports.run(theirs).failures] == ["workflow_runs/run-open"]
    assert store.workflows.runs.get("run-open").current_phase == "ours"


def test_another_file_at_the_same_path_goes_on_with_no_session(store: Any, tmp_path: Path) -> None:
    """maintenance M-120: also where it gave the numbers of the last import to items that are gone."""
    named, imports = SOURCES["openai-agents-db"], store.maintenance.imports
    source = named.write(tmp_path, "said", 2)
    imports.run(source)
    source.rename(tmp_path / "aside.db")
    named.write(tmp_path, "other", 5)
    with closing(sqlite3.connect(source)) as raw, raw:
        at = "2026-02-04 09:00:00"
        raw.execute("DELETE FROM agent_messages")
        raw.execute("DELETE FROM agent_sessions")
        raw.execute("INSERT INTO agent_sessions VALUES ('user_1', ?, ?)", (at, at))
        raw.execute("INSERT INTO agent_messages VALUES (NULL, 'user_1', '{\"content\": \"x\"}', ?)", (at,))
    assert [one.unit for one in imports.run(source).failures] == ["user_1"]
    assert named.read(store, None) == ["said 0", "said 1"]
