"""Commands that look, beside a SQLite file whose writer was killed."""

from __future__ import annotations

import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from support.cli.calls import call_on, lastlight_state
from support.each import with_each
from support.maintenance.left_behind import DEATHS, killed, looks_of

from lastlight_state.backends.sqlite import files
from lastlight_state.cli.opening import read_once
from lastlight_state.store import StateStore
from lastlight_state.testing.clock import FrozenClock
from lastlight_state.testing.databases import Database, SqliteTemplate

LOOKING = [
    "ls runs",
    "ls sessions",
    "ls questions",
    "ls mailboxes",
    "current",
    "check",
    "history",
    "stats",
    "doctor --deep",
    "query SELECT+1",
    "prune --dry-run --kind runs",
    "reap --dry-run",
    "repair --counters --dry-run",
]


@pytest.fixture
def database(sqlite_template: SqliteTemplate, tmp_path: Path, frozen_clock: FrozenClock) -> Iterator[Database]:
    folder = tmp_path / "service"
    folder.mkdir(mode=0o700)
    with sqlite_template.fresh(folder, frozen_clock) as made:
        yield made


@pytest.fixture(params=DEATHS)
def left(request: pytest.FixtureRequest, database: Database) -> Path:
    """What a writer that was killed left beside the file: its log, or its journal."""
    return killed(Path(database.url), request.param)


def said_of(store: StateStore) -> list[str]:
    return [str(name) for (name,) in store.backend.peek("SELECT name FROM workflow_overrides") or []]


@with_each("command", LOOKING)
def test_a_command_that_looks_beside_what_a_killed_writer_left_changes_no_byte(
    database: Database, left: Path, command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """maintenance OP-2, OP-16: nor a time of change, and its private copy is gone when it ends."""
    copies = tmp_path / "copies"
    copies.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(copies))
    before = looks_of(left.parent)
    words = [word.replace("+", " ") for word in command.split()]
    answer = lastlight_state(*words, "--url", database.url, "--state-dir", database.state_dir, "--json")
    assert answer.code == 0, answer
    assert looks_of(left.parent) == before
    assert list(copies.iterdir()) == []


def test_what_a_killed_writer_had_committed_is_seen_and_the_rest_is_not(database: Database, left: Path) -> None:
    """maintenance OP-2, OP-16."""
    assert read_once(call_on(database.url), said_of) == ["left"]
    asked = lastlight_state("query", "SELECT name FROM workflow_overrides", "--url", database.url, "--json")
    assert asked.data["rows"] == [["left"]]


@pytest.mark.slow
def test_doctor_names_what_a_killed_writer_left_and_makes_all_its_checks(database: Database, left: Path) -> None:
    """maintenance OP-15, OP-16: the command that it names mends it."""
    place = ("--url", database.url, "--state-dir", database.state_dir, "--json")
    said = lastlight_state("doctor", "--deep", *place)
    [finding] = said.data["findings"]
    assert (finding["check"], finding["severity"], finding["samples"]) == ("DOC-04", "warning", [str(left)])
    assert (len(said.data["checks_run"]), said.data["checks_skipped"]) == (20, [])
    assert finding["remedy"].startswith("lastlight-state checkpoint --url ")
    assert lastlight_state("checkpoint", *place).code == 0
    assert lastlight_state("doctor", *place).data["findings"] == []
    assert read_once(call_on(database.url), said_of) == ["left"]


def test_a_log_that_a_process_uses_is_no_finding(database: Database) -> None:
    """maintenance OP-16, OP-17: whoever uses it, a reader that has the file open for long included."""
    database.open(migrate=False).workflows.overrides.put("used", enabled=False, by="ana")
    assert Path(f"{database.url}-wal").stat().st_size > 0
    said = lastlight_state("doctor", "--url", database.url, "--json")
    assert said.data["findings"] == []
    assert read_once(call_on(database.url), said_of) == ["used"]


def test_a_journal_that_a_writer_is_at_is_no_finding(database: Database) -> None:
    """maintenance OP-16, OP-17."""
    writer = database.raw()
    for statement in ("PRAGMA journal_mode = DELETE", "BEGIN IMMEDIATE", "CREATE TABLE another (x)"):
        writer.execute(statement)
    assert Path(f"{database.url}-journal").stat().st_size > 0
    found = lastlight_state("doctor", "--only", "DOC-04", "--url", database.url, "--json").data["findings"]
    writer.execute("ROLLBACK")
    assert found == []


def test_without_room_for_a_copy_that_is_told_and_nothing_is_changed(
    database: Database, left: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """maintenance OP-16: the checks that need none are made, the others are skipped with the reason."""
    before = looks_of(left.parent)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(1, 1, 0))
    said = lastlight_state("doctor", "--url", database.url, "--json")
    assert said.code == 1
    assert {"DOC-01", "DOC-04"} <= {finding["check"] for finding in said.data["findings"]}
    skipped = {one["check"]: one["reason"] for one in said.data["checks_skipped"]}
    assert skipped["DOC-07"] == "the database cannot be read: see DOC-01"
    assert "TMPDIR" in said.data["findings"][0]["message"]
    assert looks_of(left.parent) == before


def test_the_log_of_another_file_is_an_error(database: Database, tmp_path: Path) -> None:
    """maintenance OP-15, OP-17: SQLite would read it instead of the file's own pages."""
    other = tmp_path / "other.db"
    shutil.copyfile(database.url, other)
    killed(other, "-wal")
    with closing(sqlite3.connect(database.url)) as own:
        own.execute("PRAGMA journal_mode = DELETE")
    log, index = (Path(f"{database.url}{ending}") for ending in ("-wal", "-shm"))
    severities = []
    for path in (index, log):
        shutil.copyfile(f"{other}{path.name.removeprefix(Path(database.url).name)}", path)
        said = lastlight_state("doctor", "--only", "DOC-04", "--url", database.url, "--json")
        severities += [(found["severity"], found["samples"]) for found in said.data["findings"]]
    assert severities == [("info", [str(index)]), ("error", [str(log)])]


def test_a_write_ahead_log_on_a_network_is_a_warning(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """maintenance OP-15, OP-17: and a rollback journal there is none."""
    monkeypatch.setattr(files, "file_system", lambda _: "nfs4")
    severities = []
    for mode in ("WAL", "DELETE"):
        with closing(sqlite3.connect(database.url)) as own:
            own.execute(f"PRAGMA journal_mode = {mode}")
        said = lastlight_state("doctor", "--only", "DOC-04", "--url", database.url, "--json")
        severities += [(found["severity"], "nfs4" in found["message"]) for found in said.data["findings"]]
    assert severities == [("warning", True)]
