"""What reaches the disk, and in which order: after a power failure a file is there whole, or not at all."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest
from support.agent_log.logs import agent_log, put
from support.run_log.logs import NOW, RUN, SESSION, run_log, start
from support.to_disk import ToDisk

from lastlight_state.files.agent_log import repair as agent_removal
from lastlight_state.files.mailbox import Attachment, Mailboxes
from lastlight_state.files.mailbox.folder import Place, creation
from lastlight_state.files.run_log import RunLog, SessionState
from lastlight_state.maintenance.prune.archiving import Archiver
from lastlight_state.testing import Database
from lastlight_state.workflows import Trigger
from lastlight_state.workflows.arguments import RunOptions

DAY = "sessions/2026/02/03"


@pytest.fixture
def log(tmp_path: Path) -> RunLog:
    return run_log(tmp_path, sync="end")


@pytest.fixture
def packed(log: RunLog) -> RunLog:
    with start(log) as writer:
        writer.run_start("go")
        writer.end("completed")
    log.runs.pack(RUN)
    return log


def test_a_new_log_is_on_disk_with_all_its_directories(
    log: RunLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """run-log RL-26: the header before its name, then the names."""
    calls = ToDisk(monkeypatch, tmp_path).calls
    writer = start(log)
    monkeypatch.undo()
    writer.close()
    assert calls == [
        "sync .",
        "sync sessions",
        f"sync {DAY}/.{RUN}.jsonl*.tmp",
        f"name {RUN}.jsonl",
        f"remove .{RUN}.jsonl*.tmp",
        f"sync {DAY}",
        "sync sessions",
        "sync sessions/2026",
        "sync sessions/2026/02",
    ]


def test_a_log_is_packed_before_it_is_removed(log: RunLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """run-log RL-82: the packed bytes, their name, and only then the plain log."""
    with start(log) as writer:
        writer.run_start("go")
        writer.end("completed")
    calls = ToDisk(monkeypatch, tmp_path).calls
    log.runs.pack(RUN)
    monkeypatch.undo()
    assert calls == [
        f"sync {DAY}/.{RUN}.jsonl.gz*.tmp",
        f"name {RUN}.jsonl.gz",
        f"sync {DAY}",
        f"remove {RUN}.jsonl",
        f"sync {DAY}",
        f"remove {RUN}",  # its lock
    ]


def test_removed_logs_stay_removed(packed: RunLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """run-log RL-82."""
    calls = ToDisk(monkeypatch, tmp_path).calls
    packed.runs.prune(ended_before=NOW + timedelta(days=1), dry_run=False)
    monkeypatch.undo()
    assert calls == [f"remove {RUN}.jsonl.gz", f"sync {DAY}", f"remove {RUN}"]


def test_a_snapshot_is_on_disk_before_its_name_and_its_removal_too(
    log: RunLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """run-log RL-70, RL-76."""
    calls = ToDisk(monkeypatch, tmp_path).calls
    log.states.put(SessionState(session_id=SESSION, messages=()))
    first = len(calls)
    log.states.clear(SESSION)
    monkeypatch.undo()
    assert calls[:first] == [
        "sync .",
        "sync sessions",
        "sync sessions/state",
        f"sync sessions/state/.{SESSION}.json.tmp",
        f"name {SESSION}.json",
        "sync sessions/state",
        f"remove {SESSION}",
    ]
    assert calls[first:] == [f"remove {SESSION}.json", "sync sessions/state", f"remove {SESSION}"]


def test_a_removed_agent_log_stays_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """agent-log L-121: its results and the log, then the directory that held them."""
    path = put(agent_log(tmp_path), '{"type": "user"}\n')
    (path.with_suffix("") / "raw").mkdir(parents=True)
    (path.with_suffix("") / "raw" / "a.txt").write_text("whole")
    calls = ToDisk(monkeypatch, tmp_path).calls
    agent_removal.remove(path, lambda *_: True)
    monkeypatch.undo()
    assert calls == ["remove a.txt", f"remove {path.name}", f"sync {path.parent.relative_to(tmp_path)}"]


def test_a_mailbox_and_its_files_are_on_disk_before_their_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """mailbox MB-61: the folder of a message, its files and their names, before the message is stored."""
    mailboxes = Mailboxes(tmp_path)
    calls = ToDisk(monkeypatch, tmp_path).calls
    host = mailboxes.create("g", "s")
    assert calls == ["sync g/.new-*", "name s", "sync g", "sync ."]
    del calls[:]
    host.inbox.send("m", kind="chat", content={}, attachments=[Attachment("a.txt", b"x")])
    assert calls == ["sync g/s/inbox/m/.new-*", "sync g/s/inbox", "name a.txt", "sync g/s/inbox/m", "remove .new-*"]


def test_a_removed_mailbox_is_gone_under_its_name_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """mailbox MB-03."""
    Mailboxes(tmp_path).create("g", "s")
    calls = ToDisk(monkeypatch, tmp_path).calls
    creation.remove(Place.below(tmp_path, "g", "s"))
    monkeypatch.undo()
    assert calls[:2] == ["name .gone-*", "sync g"]


def test_the_files_of_a_backup_are_on_disk_before_it_has_its_name(
    sqlite_database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """maintenance OP-45, OP-46: the line files, too."""
    with sqlite_database.open() as store:
        logs = store.settings.agent_sessions
        logs.mkdir(parents=True, exist_ok=True)
        (logs / "a.jsonl").write_text("{}\n")
        calls = ToDisk(monkeypatch, tmp_path).calls
        store.maintenance.backup.create(tmp_path / "backup")
    monkeypatch.undo()
    named = calls.index("name backup")
    synced = [
        call for call in calls[:named] if call.startswith("sync") and call.endswith(("a.jsonl", "manifest.json", ".db"))
    ]
    assert {Path(call).name for call in synced} == {"a.jsonl", "manifest.json", "lastlight.db"}


def test_a_bundle_that_a_killed_batch_left_is_brought_to_disk_before_its_rows_go(
    sqlite_database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """maintenance OP-30: its writer may have been killed before it had done so."""
    store = sqlite_database.open()
    store.workflows.runs.create("wf", trigger=Trigger("t"), phase="p", options=RunOptions(id="run"))
    (tmp_path / "archive").mkdir()
    archiver = Archiver("run", tmp_path / "archive", "0002_lastlight_state", store.settings)
    store._scope.view(lambda unit: archiver.archive(unit, ["run"]))
    [left] = (tmp_path / "archive").iterdir()
    calls = ToDisk(monkeypatch, tmp_path).calls
    store._scope.view(lambda unit: archiver.archive(unit, ["run"]))
    monkeypatch.undo()
    assert [call for call in calls if not call.endswith(".tmp")] == [f"sync archive/{left.name}", "sync archive"]
