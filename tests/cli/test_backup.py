"""``backup`` and ``restore`` from the command line."""

from __future__ import annotations

from pathlib import Path

from support.cli.calls import lastlight_state
from support.maintenance.old_logs import old_log

from lastlight_state import StateStore
from lastlight_state.testing import Database


def test_a_backup_is_written_verified_and_restored(database: Database, tmp_path: Path) -> None:
    """maintenance OP-45, OP-46, OP-47, OP-70, OP-71."""
    with database.open() as store:
        store.workflows.overrides.put("a", enabled=False, by="ana")
    folder, there = tmp_path / "backup", tmp_path / "there.db"
    made = lastlight_state("backup", folder, "--url", database.url, "--json")
    verified = lastlight_state("backup", folder, "--verify", "--json")
    assert (made.code, verified.code, made.data) == (0, 0, verified.data)
    assert "lastlight.db" in lastlight_state("backup", folder, "--verify").out
    assert lastlight_state("backup", folder, "--verify", "--no-logs").code == 2
    assert lastlight_state("backup", folder, "--url", database.url, "--json").error == "already_exists"
    assert lastlight_state("restore", folder, "--to", there, "--json").error == "not_confirmed"
    restored = lastlight_state("restore", folder, "--to", there, "-y", "--json")
    assert (restored.code, restored.data) == (0, made.data)
    with StateStore.open(there) as store:
        assert [override.name for override in store.workflows.overrides.list()] == ["a"]
    (folder / "lastlight.db").write_bytes(b"x")
    assert lastlight_state("backup", folder, "--verify", "--json").error == "damaged_backup"


def test_logs_are_left_out_of_a_backup_or_restored_elsewhere(database: Database, tmp_path: Path) -> None:
    """maintenance OP-45, OP-46, OP-70."""
    with database.open() as store:
        old_log(store, "s-1", folder=False)
    place = ("--url", database.url, "--state-dir", database.state_dir)
    whole, alone = tmp_path / "whole", tmp_path / "alone"
    files = [
        {
            file["path"].rpartition("/")[2]
            for file in lastlight_state("backup", *words, *place, "--json").data["manifest"]["files"]
        }
        for words in ((whole,), (alone, "--no-logs"))
    ]
    assert ["s-1.jsonl" in found for found in files] == [True, False]
    elsewhere = tmp_path / "elsewhere"
    to = ("--to-state-dir", elsewhere, "-y")
    assert lastlight_state("restore", whole, "--to", tmp_path / "a.db", *to, "--no-logs").code == 2
    assert lastlight_state("restore", whole, "--to", tmp_path / "a.db", *to).code == 0
    assert [path.name for path in elsewhere.rglob("*.jsonl")] == ["s-1.jsonl"]
    (tmp_path / "b").mkdir()
    assert lastlight_state("restore", whole, "--to", tmp_path / "b/b.db", "--no-logs", "-y").code == 0
    assert [path.name for path in (tmp_path / "b").iterdir()] == ["b.db"]


def test_a_missing_database_is_no_backup(tmp_path: Path) -> None:
    """maintenance OP-74."""
    assert lastlight_state("backup", tmp_path / "backup", "--url", tmp_path / "none.db").code == 6
    assert list(tmp_path.iterdir()) == []
