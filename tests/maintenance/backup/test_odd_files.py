"""Backups of folders in which others move files meanwhile, and in which agents make what they like."""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.between import before
from support.each import with_each
from support.run_log.logs import ending, head, id_of, put

from lastlight_state import StateStore
from lastlight_state.files.jsonl import files
from lastlight_state.files.run_log import RunLog
from lastlight_state.maintenance.backup import copies
from lastlight_state.testing import Database

DAY = "logs/sessions/2026/02/03"
TOO_DEEP = "lies too deep, or its path is too long"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "night" / "backup"


@pytest.fixture
def store(sqlite_database: Database) -> StateStore:
    return sqlite_database.open()


@pytest.fixture
def log(store: StateStore) -> RunLog:
    """The logs of three runs that have ended."""
    log = RunLog.open(store.settings.state_dir)
    for n in range(3):
        put(log, [head(id_of(n)), ending()], id_of(n))
    return log


def nested(folder: Path, name: str, times: int) -> None:
    """Make folders in each other, however long their path is."""
    held = os.open(folder, os.O_RDONLY)
    for _ in range(times):
        os.mkdir(name, dir_fd=held)
        inner = os.open(name, os.O_RDONLY, dir_fd=held)
        os.close(held)
        held = inner
    os.close(held)


def test_logs_that_are_packed_while_they_are_copied_are_in_the_backup(
    store: StateStore, log: RunLog, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """maintenance OP-46, case 80: under the name that they have now."""
    happened = before(monkeypatch, files, "opened_file", lambda: [log.runs.pack(id_of(n)) for n in range(3)])
    manifest = store.maintenance.backup.create(folder)
    assert happened
    copied = {file.path for file in manifest.files if file.path.startswith("logs")}
    assert copied == {f"{DAY}/{id_of(n)}.jsonl.gz" for n in range(3)}
    assert manifest.left_out == {}


def test_a_log_that_is_packed_after_it_was_copied_is_in_the_backup_once(
    store: StateStore, log: RunLog, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """maintenance OP-46, case 80."""
    walked, roots = os.walk, list[str]()

    def packed(root: Any, *given: Any, **named: Any) -> Iterator[Any]:
        roots.append(os.fspath(root))
        if roots.count(str(log.root / "sessions")) == 2:
            log.runs.pack(id_of(0))
        return walked(root, *given, **named)

    monkeypatch.setattr(os, "walk", packed)
    manifest = store.maintenance.backup.create(folder)
    copied = {file.path for file in manifest.files if file.path.startswith("logs")}
    assert copied == {f"{DAY}/{id_of(n)}.jsonl" for n in range(3)}
    assert log.runs.pack(id_of(0)) is False


def test_a_log_that_was_packed_before_is_in_the_backup_once(store: StateStore, log: RunLog, folder: Path) -> None:
    """maintenance OP-46, case 80: although its folder is listed twice."""
    log.runs.pack(id_of(0))
    copied = {file.path for file in store.maintenance.backup.create(folder).files if file.path.startswith("logs")}
    assert copied == {f"{DAY}/{id_of(0)}.jsonl.gz", *(f"{DAY}/{id_of(n)}.jsonl" for n in (1, 2))}


def test_a_log_that_is_packed_after_the_second_listing_is_in_the_backup(
    store: StateStore, log: RunLog, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """maintenance OP-46, case 80: folders are listed until nothing that was listed is gone."""
    _hide_at_first(monkeypatch)
    happened = before(monkeypatch, files, "opened_file", lambda: [log.runs.pack(id_of(n)) for n in range(3)])
    copied = {file.path for file in store.maintenance.backup.create(folder).files if file.path.startswith("logs")}
    assert (bool(happened), copied) == (True, {f"{DAY}/{id_of(n)}.jsonl.gz" for n in range(3)})


def test_a_log_that_moves_while_its_folder_is_listed_is_in_the_backup(
    store: StateStore, log: RunLog, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """maintenance OP-46, case 80: a listing may lack both of its names, so there is a second one."""
    seen = _hide_at_first(monkeypatch)
    manifest = store.maintenance.backup.create(folder)
    assert {f"{DAY}/{id_of(n)}.jsonl" for n in range(3)} <= {file.path for file in manifest.files}
    assert len(seen) > len(set(seen))


def _hide_at_first(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Let the first listing of each directory lack its logs. Returns the directories that were listed."""
    walked, seen = os.walk, list[str]()

    def lacking(root: Any, *given: Any, **named: Any) -> Iterator[Any]:
        first = os.fspath(root) not in seen
        seen.append(os.fspath(root))
        for path, folders, names in walked(root, *given, **named):
            yield path, folders, [name for name in names if not (first and name.endswith(".jsonl"))]

    monkeypatch.setattr(os, "walk", lacking)
    return seen


def test_what_is_no_file_among_the_line_files_is_left_out_and_named(
    store: StateStore, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """maintenance OP-46, case 81: a FIFO stops no backup, and a socket ends none."""
    logs = store.settings.agent_sessions
    logs.mkdir(parents=True)
    (logs / "one.jsonl").write_text('{"a": 1}\n')
    os.mkfifo(logs / "pipe.jsonl")
    (logs / "link.jsonl").symlink_to(logs / "one.jsonl")
    for name in ("left.tmp", "left.lock"):
        (logs / name).write_text("{}")
    monkeypatch.chdir(logs)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind("socket")
        manifest = store.maintenance.backup.create(folder)
    inside = "logs/agent-sessions"
    assert manifest.left_out == dict.fromkeys((f"{inside}/pipe.jsonl", f"{inside}/socket"), "is not a regular file")
    assert {file.path for file in manifest.files if file.path.startswith(inside)} == {f"{inside}/one.jsonl"}


@with_each(
    ("path", "is_too_deep"),
    [("n" * 2_000, False), ("n" * 2_001, True), ("é" * 1_001, True), ("d/" * 64, False), ("d/" * 65, True)],
    ids=["long", "too long", "too many bytes", "deep", "too deep"],
)
def test_a_path_may_have_so_many_bytes_and_folders(path: str, is_too_deep: bool) -> None:
    """maintenance OP-46, case 82."""
    assert copies.too_deep(Path(path)) is is_too_deep


@pytest.mark.parametrize(("name", "times", "kept"), [("d", 1_100, 63), ("n" * 250, 20, 7)], ids=["deep", "long"])
def test_folders_that_lie_too_deep_are_left_out_and_named(
    store: StateStore, folder: Path, tmp_path: Path, request: pytest.FixtureRequest, name: str, times: int, kept: int
) -> None:
    """maintenance OP-46, case 82: an agent who nests them ends no backup, and the backup can be put back."""
    outbox = store.mailbox.create("group", "session").folder / "outbox"
    logs = store.settings.agent_sessions
    logs.mkdir(parents=True)
    request.addfinalizer(lambda: subprocess.run(["rm", "-rf", outbox, logs], check=True))
    nested(outbox, name, times)
    nested(logs, name, times)
    (outbox / name / "reply.txt").write_text("Milk.")
    manifest = store.maintenance.backup.create(folder)
    deepest = "/".join([name] * (kept + 1))
    beside = "/".join([name] * (64 + 1 if len(name) == 1 else kept + 1))
    assert manifest.left_out == {
        f"logs/agent-sessions/{beside}": TOO_DEEP,
        f"group/session/outbox/{deepest}": TOO_DEEP,
    }
    assert f"mailboxes/group/session/outbox/{name}/reply.txt" in {file.path for file in manifest.files}
    assert [path.name for path in folder.parent.iterdir()] == ["backup"]
    store.maintenance.backup.restore(folder, tmp_path / "there" / "lastlight.db")
