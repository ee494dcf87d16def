"""A session that had no message at its last import goes on in its own file or folder only."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from support.maintenance import state_databases
from support.maintenance.named_sources import SOURCES
from support.maintenance.run_folders import branch, message, write_run

#: Writes a source with one session, which has a message of this text, or none.
Write = Callable[[Path, str | None], Path]


def _runs(root: Path, said: str | None) -> Path:
    write_run(root / "runs", "s", *([] if said is None else [branch(f"b{said}", [message(said, 0)])]))
    return root / "runs"


def _database(root: Path, said: str | None) -> Path:
    root.mkdir(exist_ok=True)
    path, ids = root / "state.db", [] if said is None else [said]
    if not path.exists():
        state_databases.made(path)
    for one in ids:
        state_databases.put_message(path, one, 0)
    state_databases.put_session(path, "s", ids, updated_at=state_databases.BEGIN + 60 + len(ids))
    if ids:
        state_databases.put_branch(path, "s", f"b{said}", ids)
    return path


@pytest.mark.parametrize("write", [_runs, _database])
def test_an_empty_session_takes_no_messages_of_another_place(every_backend: Any, tmp_path: Path, write: Write) -> None:
    """maintenance M-120: its own come in afterwards."""
    imports = every_backend.maintenance.imports
    own, other = write(tmp_path / "own", None), write(tmp_path / "other", "theirs")
    assert imports.run(own).units == {"imported": 1}
    plan, done = imports.plan(other), imports.run(other)
    assert plan.units == done.units == {"failed": 1}
    assert "had no messages at its last import" in done.failures[0].reason
    write(tmp_path / "own", "ours")
    assert imports.run(own).units == {"grown": 1}
    [found] = every_backend.conversations.branches.list(session_id="s").items
    assert found.id == "bours"


def test_an_empty_session_of_the_agents_sdk_takes_no_items_of_another_file(every_backend: Any, tmp_path: Path) -> None:
    """maintenance M-120: also if it began in the same second; its own come in afterwards."""
    imports, named = every_backend.maintenance.imports, SOURCES["openai-agents-db"]
    for name in ("own", "other"):
        (tmp_path / name).mkdir()
    own, other = named.write(tmp_path / "own", "ours", 0), named.write(tmp_path / "other", "theirs", 2)
    assert imports.run(own).units == {"imported": 1}
    plan, done = imports.plan(other), imports.run(other)
    assert plan.units == done.units == {"failed": 1}
    assert "a scope keeps both" in done.failures[0].reason
    assert imports.run(other, scope="theirs").units == {"imported": 1}
    with closing(sqlite3.connect(own)) as raw, raw:
        item = json.dumps({"role": "user", "content": "ours"})
        raw.execute("INSERT INTO agent_messages SELECT NULL, session_id, ?, created_at FROM agent_sessions", (item,))
    assert imports.run(own).units == {"grown": 1}
