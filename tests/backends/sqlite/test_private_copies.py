"""How a file whose writer died is copied, and what is said where it cannot be."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from support.each import with_each
from support.maintenance.left_behind import killed

from lastlight_state.backends.sqlite import private_copies
from lastlight_state.errors import BackendBusy, BackendUnavailable
from lastlight_state.testing import SqliteTemplate
from lastlight_state.testing.clock import FrozenClock


@pytest.fixture
def left(sqlite_template: SqliteTemplate, tmp_path: Path, frozen_clock: FrozenClock) -> Iterator[Path]:
    """A file with the journal of a writer that died."""
    with sqlite_template.fresh(tmp_path, frozen_clock) as database:
        file = Path(database.url)
        killed(file, "-journal")
        yield file


def test_of_a_journal_only_the_end_is_read(left: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """mailbox MB-73: it may be as large as the file, and SQLite rolls it back itself."""
    monkeypatch.setattr(Path, "read_bytes", None)
    assert private_copies.take_copy(left, checked=False).path.exists()


def test_a_copy_that_fails_is_told_with_its_reason(left: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """maintenance OP-16: nobody has changed the file, and nothing is tried again."""
    monkeypatch.setattr(private_copies, "_COPY", "raise OSError(122, 'Disk quota exceeded')")
    with pytest.raises(BackendUnavailable, match=r"cannot be copied to be read: OSError: \[Errno 122\] Disk quota"):
        private_copies.take_copy(left, checked=False)


def test_what_is_no_file_beside_a_file_is_not_copied(left: Path) -> None:
    """maintenance OP-16: such as a FIFO in place of its log."""
    Path(f"{left}-wal").unlink(missing_ok=True)
    os.mkfifo(f"{left}-wal")
    with pytest.raises(BackendUnavailable, match="expected regular files beside it"):
        private_copies.take_copy(left, checked=False)


def test_a_link_to_nothing_beside_a_file_is_no_missing_log(left: Path) -> None:
    """maintenance OP-16: without what it stood for, the copy would be of another state."""
    Path(f"{left}-wal").unlink(missing_ok=True)
    Path(f"{left}-wal").symlink_to(left.parent / "nowhere")
    with pytest.raises(BackendUnavailable, match="cannot be copied to be read: OSError"):
        private_copies.take_copy(left, checked=False)


def test_a_file_that_is_written_during_each_copy_is_busy(left: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """maintenance OP-16: its writer lives after all."""
    monkeypatch.setattr(private_copies, "_COPY", "import sys; open(sys.argv[1], 'ab').write(b'x')")
    before = left.stat().st_size
    with pytest.raises(BackendBusy, match="changed while it was copied"):
        private_copies.take_copy(left, checked=False)
    assert left.stat().st_size == before + 5


def test_a_copy_that_somebody_locks_is_busy(left: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """maintenance OP-16: it is not called damaged."""
    run, lockers = subprocess.run, []

    def copied_and_locked(command: list[str], **options: Any) -> Any:
        done = run(command, **options)
        lockers.append(sqlite3.connect(command[-1].removesuffix("-journal"), isolation_level=None))
        lockers[0].execute("BEGIN EXCLUSIVE")
        return done

    monkeypatch.setattr(subprocess, "run", copied_and_locked)
    with pytest.raises(BackendBusy, match="the copy of a crashed writer's file is locked"):
        private_copies.take_copy(left, checked=True)
    lockers[0].close()


def test_without_a_place_for_copies_the_environment_is_named(left: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """maintenance OP-16."""
    monkeypatch.setattr(tempfile, "tempdir", str(left.parent / "missing"))
    with pytest.raises(BackendUnavailable, match="No such file or directory: check TMPDIR") as raised:
        private_copies.take_copy(left, checked=False)
    assert raised.value.details["reason"] == "no_room"


@with_each(("free", "enough"), [(-1, False), (0, True)])
def test_a_copy_needs_room_for_all_files_and_the_log_once_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free: int, enough: bool
) -> None:
    """maintenance OP-16: recovery brings the log into the copy."""
    for size, suffix in ((100, ""), (20, "-journal"), (3, "-wal")):
        (tmp_path / f"x.db{suffix}").write_bytes(bytes(size))
    mark, needed = private_copies.stamps_of(tmp_path / "x.db"), 126
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(shutil, "disk_usage", lambda _place: SimpleNamespace(free=needed + free))
    if enough:
        assert private_copies.PrivateCopy(mark).path.parent.parent == tmp_path
        return
    with pytest.raises(BackendUnavailable, match=f"that needs 126 bytes in {tmp_path}, and 125 are free") as raised:
        private_copies.PrivateCopy(mark)
    assert raised.value.details["reason"] == "no_room"


@with_each("checked", [True, False])
def test_a_copy_that_is_no_database_is_refused(tmp_path: Path, checked: bool) -> None:
    """maintenance OP-16."""
    (tmp_path / "x.db").write_bytes(b"no database" * 100)
    with pytest.raises(BackendUnavailable, match="cannot be read: file is not a database") as raised:
        private_copies.take_copy(tmp_path / "x.db", checked=checked)
    assert raised.value.details["reason"] == "not_a_database"


def test_a_damaged_page_is_found_where_the_copy_is_checked(tmp_path: Path) -> None:
    """maintenance OP-16."""
    file = tmp_path / "x.db"
    with closing(sqlite3.connect(file, isolation_level=None)) as connection:
        connection.execute("CREATE TABLE t (a TEXT)")
        connection.execute("INSERT INTO t VALUES ('a')")
        page = connection.execute("PRAGMA page_size").fetchone()[0]
    with file.open("r+b") as opened:
        opened.seek(page)
        opened.write(b"\xff" * page)
    assert private_copies.take_copy(file, checked=False).path.exists()
    with pytest.raises(BackendUnavailable, match="cannot be read") as raised:
        private_copies.take_copy(file, checked=True)
    assert raised.value.details["reason"] == "not_a_database"


def test_a_journal_that_names_another_one_is_not_followed(tmp_path: Path) -> None:
    """mailbox MB-73: SQLite would open that file, and might delete it."""
    (tmp_path / "x.db").write_bytes(b"")
    (tmp_path / "x.db-journal").write_bytes(b"/another" + bytes.fromhex("d9d505f920a163d7"))
    with pytest.raises(BackendUnavailable, match="names another journal") as raised:
        private_copies.take_copy(tmp_path / "x.db", checked=False)
    assert raised.value.details["reason"] == "not_a_database"
