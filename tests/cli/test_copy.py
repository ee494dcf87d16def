"""``copy`` from the command line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.cli.calls import lastlight_state

from lastlight_state import StateStore
from lastlight_state.cli import progress
from lastlight_state.maintenance.copy import transfer
from lastlight_state.testing import Database


@pytest.fixture
def source(database: Database) -> Database:
    """A database with two overrides."""
    store = database.open()
    for name in ("a", "b"):
        store.workflows.overrides.put(name, enabled=False, by="ana")
    store.close()
    return database


def copy(source: Database, *words: object) -> Any:
    return lastlight_state("copy", *words, "--url", source.url)


def test_a_dry_run_says_what_the_copy_then_does(source: Database, tmp_path: Path) -> None:
    """maintenance OP-50, OP-71, OP-73."""
    there = tmp_path / "there.db"
    planned = copy(source, "--to", there, "--dry-run", "--json")
    assert (planned.code, there.exists()) == (0, False)
    assert "would copy" in copy(source, "--to", there, "--dry-run").out
    done = copy(source, "--to", there, "--migrate-target", "--json")
    assert (done.code, done.data["tables"]) == (0, planned.data["tables"])
    assert {*planned.data, *done.data} == {
        "dry_run", "source", "target", "tables", "left_columns", "left_indexes", "revision", "problems", "receipt_id"
    }  # fmt: skip
    refused = copy(source, "--to", there, "--json")
    assert (refused.code, refused.error) == (1, "target_not_empty")


def test_a_column_of_another_program_stays_behind_where_it_is_named(fresh_database: Database, tmp_path: Path) -> None:
    """maintenance OP-57, OP-71."""
    fresh_database.open().workflows.overrides.put("wf", enabled=True)
    fresh_database.raw().execute("ALTER TABLE workflow_overrides ADD COLUMN theirs text DEFAULT 'x'")
    there, named = tmp_path / "there.db", ("--leave-column", "workflow_overrides.theirs")
    refused = copy(fresh_database, "--to", there, "--migrate-target", "--json")
    assert (refused.code, refused.error) == (1, "cannot_be_copied")
    assert "cannot be copied: " in copy(fresh_database, "--to", there, "--dry-run").out
    assert copy(fresh_database, "--to", there, "--dry-run", *named, "--json").data["problems"] == []
    done = copy(fresh_database, "--to", there, "--migrate-target", *named)
    assert "left behind: workflow_overrides.theirs" in done.out
    assert copy(fresh_database, "--to", there, "--resume", *named).code == 2


def test_people_see_the_progress_and_the_tables(
    source: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """maintenance OP-58, OP-111: the URL of the target can stand in a file."""
    monkeypatch.setattr(progress, "LINE_EVERY", 0)
    (tmp_path / "url").write_text(str(tmp_path / "there.db"))
    said = copy(source, "--to-file", tmp_path / "url", "--migrate-target", "--batch-rows", 1)
    assert said.code == 0
    assert "copied workflow_overrides: 1 of 2 rows" in said.err
    assert "copied workflow_overrides: 2 of 2 rows" in said.err
    assert said.err.count("verified workflow_overrides: 2 of 2 rows") == 1
    assert "and compared every table" in said.out


def test_a_copy_that_was_interrupted_goes_on(source: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """maintenance OP-55, OP-72, case 50."""
    there = tmp_path / "there.db"
    with monkeypatch.context() as patched:
        patched.setattr(transfer, "conversion", _interrupted)
        stopped = copy(source, "--to", there, "--migrate-target")
    assert stopped.code == 130
    assert "--resume" in stopped.err
    assert lastlight_state("ls", "runs", "--url", there).code == 5
    assert copy(source, "--to", there, "--resume").code == 0
    with StateStore.open(there) as store:
        assert [override.name for override in store.workflows.overrides.list()] == ["a", "b"]


def test_wrong_usage_does_nothing(source: Database, tmp_path: Path) -> None:
    """maintenance OP-70, OP-74."""
    there = tmp_path / "there.db"
    for words in (
        (),
        ("--to", " "),
        ("--to", there, "--to-file", there),
        ("--to", there, "--resume", "--dry-run"),
        ("--to", there, "--batch-rows", 0),
        ("--to", "what://there"),
    ):
        assert copy(source, *words).code == 2
    assert copy(source, "--to", there).code == 3
    assert not there.exists()


def _interrupted(*_: object) -> Any:
    raise KeyboardInterrupt
