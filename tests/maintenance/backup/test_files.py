"""Line files and mailboxes in backups: copied while others write, and put back where a store looks for them."""

from __future__ import annotations

import errno
import json
import os
import shutil
import sqlite3
import threading
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from support.between import before
from support.cli.calls import lastlight_state
from support.deadlines import held_file
from support.each import with_each

from lastlight_state import StateStore
from lastlight_state.backends.sqlite import SqliteBackend
from lastlight_state.errors import AlreadyExists, BackendBusy, BackendUnavailable, InvalidValue
from lastlight_state.files.jsonl import files
from lastlight_state.files.mailbox import AgentMailbox, Attachment, HostMailbox
from lastlight_state.maintenance.backup import copies, restoring
from lastlight_state.settings import Settings
from lastlight_state.testing import Database


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "night" / "backup"


@pytest.fixture
def store(sqlite_database: Database) -> StateStore:
    """A store with a log of an agent, and a mailbox with messages and files of both sides."""
    store = sqlite_database.open()
    logs = store.settings.agent_sessions / "projects"
    logs.mkdir(parents=True)
    (logs / "one.jsonl").write_text('{"a": 1}\n')
    _fill(store.mailbox.create("group", "session"))
    store.mailbox.create("group", "quiet")
    return store


def _fill(host: HostMailbox) -> None:
    host.inbox.send(kind="chat", content={"text": "in"}, attachments=[Attachment("notes.txt", b"Buy milk.")])
    agent = AgentMailbox.open(host.folder)
    agent.start()
    agent.beat()
    agent.outbox.send(kind="chat", content={"text": "out"}, files=[Attachment("reply.txt", b"Milk.")])
    (host.folder / "outbox" / "link.txt").symlink_to("/etc/passwd")
    os.mkfifo(host.folder / "outbox" / "pipe.txt")


def attached(folder: Path) -> set[bytes]:
    return {path.read_bytes() for path in folder.rglob("*.txt")}


def test_mailboxes_and_logs_are_put_back_beside_the_database(store: StateStore, folder: Path, tmp_path: Path) -> None:
    """maintenance OP-46, OP-47: a store with that directory goes on with them; nothing that is a link is in them."""
    backup = store.maintenance.backup
    manifest = backup.create(folder)
    logs = {file.path for file in manifest.files if file.path.startswith("logs/")}
    assert (logs, manifest.left_out) == ({"logs/agent-sessions/projects/one.jsonl"}, {})
    assert attached(folder) == {b"Buy milk.", b"Milk."}
    assert {path.stat().st_mode & 0o077 for path in (folder, *folder.rglob("*"))} == {0}
    there = tmp_path / "there"
    (there / "v2-sessions").mkdir(parents=True)
    backup.restore(folder, there / "lastlight.db")
    with StateStore.open(state_dir=there) as restored:
        assert (restored.settings.agent_sessions / "projects" / "one.jsonl").read_text() == '{"a": 1}\n'
        assert [one.session for one in restored.mailbox.list()] == ["quiet", "session"]
        host = restored.mailbox.host("group", "session")
        assert [due.message.content for due in host.outbox.take_due()] == [{"text": "out", "files": ["reply.txt"]}]
        sent = host.inbox.send(kind="chat", content={"text": "next"}, attachments=[Attachment("b.txt", b"b")])
        agent = AgentMailbox.open(host.folder)
        agent.start()
        assert [one.seq for one in agent.inbox.take(limit=5)] == [2, sent.seq]
    assert attached(there / "v2-sessions") == {b"Buy milk.", b"Milk.", b"b"}
    assert [path.name for path in there.iterdir() if path.name.startswith(".")] == []


@pytest.mark.parametrize("stands", ["agent-sessions", "v2-sessions"])
def test_nothing_is_restored_where_a_folder_stands(
    store: StateStore, folder: Path, tmp_path: Path, stands: str
) -> None:
    """maintenance OP-47: and with another directory, or without the files, it is."""
    backup = store.maintenance.backup
    backup.create(folder)
    there = tmp_path / "there"
    (there / stands).mkdir(parents=True)
    (there / stands / "theirs").write_text("theirs")
    with pytest.raises(AlreadyExists, match=stands):
        backup.restore(folder, there / "restored.db")
    assert [str(path.relative_to(there)) for path in there.rglob("*")] == [stands, f"{stands}/theirs"]
    backup.restore(folder, there / "restored.db", state_dir=tmp_path / "elsewhere")
    assert sorted(path.name for path in (tmp_path / "elsewhere").iterdir()) == ["agent-sessions", "v2-sessions"]
    backup.restore(folder, there / "bare.db", with_logs=False)
    assert sorted(path.name for path in there.iterdir()) == sorted([stands, "restored.db", "bare.db"])


def test_folders_are_taken_away_again_when_the_database_cannot_be_restored(
    store: StateStore, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """maintenance OP-47: a file that appeared meanwhile is not replaced."""
    there, place = tmp_path / "there", restoring.place_file

    def place_late(file: Path, target: Path) -> None:
        target.write_text("theirs")
        place(file, target)

    store.maintenance.backup.create(folder)
    monkeypatch.setattr(restoring, "place_file", place_late)
    with pytest.raises(AlreadyExists):
        store.maintenance.backup.restore(folder, there / "restored.db")
    assert [path.name for path in there.iterdir()] == ["restored.db"]


def test_a_file_that_appears_while_the_database_is_copied_is_not_replaced(
    store: StateStore, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """maintenance OP-47: and nothing of the restored one is left beside it."""
    target = tmp_path / "there" / "restored.db"
    store.maintenance.backup.create(folder)
    happened = before(monkeypatch, os, "link", lambda: target.write_text("theirs"))
    with pytest.raises(AlreadyExists) as caught:
        store.maintenance.backup.restore(folder, target)
    assert (happened, caught.value.key, list(target.parent.iterdir())) == (["link"], str(target), [target])
    assert target.read_text() == "theirs"


def test_files_of_a_backup_of_postgres_stay_in_it_unless_a_place_is_given(
    sqlite_database: Database, postgres_database: Database, folder: Path, tmp_path: Path
) -> None:
    """maintenance OP-47: mailboxes get the modes that agents of another user need, where these are asked for."""
    store = sqlite_database.open(settings=Settings(state_dir=sqlite_database.state_dir, mailbox_mode="group"))
    _fill(store.mailbox.create("group", "session"))
    store.maintenance.backup.create(folder)
    there = tmp_path / "there"
    store.maintenance.backup.restore(folder, postgres_database.url, state_dir=there)
    assert [path.name for path in there.iterdir()] == ["v2-sessions"]
    session = there / "v2-sessions" / "group" / "session"
    assert [path.stat().st_mode & 0o777 for path in (session, session / "inbound.db")] == [0o770, 0o660]


def test_a_damaged_mailbox_is_left_out_and_named(sqlite_database: Database, folder: Path, tmp_path: Path) -> None:
    """maintenance OP-46, OP-72: it holds up no backup, and is exit code 1."""
    store = sqlite_database.open()
    host = store.mailbox.create("group", "bad")
    store.mailbox.create("group", "good")
    store.mailbox.create("group", "half").folder.joinpath("outbound.db").unlink()
    (host.folder / "outbound.db").write_text("no database")
    torn = store.mailbox.create("group", "torn").folder / "outbound.db"
    torn.write_bytes(torn.read_bytes()[: torn.stat().st_size // 2])
    with closing(sqlite3.connect(host.folder / "inbound.db")) as raw, raw:
        raw.execute("PRAGMA writable_schema = ON")
        raw.execute("UPDATE sqlite_master SET rootpage = 3 WHERE type = 'index' AND name = 'idx_messages_in_ready'")
    manifest = store.maintenance.backup.create(folder)
    assert list(manifest.left_out) == ["group/bad/outbound.db", "group/bad/inbound.db", "group/torn/outbound.db"]
    copied = {file.path for file in manifest.files if file.path.startswith("mailboxes")}
    kept = ("good/inbound.db", "good/outbound.db", "half/inbound.db", "torn/inbound.db")
    assert copied == {f"mailboxes/group/{name}" for name in kept}
    state = ("--url", sqlite_database.url, "--state-dir", store.settings.state_dir)
    said = lastlight_state("backup", tmp_path / "other", *state, "--json")
    assert (said.code, said.error, len(said.data["manifest"]["left_out"])) == (1, "incomplete", 3)
    assert "left out: mailbox group/bad/outbound.db" in lastlight_state("backup", tmp_path / "other", "--verify").out
    there = ("--to", tmp_path / "there" / "a.db", "-y")
    assert lastlight_state("restore", tmp_path / "other", *there, "--no-logs", "--to-state-dir", "x").code == 2
    assert lastlight_state("restore", tmp_path / "other", *there).code == 0
    assert (tmp_path / "there" / "v2-sessions" / "group" / "good" / "inbox").is_dir()
    alone = ("--to", tmp_path / "alone" / "a.db", "-y", "--no-logs")
    assert lastlight_state("restore", tmp_path / "other", *alone).code == 0
    assert [path.name for path in (tmp_path / "alone").iterdir()] == ["a.db"]


def test_names_that_are_not_utf_8_are_left_out_and_named(store: StateStore, folder: Path) -> None:
    """maintenance OP-46, OP-72: they hold up no backup."""
    outbox, logs = store.mailbox.root / "group" / "session" / "outbox", store.settings.agent_sessions
    odd = os.fsdecode(b"r\xe9sum\xe9")
    for place in (outbox / "m1", outbox / odd, logs):
        place.mkdir(exist_ok=True)
        (place / f"{odd}.txt").write_text("x")
    manifest = store.maintenance.backup.create(folder)
    inside, name = "group/session/outbox", "r\\xe9sum\\xe9"
    assert set(manifest.left_out) == {f"logs/agent-sessions/{name}.txt", f"{inside}/m1/{name}.txt", f"{inside}/{name}"}
    assert set(manifest.left_out.values()) == {"the name is not UTF-8"}
    assert attached(folder) == {b"Buy milk.", b"Milk."}
    assert store.maintenance.backup.verify(folder) == manifest
    assert f"left out: logs/agent-sessions/{name}.txt" in lastlight_state("backup", folder, "--verify").out


def test_attachments_that_cannot_be_opened_are_left_out_and_named(
    store: StateStore, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """maintenance OP-46: nothing is missing in silence; links still are no part of it, nor what vanishes."""
    outbox, opens = store.mailbox.root / "group" / "session" / "outbox", os.open
    for name in ("shut", "gone"):
        (outbox / name).mkdir()
    (outbox / "link").symlink_to(outbox / "shut")
    (outbox / "shut.txt").write_text("x")

    def refused(path: Any, *given: Any, **more: Any) -> int:
        if path == "gone":
            (outbox / path).rmdir()
        if path in ("shut", "shut.txt"):
            raise PermissionError(13, "Permission denied", path)
        return opens(path, *given, **more)

    monkeypatch.setattr(os, "open", refused)
    assert store.maintenance.backup.create(folder).left_out == {
        "group/session/outbox/shut.txt": "cannot be opened: Permission denied",
        "group/session/outbox/shut": "cannot be opened",
    }
    assert attached(folder) == {b"Buy milk.", b"Milk."}


def test_a_mailbox_that_its_host_keeps_locked_is_left_out_and_named(sqlite_database: Database, folder: Path) -> None:
    """maintenance OP-46: nothing is missing in silence."""
    settings = Settings(state_dir=sqlite_database.state_dir, busy_timeout=0, retry_seconds=0)
    store = sqlite_database.open(settings=settings)
    host = store.mailbox.create("group", "session")
    with closing(sqlite3.connect(host.folder / "inbound.db", isolation_level=None)) as raw:
        raw.execute("BEGIN EXCLUSIVE")
        assert store.maintenance.backup.create(folder).left_out == {"group/session/inbound.db": "stays locked"}


@pytest.mark.parametrize(
    ("owner", "name", "error"),
    [
        (copies, "snapshot", BackendUnavailable("disk I/O error", reason="io")),
        (files, "opened_file", OSError(errno.EIO, os.strerror(errno.EIO))),
    ],
    ids=["a mailbox", "a log"],
)
def test_a_file_that_cannot_be_read_for_another_reason_ends_the_backup(
    store: StateStore, folder: Path, monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, error: Exception
) -> None:
    """maintenance OP-46: it is not left out as what is damaged or no file."""

    real = getattr(owner, name)

    def fail(*given: Any, **named: Any) -> Any:
        if "lastlight.db" in [one.name for one in given if isinstance(one, Path)]:
            return real(*given, **named)
        raise error

    monkeypatch.setattr(owner, name, fail)
    with pytest.raises(BackendUnavailable):
        store.maintenance.backup.create(folder)
    assert list(folder.parent.iterdir()) == []


def test_a_copy_that_was_busy_is_made_anew(
    sqlite_database: Database, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """maintenance OP-45, OP-46: what the first attempt left is no part of it."""
    store, copy = sqlite_database.open(), SqliteBackend.snapshot
    store.mailbox.create("group", "session")
    tried: list[str] = []

    def once_busy(backend: Any, checkout: Any, path: Path) -> bool:
        tried.append(path.name)
        if tried.count(path.name) == 1:
            path.write_text("half")
            raise BackendBusy("locked")
        return copy(backend, checkout, path)

    monkeypatch.setattr(SqliteBackend, "snapshot", once_busy)
    manifest = store.maintenance.backup.create(folder)
    assert (tried, manifest.left_out) == (
        ["lastlight.db"] * 2 + ["outbound.db"] * 2 + ["inbound.db"] * 2,
        {},
    )


def test_what_vanishes_while_mailboxes_are_copied_is_left_out(
    sqlite_database: Database, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """maintenance OP-46: somebody prunes it."""
    store, copy = sqlite_database.open(), copies.snapshot
    for name in ("a", "b"):
        _fill(store.mailbox.create("group", name))

    def pruned(unit: Any, path: Path) -> bool:
        if path.name == "outbound.db" and path.parent.name == "a":
            for name in ("a", "b"):
                shutil.rmtree(store.mailbox.root / "group" / name)
        return copy(unit, path)

    monkeypatch.setattr(copies, "snapshot", pruned)
    manifest = store.maintenance.backup.create(folder)
    assert manifest.left_out == {}
    assert [path for path in (file.path for file in manifest.files) if "/b/" in path or ".txt" in path] == []


def test_a_mailbox_that_vanishes_while_its_file_is_opened_is_left_out(
    store: StateStore, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """maintenance OP-46: without a word, whatever SQLite says of it."""
    real = copies.snapshot

    def pruned(unit: Any, path: Path) -> bool:
        if path.parent.name != "quiet":
            return real(unit, path)
        (store.mailbox.root / "group" / "quiet" / path.name).unlink()
        raise BackendUnavailable("disk I/O error", reason="io")

    monkeypatch.setattr(copies, "snapshot", pruned)
    manifest = store.maintenance.backup.create(folder)
    assert (manifest.left_out, [file.path for file in manifest.files if "quiet" in file.path]) == ({}, [])


def test_a_file_that_vanishes_before_it_is_opened_is_left_out_without_a_word(
    store: StateStore, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """maintenance OP-46."""
    copy = copies._copy_file

    def pruned(held: int, name: str, target: Path) -> str | None:
        if name == "notes.txt":
            os.unlink(name, dir_fd=held)
        return copy(held, name, target)

    monkeypatch.setattr(copies, "_copy_file", pruned)
    assert store.maintenance.backup.create(folder).left_out == {}
    assert attached(folder) == {b"Milk."}


@with_each(
    ("text", "whole"),
    [
        ("", 0),
        ("half", 0),
        ("\n", 1),
        ("\nhalf", 1),
        ("one\n", 4),
        ("one\nha", 4),
        ("one\nfour\n", 9),
        ("1234\nhal", 5),
    ],
)
def test_a_log_is_copied_up_to_its_last_newline_wherever_that_stands(tmp_path: Path, text: str, whole: int) -> None:
    """maintenance OP-46."""
    path = tmp_path / "one.jsonl"
    path.write_text(text)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(copies, "_CHUNK", 4)
        assert copies.whole(path, len(text)) == whole


def test_a_backup_is_no_mailbox(store: StateStore) -> None:
    """maintenance OP-46."""
    with pytest.raises(InvalidValue, match="mailboxes"):
        store.maintenance.backup.create(store.mailbox.root / "group" / "backup")


def test_logs_are_complete_for_every_row_while_four_write(
    sqlite_database: Database, folder: Path, tmp_path: Path
) -> None:
    """maintenance OP-45, OP-46: whatever a row says was logged stands in the copied log, in whole lines."""
    store = sqlite_database.open()
    logs = store.settings.agent_sessions
    logs.mkdir(parents=True)
    stop, begun = threading.Event(), threading.Barrier(5)

    def write(name: str) -> None:
        with (logs / f"{name}.jsonl").open("ab", buffering=0) as log:
            for n in range(100_000):
                log.write(json.dumps({"n": n, "text": "x" * 200}).encode()[:-1])
                log.write(b"}\n")
                store.workflows.overrides.put(name, enabled=False, by="ana", reason=str(n))
                if n == 2:
                    begun.wait(30)
                if stop.is_set():
                    return

    writers = [threading.Thread(target=write, args=(f"w{n}",)) for n in range(4)]
    for writer in writers:
        writer.start()
    begun.wait(30)
    store.maintenance.backup.create(folder)
    stop.set()
    for writer in writers:
        writer.join(30)
    with StateStore.open(folder / "lastlight.db", read_only=True) as copied:
        said = {row.name: int(row.reason or 0) for row in copied.workflows.overrides.list()}
    assert len(said) == 4
    for name, last in said.items():
        lines = (folder / "logs" / "agent-sessions" / f"{name}.jsonl").read_text().splitlines()
        assert [json.loads(line)["n"] for line in lines][: last + 1] == list(range(last + 1))


def test_a_mailbox_that_its_agent_keeps_locked_is_left_out_and_named(sqlite_database: Database, folder: Path) -> None:
    """maintenance OP-46: so are those that another lie makes unreadable, and the others are copied."""
    store = sqlite_database.open(settings=Settings(busy_timeout=0.1, retry_seconds=0.1))
    for name in ("fifo", "good", "held", "view"):
        store.mailbox.create("group", name)
    root = store.mailbox.root / "group"
    os.mkfifo(root / "fifo" / "outbound.db-journal")
    with closing(sqlite3.connect(root / "view" / "outbound.db")) as raw, raw:
        raw.execute("CREATE VIEW more AS SELECT 1")
    with held_file(root / "held" / "outbound.db"):
        manifest = store.maintenance.backup.create(folder)
    assert {name: manifest.left_out[f"group/{name}/outbound.db"] for name in ("fifo", "held", "view")} == {
        "fifo": "expected regular files here and beside it, found something else",
        "held": "stays locked",
        "view": "holds more than tables",
    }
    copied = {file.path for file in manifest.files if file.path.startswith("mailboxes")}
    inbound = {f"mailboxes/group/{name}/inbound.db" for name in ("fifo", "good", "held", "view")}
    assert copied == {*inbound, "mailboxes/group/good/outbound.db"}
