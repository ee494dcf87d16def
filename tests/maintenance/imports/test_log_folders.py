"""The event logs of the first original system are copied byte for byte, and nothing that is here is changed."""

from __future__ import annotations

import fcntl
import shutil
from pathlib import Path
from typing import Any

import pytest
from support.maintenance.run_folders import bytes_of

from lastlight_state.errors import Conflict
from lastlight_state.testing import Database

FIRST = b'{"type":"user","message":{"role":"user","content":"hi"},"timestamp":"2026-01-05T10:00:00.000Z"}\n'
SECOND = FIRST.replace(b"hi", b"again")


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A folder with a log of a chat and one of a workflow, and files that are no logs."""
    root = tmp_path / "theirs"
    for name, text in (("-app/chat-1", FIRST), ("-home-agent/ses-1", FIRST + SECOND[:20])):
        path = root / "projects" / f"{name}.jsonl"
        path.parent.mkdir(parents=True)
        path.write_bytes(text)
    (root / "projects" / "-app" / "link.jsonl").symlink_to(root / "projects" / "-app" / "chat-1.jsonl")
    (root / "projects" / "other").symlink_to(root / "projects" / "-app")
    (root / "projects" / "-app" / "notes.txt").write_bytes(b"x")
    return root


def _log(store: Any, name: str = "-app/chat-1") -> Path:
    return Path(store.agent_log.root) / "projects" / f"{name}.jsonl"


def test_logs_are_copied_byte_for_byte_and_continued(store: Any, source: Path) -> None:
    """maintenance OP-36, OP-88, case 33: torn ends, too; the plan tells the truth and writes nothing."""
    before, imports = bytes_of(source), store.maintenance.imports
    assert imports.detect(source) == "lastlight-logs"
    plan = imports.plan(source)
    assert not Path(store.agent_log.root).exists()
    done = imports.run(source)
    assert (done.units, done.rows) == (plan.units, plan.rows)
    assert (done.units, done.rows["log_files"], bytes_of(source)) == ({"imported": 2}, 2, before)
    assert _log(store).read_bytes() == FIRST
    assert [one.value["message"]["content"] for one in store.agent_log.reader.read("chat-1").lines] == ["hi"]
    assert imports.run(source).units == {"unchanged": 2}
    torn = source / "projects" / "-home-agent" / "ses-1.jsonl"
    torn.write_bytes(FIRST + SECOND)
    done = imports.run(source)
    assert (done.units, done.rows) == ({"grown": 1, "unchanged": 1}, {"log_bytes": len(SECOND) - 20})
    assert _log(store, "-home-agent/ses-1").read_bytes() == FIRST + SECOND


def test_what_is_here_is_never_changed(sqlite_database: Database, source: Path) -> None:
    """maintenance OP-88: a longer log is kept, another one is refused, and so is one that somebody writes."""
    store = sqlite_database.open()
    store.maintenance.imports.run(source)
    _log(store).write_bytes(FIRST + SECOND)
    assert store.maintenance.imports.run(source).units == {"unchanged": 2}
    (source / "projects" / "-app" / "chat-1.jsonl").write_bytes(SECOND)
    done = store.maintenance.imports.run(source)
    assert [(one.unit, one.code) for one in done.failures] == [("-app/chat-1", "already_exists")]
    (source / "projects" / "-app" / "chat-1.jsonl").write_bytes(FIRST + SECOND + FIRST)
    with _log(store).open("rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        done = store.maintenance.imports.run(source)
    assert [(one.unit, one.code) for one in done.failures] == [("-app/chat-1", "busy")]
    assert _log(store).read_bytes() == FIRST + SECOND


def test_a_log_that_was_removed_here_comes_back_only_if_it_is_revived(sqlite_database: Database, source: Path) -> None:
    """maintenance OP-36, OP-88."""
    store = sqlite_database.open()
    store.maintenance.imports.run(source)
    _log(store).unlink()
    assert store.maintenance.imports.run(source).units == {"pruned": 1, "unchanged": 1}
    assert store.maintenance.imports.run(source, revive=True).units == {"imported": 1, "unchanged": 1}
    assert _log(store).read_bytes() == FIRST


def test_a_name_that_no_session_has_fails_its_log_alone(sqlite_database: Database, source: Path) -> None:
    """maintenance OP-35, OP-88: a folder without logs is no source."""
    (source / "projects" / "-app" / "a b.jsonl").write_bytes(FIRST)
    imports = sqlite_database.open().maintenance.imports
    done = imports.run(source)
    assert (done.units, done.failures[0].unit) == ({"failed": 1, "imported": 2}, "-app/a b")
    shutil.rmtree(source / "projects")
    with pytest.raises(Conflict, match="lastlight-logs: a folder with projects"):
        imports.detect(source)
