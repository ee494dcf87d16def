"""What somebody puts beside a database file: a journal that names another file, or no regular file."""

from __future__ import annotations

import os
import signal
import sqlite3
import sys
from collections.abc import Callable
from contextlib import closing
from itertools import product
from pathlib import Path

import pytest
from support.each import with_each
from support.preloaded import Program

from lastlight_state import Settings, StateStore
from lastlight_state.errors import BackendUnavailable
from lastlight_state.files.mailbox import Mailboxes
from lastlight_state.testing import Database

SHORT = Settings(busy_timeout=0.1, journal_mode="delete")
#: Changes so much in a transaction that SQLite has to write it to the file, and is killed.
KILLED = """
import os, signal, sqlite3, sys
held = sqlite3.connect(sys.argv[1], isolation_level=None)
held.execute("PRAGMA cache_size = 1")
held.execute("BEGIN IMMEDIATE")
held.execute("CREATE TABLE unfinished AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 3000)"
             " SELECT i, randomblob(200) FROM n")
os.kill(os.getpid(), signal.SIGKILL)
"""


def killed_writer(file: Path) -> Path:
    """Kill a process in the middle of its transaction on a file; its journal."""
    assert Program([sys.executable, "-c", KILLED, str(file)]).wait(60) == -signal.SIGKILL
    journal = Path(f"{file}-journal")
    assert journal.stat().st_size > 0
    return journal


def name_another(journal: Path, named: Path) -> None:
    """Let a journal name another one, as that of a commit over several files does."""
    name = os.fsencode(named)
    with journal.open("ab") as file:
        file.write(b"\0" * 4 + name + len(name).to_bytes(4, "big") + sum(name).to_bytes(4, "big"))
        file.write(bytes.fromhex("d9d505f920a163d7"))


def write(boxes: Mailboxes, side: str) -> None:
    """Write the own file of a side."""
    if side == "host":
        boxes.host("g", "s").inbox.send(kind="chat", content={"text": "hi"})
    else:
        boxes.agent("g", "s").inbox.take()


def test_a_journal_beside_a_store_that_names_another_file_is_refused(tmp_path: Path) -> None:
    """backends B-196: SQLite itself would delete that file; 3.40 does, and 3.53 no longer."""
    file, victim = tmp_path / "state.db", tmp_path / "precious.txt"
    StateStore.open(file, settings=SHORT).close()
    victim.write_text("precious")
    name_another(killed_writer(file), victim)
    for opened in (file, tmp_path / "link.db"):
        if opened != file:
            opened.symlink_to(file)
        with pytest.raises(BackendUnavailable, match=r"state\.db-journal beside the database names another") as raised:
            StateStore.open(opened, settings=SHORT)
        assert raised.value.details["reason"] == "another_journal"
    assert victim.read_text() == "precious"
    with closing(sqlite3.connect(file)) as plain:
        plain.execute("SELECT count(*) FROM workflow_runs").fetchall()
    assert not victim.exists() or sqlite3.sqlite_version_info >= (3, 41)  # what the refusal is for


@with_each("side", ["host", "agent"])
def test_a_journal_beside_the_own_file_of_a_mailbox_that_names_another_file_is_refused(
    tmp_path: Path, side: str
) -> None:
    """backends B-196: the other side may write the folder."""
    boxes, victim = Mailboxes(tmp_path / "boxes", settings=SHORT), tmp_path / "precious.txt"
    boxes.create("g", "s")
    victim.write_text("precious")
    own = tmp_path / "boxes" / "g" / "s" / {"host": "inbound.db", "agent": "outbound.db"}[side]
    name_another(killed_writer(own), victim)
    with pytest.raises(BackendUnavailable, match="names another journal"):
        write(boxes, side)
    assert victim.read_text() == "precious"


def test_the_journal_of_a_killed_process_is_rolled_back(tmp_path: Path) -> None:
    """backends B-196: opening ends what the process had begun."""
    file = tmp_path / "state.db"
    StateStore.open(file, settings=SHORT).close()
    journal = killed_writer(file)
    with StateStore.open(file, settings=SHORT) as store:
        assert store.workflows.runs.list().items == ()
        assert store.maintenance.doctor.examine(deep=True).findings == ()
    assert not journal.exists()


def test_what_lies_beside_a_database_and_is_no_regular_file_is_refused(sqlite_database: Database) -> None:
    """backends B-196: SQLite would wait at a FIFO for ever."""
    kinds: dict[str, Callable[[Path], object]] = {
        "fifo": os.mkfifo,
        "folder": Path.mkdir,
        "device": lambda path: path.symlink_to("/dev/zero"),
    }
    for suffix, kind, read_only in product(("-journal", "-wal", "-shm"), kinds, (True, False)):
        beside = Path(f"{sqlite_database.url}{suffix}")
        beside.unlink(missing_ok=True)
        kinds[kind](beside)
        with pytest.raises(BackendUnavailable) as raised:
            StateStore.open(sqlite_database.url, read_only=read_only)
        expected = f"{beside.name}: expected a regular file, found"
        assert expected in str(raised.value), (kind, read_only)
        (Path.rmdir if kind == "folder" else Path.unlink)(beside)
