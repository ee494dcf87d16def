"""``backup`` and ``restore`` from the command line."""

from __future__ import annotations

from pathlib import Path

from support.cli.calls import lastlight_state

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


def test_a_missing_database_is_no_backup(tmp_path: Path) -> None:
    """maintenance OP-74."""
    assert lastlight_state("backup", tmp_path / "backup", "--url", tmp_path / "none.db").code == 6
    assert list(tmp_path.iterdir()) == []
