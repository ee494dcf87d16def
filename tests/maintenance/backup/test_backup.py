"""Backups: one moment of everything in a folder, verified and restored."""

from __future__ import annotations

import errno
import json
import os
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.filled_store import TRIGGER, scene

from lastlight_state import StateStore
from lastlight_state.backends import connect
from lastlight_state.backends.sqlite import SqliteBackend
from lastlight_state.db.lists.pages import iterate
from lastlight_state.errors import (
    AlreadyExists,
    BackendUnavailable,
    Conflict,
    InvalidValue,
    NewerSchema,
    NotFound,
    NotMigrated,
    SchemaMismatch,
)
from lastlight_state.maintenance import CopiedTable
from lastlight_state.maintenance.backup import restoring
from lastlight_state.migrations import migrate
from lastlight_state.settings import Settings
from lastlight_state.testing import Database


@pytest.fixture
def store(fresh_database: Database) -> StateStore:
    """A store with rows of every kind, and a log of each kind of which the last line is torn."""
    store, _ = scene(fresh_database)
    for folder in store.settings.line_directories:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "one.jsonl").write_text('{"a": 1}\n{"b": 2}\n{"c":')
        (folder / "torn.jsonl").write_text('{"c":')
        (folder / "link.jsonl").symlink_to("/etc/passwd")
    return store


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "night" / "backup"


def contents(store: StateStore) -> dict[str, CopiedTable]:
    plan = store.maintenance.copy.plan(store.settings.state_dir / "unmade.db")
    return {table.name: table for table in plan.tables if table.name != "maintenance_receipts"}


def test_a_backup_holds_everything_and_is_restored(store: StateStore, folder: Path, tmp_path: Path) -> None:
    """maintenance OP-45, OP-46, OP-47: on Postgres, too, it is a file that every command reads."""
    made = store.maintenance.backup.create(folder)
    assert store.maintenance.backup.verify(folder) == made
    assert made.size_bytes > 0
    agents, runs = (root.name for root in store.settings.line_directories)
    logs = {file.path: (folder / file.path).read_text() for file in made.files if file.path != "lastlight.db"}
    whole = '{"a": 1}\n{"b": 2}\n'
    assert {path: text for path, text in logs.items() if "one" in path or "torn" in path} == {
        f"logs/{agents}/one.jsonl": whole,
        f"logs/{agents}/torn.jsonl": "",
        f"logs/{runs}/one.jsonl": whole,
        f"logs/{runs}/torn.jsonl": "",
    }
    assert {path.stat().st_mode & 0o077 for path in (folder, *folder.rglob("*"))} == {0}
    assert [path.name for path in folder.parent.iterdir()] == ["backup"]
    store.maintenance.backup.restore(folder, tmp_path / "restored.db")
    with StateStore.open(tmp_path / "restored.db") as restored:
        assert contents(restored) == contents(store)


def test_a_backup_is_restored_onto_an_empty_postgres(
    sqlite_database: Database, postgres_database: Database, folder: Path
) -> None:
    """maintenance OP-47: and nowhere else."""
    store, _ = scene(sqlite_database)
    backup = store.maintenance.backup
    backup.create(folder, with_logs=False)
    assert [path.name for path in sorted(folder.iterdir())] == ["lastlight.db", "manifest.json"]
    backup.restore(folder, postgres_database.url)
    assert contents(postgres_database.open()) == contents(store)
    with pytest.raises(Conflict, match="not empty"):
        backup.restore(folder, postgres_database.url)


def test_columns_of_other_programs_are_in_the_file_or_named(fresh_database: Database, folder: Path) -> None:
    """maintenance OP-45: a file is copied with everything in it, Postgres table by table."""
    store, raw = fresh_database.open(), fresh_database.raw()
    store.workflows.overrides.put("wf", enabled=True)
    raw.execute("ALTER TABLE workflow_overrides ADD COLUMN theirs text DEFAULT 'x'")
    manifest = store.maintenance.backup.create(folder)
    left = {"workflow_overrides.theirs": "a column that this library does not know"}
    assert manifest.left_out == (left if fresh_database.name == "postgresql" else {})
    assert store.maintenance.backup.verify(folder) == manifest


def test_a_place_that_cannot_be_written_is_named(sqlite_database: Database, folder: Path) -> None:
    """maintenance OP-45, OP-47."""
    backup = sqlite_database.open().maintenance.backup
    with pytest.raises(BackendUnavailable, match="nowhere"):
        backup.create("/proc/nowhere/backup")
    backup.create(folder)
    with pytest.raises(BackendUnavailable, match="nowhere"):
        backup.restore(folder, "/proc/nowhere/there.db")


def test_nothing_that_is_there_is_replaced(store: StateStore, folder: Path, tmp_path: Path) -> None:
    """maintenance OP-45, OP-47."""
    backup = store.maintenance.backup
    with pytest.raises(NotFound):
        backup.verify(folder)
    backup.create(folder)
    with pytest.raises(AlreadyExists):
        backup.create(folder)
    (tmp_path / "theirs.db").write_text("theirs")
    with pytest.raises(AlreadyExists):
        backup.restore(folder, tmp_path / "theirs.db")
    assert (tmp_path / "theirs.db").read_text() == "theirs"
    for nowhere in (" ", ":memory:"):
        with pytest.raises(InvalidValue):
            backup.restore(folder, nowhere)


@pytest.mark.parametrize("suffix", ["-wal", "-journal"])
def test_a_log_of_the_file_before_is_not_played_into_the_restored_one(
    sqlite_database: Database, folder: Path, tmp_path: Path, suffix: str
) -> None:
    """maintenance OP-47: SQLite would, and the restored database would hold what the removed one held."""
    backup = sqlite_database.open().maintenance.backup
    backup.create(folder)
    left = tmp_path / f"there.db{suffix}"
    left.write_bytes(b"left")
    with pytest.raises(AlreadyExists, match=suffix):
        backup.restore(folder, tmp_path / "there.db")
    assert (left.read_bytes(), (tmp_path / "there.db").exists()) == (b"left", False)


def test_a_folder_of_logs_that_cannot_be_read_is_no_silent_loss(
    store: StateStore, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """maintenance OP-46: a missing one is no failure."""
    agents, runs = store.settings.line_directories
    shutil.rmtree(agents)
    list_folder = os.scandir

    def refuse(path: Any) -> Any:
        if path == str(runs):
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return list_folder(path)

    with monkeypatch.context() as patched:
        patched.setattr(os, "scandir", refuse)
        with pytest.raises(BackendUnavailable, match="Permission denied"):
            store.maintenance.backup.create(folder)
    assert list(folder.parent.iterdir()) == []
    assert {file.path.split("/")[0] for file in store.maintenance.backup.create(folder).files} == {
        "lastlight.db",
        "logs",
    }


def test_a_backup_is_no_part_of_itself(store: StateStore) -> None:
    """maintenance OP-46: nor is it made where no folder can be."""
    agents, _ = store.settings.line_directories
    before = sorted(agents.iterdir())
    for folder in (agents, agents / "night" / "backup", "night\0"):
        with pytest.raises(InvalidValue, match="folder"):
            store.maintenance.backup.create(folder)
    assert sorted(agents.iterdir()) == before


DAMAGES: dict[str, Callable[[Path], object]] = {
    "lastlight.db": lambda file: file.write_bytes(b"\0" + file.read_bytes()[1:]),
    "logs/agent-sessions/one.jsonl": lambda file: file.unlink(),
    "manifest.json cannot be read": lambda file: file.write_text("{"),
    "manifest.json is too large": lambda file: os.truncate(file, 2**30),
    "names a file outside": lambda file: _tamper(file, "database", "../x"),
    "format 0": lambda file: _tamper(file, "format", 0),
    "does not list its database": lambda file: _tamper(file, "files", []),
}


def _tamper(manifest: Path, name: str, value: object) -> None:
    found = json.loads(manifest.read_text())
    manifest.write_text(json.dumps({**found, name: value}))


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_backup_that_was_changed_is_named_and_not_restored(
    sqlite_database: Database, folder: Path, tmp_path: Path, damage: str
) -> None:
    """maintenance OP-46, OP-47, case 44."""
    store = sqlite_database.open()
    logs = store.settings.agent_sessions
    logs.mkdir(parents=True, exist_ok=True)
    (logs / "one.jsonl").write_text('{"a": 1}\n')
    store.maintenance.backup.create(folder)
    DAMAGES[damage](folder / (damage if "/" in damage or damage.endswith(".db") else "manifest.json"))
    with pytest.raises(Conflict, match=damage) as refused:
        store.maintenance.backup.restore(folder, tmp_path / "restored.db")
    assert refused.value.code == "damaged_backup"
    assert not (tmp_path / "restored.db").exists()


def test_a_manifest_may_be_as_large_as_its_limit(
    sqlite_database: Database, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """maintenance OP-46, OP-47."""
    store = sqlite_database.open()
    store.maintenance.backup.create(folder)
    size = (folder / "manifest.json").stat().st_size
    monkeypatch.setattr(restoring, "_MOST_BYTES", size - 1)
    with pytest.raises(Conflict, match="is too large"):
        store.maintenance.backup.restore(folder, tmp_path / "restored.db")
    monkeypatch.setattr(restoring, "_MOST_BYTES", size)
    store.maintenance.backup.restore(folder, tmp_path / "restored.db")


def test_writers_go_on_and_the_backup_is_one_moment(sqlite_database: Database, folder: Path) -> None:
    """maintenance OP-45: two rows that are written together are together in it, or not."""
    store = sqlite_database.open()
    stop, wrote = threading.Event(), threading.Event()

    def write() -> None:
        while not stop.is_set():
            with store.transaction() as tx:
                for name in ("a", "b"):
                    tx.workflows.runs.create(name, trigger=TRIGGER, phase="p")
            wrote.set()

    writers = [threading.Thread(target=write) for _ in range(2)]
    for writer in writers:
        writer.start()
    assert wrote.wait(30)
    store.maintenance.backup.create(folder)
    stop.set()
    for writer in writers:
        writer.join(30)
    with StateStore.open(folder / "lastlight.db", read_only=True) as copied:
        together = [
            sum(1 for _ in iterate(copied.workflows.runs.list, workflow_names=[name], limit=500)) for name in "ab"
        ]
    assert together[0] == together[1] > 0


def test_a_backup_keeps_an_older_schema_and_a_newer_one_is_refused(
    sqlite_database: Database, folder: Path, tmp_path: Path
) -> None:
    """maintenance OP-47: a deploy takes it before it migrates."""
    settings = Settings(url=str(tmp_path / "old.db"), state_dir=tmp_path)
    backend = connect(settings)
    migrate(backend, "0001")
    with StateStore(backend, settings) as old:
        assert old.maintenance.backup.create(folder).revision == "0001"
    backup = sqlite_database.open().maintenance.backup
    backup.restore(folder, tmp_path / "restored.db")
    with StateStore.open(tmp_path / "restored.db") as restored:
        assert restored.workflows.runs.list().items == ()
    newer = sqlite_database.raw()
    newer.execute("UPDATE lastlight_state_version SET version_num = '9999'")
    newer.execute("INSERT INTO lastlight_meta VALUES ('min_reader', '9999')")
    backup.create(tmp_path / "newer")
    with pytest.raises(NewerSchema):
        backup.restore(tmp_path / "newer", tmp_path / "again.db")


def test_a_backup_of_a_newer_format_is_refused_as_newer(
    sqlite_database: Database, folder: Path, tmp_path: Path
) -> None:
    """maintenance OP-47: whatever else its manifest has."""
    backup = sqlite_database.open().maintenance.backup
    backup.create(folder)
    (folder / "manifest.json").write_text('{"format": 2, "parts": []}')
    with pytest.raises(NewerSchema, match="the backup has the schema version format 2"):
        backup.verify(folder)
    with pytest.raises(NewerSchema):
        backup.restore(folder, tmp_path / "again.db")
    assert not (tmp_path / "again.db").exists()


def test_a_damaged_database_makes_no_backup(sqlite_database: Database, folder: Path) -> None:
    """maintenance OP-45: and leaves nothing behind."""
    raw = sqlite_database.raw()
    raw.execute("PRAGMA foreign_keys = OFF")
    raw.execute("INSERT INTO run_sequences (run_id, stream, next_seq) VALUES ('nowhere', 'event', 1)")
    with pytest.raises(Conflict, match="damaged"):
        sqlite_database.open().maintenance.backup.create(folder)
    assert list(folder.parent.iterdir()) == []


def test_a_file_that_got_a_writer_while_it_was_read_as_unchanging_is_not_kept(
    sqlite_database: Database, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """maintenance OP-2, OP-45: neither by a backup nor by a copy."""
    store = sqlite_database.open()
    monkeypatch.setattr(SqliteBackend, "is_disturbed", True)
    with pytest.raises(Conflict) as backed_up:
        store.maintenance.backup.create(folder)
    with pytest.raises(Conflict) as copied:
        store.maintenance.copy.run(tmp_path / "there.db", migrate=True)
    assert [refused.value.code for refused in (backed_up, copied)] == ["source_changed"] * 2
    assert list(folder.parent.iterdir()) == []
    monkeypatch.undo()
    with pytest.raises(SchemaMismatch, match="unfinished copy"):
        StateStore.open(tmp_path / "there.db")


def test_a_postgres_that_is_behind_is_migrated_before_it_is_backed_up(postgres_url: str, folder: Path) -> None:
    """maintenance OP-45: an empty one, too; a copy is of the newest schema."""
    settings = Settings(url=postgres_url, state_dir=folder.parent)
    with StateStore(connect(settings), settings) as store:
        for revision in ("", "0001"):
            if revision:
                migrate(store.backend, revision)
            with pytest.raises(NotMigrated):
                store.maintenance.backup.create(folder)
            assert list(folder.parent.iterdir()) == []
