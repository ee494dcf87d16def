"""Checkpoints and vacuums."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from support.cli.calls import lastlight_state

from lastlight_state import Conflict, InvalidValue, StateStore
from lastlight_state.backends import connect
from lastlight_state.backends.sqlite import checkpoints
from lastlight_state.settings import Settings
from lastlight_state.testing import Database
from lastlight_state.workflows import Trigger


def test_a_checkpoint_brings_the_log_into_the_file_and_a_reader_in_the_way_is_told(
    sqlite_database: Database,
) -> None:
    """maintenance OP-20, case 19."""
    store = sqlite_database.open()
    store.workflows.runs.create("wf", trigger=Trigger("t"), phase="p")
    done = store.maintenance.checkpoint.run()
    kept = 4_152 if checkpoints.NEEDED else 0  # a page and what precedes it
    assert (done.applicable, done.busy, done.wal_bytes_after) == (True, False, kept)
    assert done.wal_bytes_before > 0
    reader = sqlite_database.raw()
    reader.execute("BEGIN")
    reader.execute("SELECT count(*) FROM workflow_runs").fetchone()
    store.workflows.runs.create("wf", trigger=Trigger("t"), phase="p")
    assert store.maintenance.checkpoint.run("RESTART").busy
    assert lastlight_state("checkpoint", "--url", sqlite_database.url).code == 1
    assert lastlight_state("checkpoint", "--mode", "PASSIVE", "--url", sqlite_database.url).code == 0
    reader.execute("ROLLBACK")
    assert "busy=0" in lastlight_state("checkpoint", "--url", sqlite_database.url).out
    assert len(store.workflows.runs.list()) == 2


def test_where_there_is_no_such_log_a_checkpoint_does_nothing(store: Any, database: Database) -> None:
    """maintenance OP-20, case 19."""
    assert store.maintenance.checkpoint.run().applicable is (database.name == "sqlite")
    said = lastlight_state("checkpoint", "--url", database.url)
    assert said.code == 0
    assert said.out
    with pytest.raises(InvalidValue):
        store.maintenance.checkpoint.run("HARD")


def test_a_checkpoint_of_a_file_that_nobody_has_open_finds_no_log(tmp_path: Path) -> None:
    """maintenance OP-20: it is there only while somebody uses the file."""
    settings = Settings(url=str(tmp_path / "a.db"), state_dir=tmp_path)
    StateStore.open(settings=settings).close()
    with StateStore(connect(settings), settings) as store:
        done = store.maintenance.checkpoint.run()
    assert (done.applicable, done.wal_bytes_before) == (True, 0)


def test_a_vacuum_gives_space_back_and_keeps_every_row(fresh_database: Database) -> None:
    """maintenance OP-21."""
    store, raw = fresh_database.open(), fresh_database.raw()
    run = store.workflows.runs.create("wf", trigger=Trigger("t"), phase="p").id
    raw.execute("CREATE TABLE filler (x TEXT)")
    raw.execute(f"INSERT INTO filler VALUES ('{'x' * 300_000}')")
    raw.execute("DROP TABLE filler")
    done = store.maintenance.vacuum.run(full=True)
    assert done.bytes_after < done.bytes_before or fresh_database.name == "postgresql"
    assert store.workflows.runs.get(run).id == run
    said = lastlight_state("vacuum", "--no-analyze", "--url", fresh_database.url, "--json")
    assert (said.code, set(said.data)) == (0, {"bytes_before", "bytes_after"})
    assert lastlight_state("vacuum", "--full", "--url", fresh_database.url, "--json").error == "not_confirmed"
    assert "after" in lastlight_state("vacuum", "--full", "-y", "--url", fresh_database.url).out


def test_a_vacuum_without_enough_space_is_refused_with_both_numbers(
    state_store: StateStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """maintenance OP-21."""
    monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(9, 8, 1))
    with pytest.raises(Conflict) as refused:
        state_store.maintenance.vacuum.run()
    assert (refused.value.code, refused.value.details["free"]) == ("no_space", 1)


def test_a_query_prints_rows_and_is_refused_where_it_would_write(database: Database) -> None:
    """maintenance OP-12."""
    database.open().workflows.runs.create("wf", trigger=Trigger("t"), phase="p")
    sql = "SELECT workflow_name AS name, status FROM workflow_runs WHERE workflow_name = :name"
    said = lastlight_state("query", sql, "--param", "name=wf", "--url", database.url, "--json")
    assert (said.data["columns"], said.data["rows"], said.data["truncated"]) == (
        *(["name", "status"], [["wf", "running"]], False),
    )
    told = lastlight_state("query", sql, "--param", "name=wf", "--url", database.url).out.splitlines()
    assert [line.split() for line in told] == [["name", "status"], ["wf", "running"]]
    assert lastlight_state("query", sql, "--param", "name=wf", "--csv", "--url", database.url).out == (
        "name,status\nwf,running\n"
    )
    assert (
        "workflow_runs" in lastlight_state("query", sql, "--param", "name=wf", "--explain", "--url", database.url).out
    )
    limited = lastlight_state("query", "SELECT 1 UNION ALL SELECT 2", "--limit", 1, "--url", database.url)
    assert "only the first 1 rows" in limited.err
    for refused in ("DELETE FROM workflow_runs", "SELECT 1; SELECT 2", " "):
        assert lastlight_state("query", refused, "--url", database.url).code in (1, 2)
    assert lastlight_state("query", sql, "--param", "name", "--url", database.url).code == 2
