"""Files of SQLite that somebody copied with ``cp`` while they were open."""

from __future__ import annotations

import shutil
import sqlite3
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest
from support.cli.calls import lastlight_state

from lastlight_state import Settings, StateStore
from lastlight_state.migrations.verification import LOG_LOST, LOG_LOST_TOO


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    """The copy of a file whose commits stand in the log beside it."""
    with StateStore.open(tmp_path / "open.db") as store:
        store.workflows.overrides.put("a", enabled=False, by="ana")
        shutil.copyfile(tmp_path / "open.db", tmp_path / "copied.db")
    return tmp_path / "copied.db"


def test_a_copy_without_its_log_is_told_from_a_new_file(copied: Path) -> None:
    """maintenance OP-78: by `check` and `doctor`, with the command that copies an open file; nothing is written."""
    before = copied.read_bytes()
    said = lastlight_state("check", "--url", copied, "--json")
    assert (said.code, said.error) == (1, "log_lost")
    assert "lastlight-state backup DIR" in said.answer["error"]["message"]
    assert "migrate" in said.answer["error"]["message"]
    found = lastlight_state("doctor", "--only", "DOC-02", "--url", copied, "--json").data["findings"]
    assert [(one["message"], one["remedy"]) for one in found if one["remedy"]] == [
        (LOG_LOST, "lastlight-state backup DIR")
    ]
    assert copied.read_bytes() == before


def test_a_copy_that_lacks_tables_or_pages_is_told_too(copied: Path) -> None:
    """maintenance OP-78, OP-15: the file grew while it was copied; a lost table is named first, as what was seen."""
    original = copied.with_name("open.db")
    cut = copied.with_name("cut.db")
    cut.write_bytes(original.read_bytes()[:-4096])
    [found] = lastlight_state("doctor", "--only", "DOC-01", "--url", cut, "--json").data["findings"]
    assert (found["message"], found["remedy"]) == (LOG_LOST, "lastlight-state backup DIR")
    with closing(sqlite3.connect(original)) as raw:
        raw.execute("DROP TABLE cron_fires")
    said = lastlight_state("check", "--url", original, "--json")
    assert (said.code, said.error, said.data["differences"]) == (1, "damaged", ["table cron_fires is missing"])
    assert said.answer["error"]["message"].endswith(LOG_LOST_TOO)
    assert "migrate" not in said.answer["error"]["message"]
    [found] = lastlight_state("doctor", "--only", "DOC-02", "--url", original, "--json").data["findings"]
    assert found["message"].endswith(LOG_LOST_TOO)


@pytest.mark.parametrize("kept", ["-wal", None])
def test_a_file_with_its_log_and_one_that_was_closed_are_sound(copied: Path, kept: str | None) -> None:
    """maintenance OP-78: what is beside an open file goes with it."""
    original = copied.with_name("open.db")
    if kept is not None:
        with StateStore.open(original) as store:
            store.workflows.overrides.put("b", enabled=False, by="ana")
            for suffix in ("", kept):
                shutil.copyfile(f"{original}{suffix}", f"{original.with_name('again.db')}{suffix}")
        original = original.with_name("again.db")
    assert lastlight_state("check", "--url", original).code == 0


def test_to_look_for_a_lost_log_drops_no_lock_of_this_process(tmp_path: Path) -> None:
    """maintenance OP-15, OP-78: to close a file drops all locks of the process; then two could write at once."""
    file = tmp_path / "rolled.db"
    ask = [sys.executable, "-c", "import sqlite3, sys; sqlite3.connect(sys.argv[1], timeout=0).execute(sys.argv[2])"]
    with StateStore.open(settings=Settings(url=str(file), journal_mode="delete")) as store, store.transaction() as tx:
        tx.workflows.overrides.put("a", enabled=False, by="ana")
        with ThreadPoolExecutor(1) as pool:
            report = pool.submit(store.maintenance.doctor.examine, only=["DOC-01"]).result()
        assert report.findings == ()
        told = subprocess.run([*ask, str(file), "BEGIN IMMEDIATE"], capture_output=True, text=True, check=False)
        assert "database is locked" in told.stderr
