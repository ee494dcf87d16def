"""The event logs of another state directory are copied, byte for byte."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.cli.calls import lastlight_state
from support.maintenance.run_folders import BEGIN, bytes_of

from lastlight_state.errors import BackendBusy, BackendUnavailable, Conflict
from lastlight_state.files.jsonl import files
from lastlight_state.files.jsonl.writer import LineWriter
from lastlight_state.maintenance.imports import log_trees
from lastlight_state.testing import Database

LINE = (
    b'{"type":"user","message":{"role":"user","content":"hi"},'
    b'"timestamp":"2026-01-05T10:00:00.000Z","sessionId":"s1"}\n'
)
RAW = "a" * 64 + ".txt"


def _put(root: Path, name: str, data: bytes) -> Path:
    """A log or another file, which was changed last when the runs began."""
    path = root / "projects" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    os.utime(path, (BEGIN, BEGIN))
    return path


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """The logs of another program: two sessions, one with a sub-agent, a tool result and a torn end."""
    root = tmp_path / "other" / "agent-sessions"
    _put(root, "-app/s1.jsonl", LINE * 2 + b'{"torn')
    _put(root, "-app/s1/subagents/agent-1.jsonl", LINE)
    _put(root, f"-app/s1/raw/{RAW}", b"whole")
    _put(root, "-app/agent-2.jsonl", b"")
    _put(root, "-work/s2.jsonl", LINE)
    return root


def test_logs_are_copied_byte_for_byte_with_their_times(store: Any, source: Path) -> None:
    """maintenance OP-85, OP-35, OP-37, case 33: the plan is the truth, the source is only read."""
    _put(source, "-work/s2.repaired.jsonl", LINE)
    _put(source, "-work/empty/note.md", b"")
    _put(source, "note.md", b"")
    others = ("subagents/agent-1.md", "subagents/notes.jsonl", f"raw/{'b' * 64}", "raw/note.txt")
    for name in others:
        _put(source, f"-app/s1/{name}", b"")
    before, imports = bytes_of(source), store.maintenance.imports
    assert imports.detect(source.parent) == imports.detect(source) == "lastlight-logs"
    plan = imports.plan(source.parent)
    assert (plan.units, plan.rows) == ({"ignored": 3, "imported": 5}, {"agent_logs": 5})
    assert not store.agent_log.root.exists()
    done = imports.run(source.parent)
    assert (done.units, done.rows, done.failures) == (plan.units, plan.rows, ())
    assert bytes_of(source) == before
    left_out = {"projects/-work/s2.repaired.jsonl", "projects/-work/empty/note.md", "projects/note.md"}
    left_out.update(f"projects/-app/s1/{name}" for name in others)
    assert bytes_of(store.agent_log.root) == {name: one for name, one in before.items() if name not in left_out}
    assert [one.type for one in store.agent_log.reader.read("s1").lines] == ["user", "user"]
    assert imports.run(source).units == {"ignored": 3, "unchanged": 5}


def test_a_log_that_has_grown_is_continued(every_backend: Any, source: Path) -> None:
    """maintenance OP-85, OP-36: also behind a torn line."""
    imports = every_backend.maintenance.imports
    imports.run(source)
    log = _put(source, "-app/s1.jsonl", LINE * 2 + b'{"torn":1}\n' + LINE)
    plan = imports.plan(source)
    assert (plan.units, plan.rows) == ({"grown": 1, "unchanged": 4}, {"agent_logs": 1})
    assert imports.run(source).units == plan.units
    stored = every_backend.agent_log.root / "projects/-app/s1.jsonl"
    assert (stored.read_bytes(), stored.stat().st_mtime) == (log.read_bytes(), BEGIN)
    assert imports.run(source).units == {"unchanged": 5}


def test_a_copy_that_is_here_already_keeps_its_own_time(every_backend: Any, source: Path) -> None:
    """maintenance OP-85: it is noted, and nothing is written to it."""
    here = _put(every_backend.agent_log.root, "-work/s2.jsonl", LINE)
    os.utime(here, (BEGIN + 5, BEGIN + 5))
    done = every_backend.maintenance.imports.run(source)
    assert (done.units, done.noticed, here.stat().st_mtime) == ({"imported": 5}, {"kept": 1}, BEGIN + 5)


def test_a_log_that_a_writer_holds_is_not_continued(
    every_backend: Any, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """maintenance OP-85: the import waits for the writer, and can be repeated where that takes too long."""
    imports = every_backend.maintenance.imports
    imports.run(source)
    _put(source, "-work/s2.jsonl", LINE * 2)
    stored = every_backend.agent_log.root / "projects/-work/s2.jsonl"
    monkeypatch.setattr(files, "LOCK_TIMEOUT", 0.01)
    with LineWriter(stored) as writer, writer.hold_lock(), pytest.raises(BackendBusy):
        imports.run(source)
    assert stored.read_bytes() == LINE
    assert imports.run(source).units == {"grown": 1, "unchanged": 4}


def test_a_log_that_went_on_here_is_kept_and_one_with_other_lines_is_refused(every_backend: Any, source: Path) -> None:
    """maintenance OP-85, OP-38: nothing that is stored is changed."""
    here, imports = every_backend.agent_log.root, every_backend.maintenance.imports
    longer = _put(here, "-work/s2.jsonl", LINE * 2)
    other = _put(here, "-app/s1.jsonl", LINE.replace(b"hi", b"ho"))
    done = imports.run(source)
    assert (done.units, done.rows) == ({"failed": 1, "imported": 4}, {"agent_logs": 3})
    assert done.noticed == {"kept": 1}
    assert [(one.unit, one.code) for one in done.failures] == [("-app/s1.jsonl", "already_exists")]
    assert (longer.read_bytes(), other.read_bytes()) == (LINE * 2, LINE.replace(b"hi", b"ho"))
    other.unlink()
    assert imports.run(source).units == {"imported": 1, "unchanged": 4}


def test_unsafe_names_and_links_fail_alone(every_backend: Any, source: Path, tmp_path: Path) -> None:
    """maintenance OP-85, OP-35: nothing is read or written through a link; long paths have short names."""
    _put(source, "-work/a.b.jsonl", LINE)
    _put(source, "-work/agent-a.b.jsonl", LINE)
    _put(source, "x" * 250 + "/s3.jsonl", LINE)
    (source / "projects/-work/s4.jsonl").symlink_to(source / "projects/-work/s2.jsonl")
    (source / "projects/-work/s5").mkdir()
    (source / "projects/-work/s5/raw").symlink_to(tmp_path)
    (source / "projects/-work/s6.jsonl").mkdir()
    done = every_backend.maintenance.imports.run(source)
    assert done.units == {"failed": 4, "ignored": 1, "imported": 6}
    assert {one.unit: one.code for one in done.failures} == {
        "-work/a.b.jsonl": "unsafe_path",
        "-work/agent-a.b.jsonl": "unsafe_path",
        "-work/s4.jsonl": "unsafe_path",
        "-work/s6.jsonl": "os_error",
    }


def test_a_folder_without_logs_and_the_own_one_are_no_source(every_backend: Any, tmp_path: Path) -> None:
    """maintenance OP-85, OP-35."""
    imports, own = every_backend.maintenance.imports, every_backend.agent_log.root
    with pytest.raises(Conflict, match="has no folder projects"):
        imports.plan(tmp_path, kind="lastlight-logs")
    (tmp_path / "none" / "projects" / "-app").mkdir(parents=True)
    with pytest.raises(Conflict, match="no known source"):
        imports.detect(tmp_path / "none")
    _put(own, "-app/s1.jsonl", LINE)
    assert imports.run(own).failures[0].reason.endswith("must not be the folder of logs that is imported into")
    (own / "projects/-app").rename(tmp_path / "-app")
    (own / "projects/-app").symlink_to(tmp_path / "-app")
    _put(tmp_path / "other", "-app/s2.jsonl", LINE)
    assert imports.run(tmp_path / "other").failures[0].code == "unsafe_path"


def _in_between(monkeypatch: pytest.MonkeyPatch, act: Callable[[], object]) -> None:
    """Do this once, between the look at a file and its copy."""
    store, left = log_trees.CopyPiece.store, [act]

    def after(self: Any, *given: Any) -> None:
        if left:
            left.pop()()
        store(self, *given)

    monkeypatch.setattr(log_trees.CopyPiece, "store", after)


@pytest.mark.parametrize("begin", [0, 1])
def test_a_writer_in_between_is_not_overwritten(
    every_backend: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, begin: int
) -> None:
    """maintenance OP-85: the unit begins again, and finds the lines of the writer."""
    source, here = tmp_path / "other", every_backend.agent_log.root
    _put(source, "-app/s1.jsonl", LINE * 3)
    if begin:
        _put(here, "-app/s1.jsonl", LINE)
    _in_between(monkeypatch, lambda: _put(here, "-app/s1.jsonl", LINE * 2))
    assert every_backend.maintenance.imports.run(source).units == {"grown": 1}
    assert bytes_of(here) == bytes_of(source)


def test_a_source_that_is_rewritten_meanwhile_is_refused(
    every_backend: Any, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """maintenance OP-85: a copy is of the bytes that were looked at."""
    monkeypatch.setattr(log_trees, "_names", lambda folder: ["s2.jsonl"] if folder.name == "-work" else [])
    _in_between(monkeypatch, lambda: _put(source, "-work/s2.jsonl", LINE.replace(b"hi", b"ho")))
    done = every_backend.maintenance.imports.run(source)
    assert [one.code for one in done.failures] == ["damaged_source"]
    assert not [one for one in every_backend.agent_log.root.rglob("*") if one.is_file()]


def test_the_second_name_that_a_kill_left_of_a_log_is_removed_and_not_written_to(
    every_backend: Any, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """maintenance OP-85, case 34: the log was moved away since, and holds what is in no other place."""
    root, killed = every_backend.agent_log.root, RuntimeError("killed")

    def kill(*_: Any, **__: Any) -> None:
        raise killed

    with monkeypatch.context() as patch:
        patch.setattr(log_trees.CopyPiece, "_clear", lambda *_: None)
        patch.setattr(files, "sync", kill)
        with pytest.raises(RuntimeError):
            every_backend.maintenance.imports.run(source)
    [log] = root.rglob("*.jsonl")
    [left] = root.rglob("*.tmp")
    kept = log.rename(root / "kept")
    kept.write_bytes(kept.read_bytes() + LINE)
    before = kept.read_bytes()
    assert (left.samefile(kept), every_backend.maintenance.imports.run(source).units) == (True, {"imported": 5})
    assert (kept.read_bytes(), left.exists(), log.exists()) == (before, False, True)


def test_a_target_that_cannot_be_written_ends_the_import(
    every_backend: Any, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """maintenance OP-85: as a full disk does; the same call goes on later."""

    def full(_: Path) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(files, "sync_directory", full)
        with pytest.raises(BackendUnavailable, match="No space left"):
            every_backend.maintenance.imports.run(source)
    done = every_backend.maintenance.imports.run(source)
    assert (done.units, done.noticed) == ({"imported": 5}, {"kept": 1})
    assert bytes_of(every_backend.agent_log.root) == bytes_of(source)


def test_the_command_imports_logs(sqlite_database: Database, source: Path) -> None:
    """maintenance OP-85, OP-73."""
    said = lastlight_state("import", source, "--dry-run", "--url", sqlite_database.url, "--json")
    assert (said.code, said.data["kind"], said.data["units"]) == (0, "lastlight-logs", {"imported": 5})
