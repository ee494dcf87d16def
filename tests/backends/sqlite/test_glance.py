from __future__ import annotations

import shutil
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from support import between
from support.between import before
from support.maintenance.left_behind import killed

from lastlight_state.backends import open_backend
from lastlight_state.backends.base import Backend, Options
from lastlight_state.backends.sqlite import files, locked_reads, private_copies
from lastlight_state.errors import BackendUnavailable
from lastlight_state.testing.databases import Database

SIDE_FILES = ("-wal", "-shm", "-journal")


@contextmanager
def glancing(path: Path | str) -> Iterator[Backend]:
    with closing(open_backend(path, Options(read_only=True, glance=True))) as backend:
        yield backend


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A WAL database at rest, with one row."""
    path = tmp_path / "a.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("CREATE TABLE t (x)")
        connection.execute("INSERT INTO t VALUES (1)")
        connection.commit()
    return path


def side_files(path: Path) -> list[str]:
    return [suffix for suffix in SIDE_FILES if path.with_name(path.name + suffix).exists()]


def test_a_file_at_rest_is_read_without_side_files(file: Path) -> None:
    """maintenance OP-2."""
    with glancing(file) as backend:
        assert backend.peek("SELECT x FROM t") == [(1,)]
        assert side_files(file) == []
        assert not backend.is_disturbed
    assert side_files(file) == []


def test_a_writer_that_comes_meanwhile_disturbs(file: Path) -> None:
    """maintenance OP-2."""
    with glancing(file) as backend, closing(sqlite3.connect(file)) as writer:
        backend.peek("SELECT x FROM t")
        writer.execute("INSERT INTO t VALUES (2)")
        writer.commit()
        assert backend.is_disturbed


def test_a_writer_that_came_and_went_disturbs(file: Path) -> None:
    """maintenance OP-2."""
    with glancing(file) as backend:
        backend.peek("SELECT x FROM t")
        with closing(sqlite3.connect(file)) as writer:
            writer.execute("INSERT INTO t VALUES (2)")
            writer.commit()
        assert side_files(file) == []
        assert backend.is_disturbed


def test_a_file_in_use_is_read_in_the_ordinary_way(file: Path) -> None:
    """maintenance OP-2."""
    with closing(sqlite3.connect(file)) as writer:
        writer.execute("INSERT INTO t VALUES (2)")
        writer.commit()
        assert side_files(file) == ["-wal", "-shm"]
        with glancing(file) as backend:
            assert backend.peek("SELECT x FROM t ORDER BY x") == [(1,), (2,)]
            writer.execute("INSERT INTO t VALUES (3)")
            writer.commit()
            assert backend.peek("SELECT x FROM t ORDER BY x") == [(1,), (2,), (3,)]
            assert not backend.is_disturbed


def test_a_writer_that_was_there_before_disturbs_nobody_when_it_goes(file: Path) -> None:
    """maintenance OP-2."""
    with closing(sqlite3.connect(file)) as writer:
        writer.execute("INSERT INTO t VALUES (2)")
        writer.commit()
        with glancing(file) as backend:
            assert not backend.is_disturbed
            writer.close()
            assert side_files(file) == []
            assert not backend.is_disturbed


def test_a_missing_file_is_not_there_and_does_not_appear(tmp_path: Path) -> None:
    """maintenance OP-2."""
    with glancing(tmp_path / "none.db") as backend:
        assert not backend.exists
        assert backend.peek("SELECT 1") is None
        assert not backend.is_disturbed
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_vanishes_while_it_is_looked_at_is_not_there(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """maintenance OP-2."""
    happened = before(monkeypatch, files, "without_waiting", file.unlink)
    with glancing(file) as backend:
        assert happened
        assert not backend.exists
        assert backend.is_disturbed
    assert not file.exists()


def test_a_file_whose_writer_died_is_read_in_the_ordinary_way_once_another_uses_it(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """maintenance OP-2."""
    left = file.with_name("left.db")
    with closing(sqlite3.connect(file, isolation_level=None)) as writer:
        writer.execute("INSERT INTO t VALUES (2)")
        for suffix in ("", "-wal"):
            shutil.copy(f"{file}{suffix}", f"{left}{suffix}")
    monkeypatch.setattr(private_copies, "_TRIES", 1)
    with closing(sqlite3.connect(left, isolation_level=None)) as another:
        begin = "INSERT INTO t VALUES (3)"
        happened = before(monkeypatch, private_copies, "PrivateCopy", lambda: another.execute(begin))
        with glancing(left) as backend:
            assert backend.peek("SELECT x FROM t") == [(1,), (2,), (3,)]
        assert happened


def test_a_server_and_a_database_in_memory_exist_and_are_never_disturbed(postgres_url: str) -> None:
    for url in (postgres_url, ":memory:"):
        with glancing(url) as backend:
            assert backend.exists
            assert not backend.is_disturbed


def test_a_store_without_glance_is_never_disturbed(fresh_database: Database) -> None:
    assert not fresh_database.open(read_only=True).backend.is_disturbed


def test_a_folder_in_place_of_a_file_is_the_librarys_own_error(tmp_path: Path) -> None:
    """maintenance OP-2, backends B-8."""
    with pytest.raises(BackendUnavailable), glancing(tmp_path) as backend:
        backend.peek("SELECT 1")


def test_a_name_that_has_no_room_for_a_suffix_can_be_looked_for(tmp_path: Path) -> None:
    """maintenance OP-2, backends B-8: no file beside it can be there."""
    with glancing(tmp_path / ("n" * 253)) as backend:
        assert not backend.exists


def test_a_link_to_a_file_that_is_in_use_is_read_as_the_file(file: Path, tmp_path: Path) -> None:
    """maintenance OP-2: the log lies beside the file, and not beside the link."""
    link = tmp_path / "links" / "b.db"
    link.parent.mkdir()
    link.symlink_to(file)
    with closing(sqlite3.connect(file)) as writer:
        writer.execute("INSERT INTO t VALUES (2)")
        writer.commit()
        with glancing(link) as backend:
            assert backend.peek("SELECT x FROM t ORDER BY x") == [(1,), (2,)]
            assert [path.name for path in backend.files] == ["b.db", "a.db-wal", "a.db-shm", "a.db-journal"]


def test_an_empty_log_that_a_reader_left_is_no_writers(file: Path) -> None:
    """maintenance OP-2: the file is read as one at rest, and a writer who comes disturbs."""
    log = Path(f"{file}-wal")
    log.touch()
    with glancing(file) as backend:
        assert backend.peek("SELECT x FROM t") == [(1,)]
        assert (side_files(file), backend.is_disturbed) == (["-wal"], False)
        with closing(sqlite3.connect(file)) as writer:
            writer.execute("INSERT INTO t VALUES (2)")
            writer.commit()
            assert backend.is_disturbed


def in_a_log(path: Path) -> None:
    """A row that a killed writer has committed, and that stands in the log alone."""
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE workflow_overrides (name TEXT, updated_at TEXT)")
    killed(path, "-wal")


def test_a_log_to_which_a_writer_comes_while_it_is_copied_is_read_in_the_ordinary_way(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """maintenance OP-2, OP-16: the file is in use, after all."""
    in_a_log(file)
    with closing(sqlite3.connect(file, isolation_level=None)) as writer, glancing(file) as backend:
        monkeypatch.setattr(private_copies, "_TRIES", 1)
        coming = between.before(
            monkeypatch, private_copies, "PrivateCopy", lambda: writer.execute("INSERT INTO t VALUES (2)")
        )
        assert backend.peek("SELECT x FROM t ORDER BY x") == [(1,), (2,)]
        assert coming


def test_where_nobody_can_look_who_uses_a_file_it_is_read_in_the_ordinary_way(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """maintenance OP-2: such as in a program that has Python inside it, and no interpreter of its own."""
    in_a_log(file)
    with glancing(file) as backend:
        monkeypatch.setattr(sys, "executable", "")
        assert backend.peek("SELECT name FROM workflow_overrides") == [("left",)]
        assert backend.place() is None


def test_a_file_that_goes_while_it_is_looked_at_is_not_there(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """maintenance OP-2."""
    going = between.before(monkeypatch, locked_reads, "_journal_mode", file.unlink)
    with glancing(file) as backend:
        assert going
        assert not backend.exists
        assert backend.peek("SELECT x FROM t") is None


def test_a_file_that_is_torn_by_a_writer_while_it_is_opened_is_read_as_one_in_use(file: Path) -> None:
    """maintenance OP-2, OP-36: what SQLite read without locks was of two moments."""
    writer = sqlite3.connect(file)
    asked = []

    def connect(path: Path, access: str) -> sqlite3.Connection:
        asked.append(access)
        if len(asked) == 1:
            writer.execute("INSERT INTO t VALUES (2)")
            writer.commit()
            raise sqlite3.DatabaseError("database disk image is malformed")
        return sqlite3.connect(f"file:{path}?{access}", uri=True)

    with closing(writer), closing(locked_reads.Probe(file, connect).open_connection()) as connection:
        assert connection.execute("SELECT x FROM t ORDER BY x").fetchall() == [(1,), (2,)]
    assert ["immutable" in access for access in asked] == [True, False]


def test_a_file_that_is_damaged_at_rest_is_an_error_of_its_reader(file: Path) -> None:
    """maintenance OP-2."""

    def connect(path: Path, access: str) -> sqlite3.Connection:
        raise sqlite3.DatabaseError("database disk image is malformed")

    with pytest.raises(sqlite3.DatabaseError):
        locked_reads.Probe(file, connect).open_connection()
