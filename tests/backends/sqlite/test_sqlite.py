"""What is true of SQLite alone: pragmas, files, the journal mode, the connections of a store."""

import logging
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from lastlight_state import Settings, StateStore
from lastlight_state.backends.base import Mode, Options
from lastlight_state.backends.sqlite import SqliteBackend, checkpoints
from lastlight_state.backends.sqlite.pragmas import pragmas, set_up
from lastlight_state.errors import BackendUnavailable, MisuseError, NotMigrated, NotSupported, ReadOnlyTransaction
from lastlight_state.testing import FrozenClock, SqliteTemplate
from lastlight_state.workflows import Trigger

TRIGGER = Trigger(type="cli", id="t")


@pytest.fixture
def path(sqlite_template: SqliteTemplate, state_dir: Path, frozen_clock: FrozenClock) -> Iterator[Path]:
    """A migrated file."""
    with sqlite_template.fresh(state_dir, frozen_clock) as database:
        yield Path(database.url)


def settings_of(store: StateStore, *names: str, mode: Mode = Mode.READ) -> list[Any]:
    """The pragmas of the connection that a unit of this mode gets."""
    checkout = store.backend.acquire(mode)
    try:
        return [checkout.driver.execute(f"PRAGMA {name}").fetchone()[0] for name in names]
    finally:
        store.backend.rollback(checkout)
        store.backend.release(checkout)


@pytest.mark.parametrize("mode", [Mode.READ, Mode.SNAPSHOT, Mode.ONE, Mode.WRITE])
def test_every_connection_has_the_settings(path: Path, mode: Mode) -> None:
    """backends B-20."""
    names = ("journal_mode", "synchronous", "foreign_keys", "recursive_triggers", "busy_timeout", "wal_autocheckpoint")
    with StateStore.open(path) as store:
        waits = 250 if mode.writes else 5000  # a writer waits in pieces
        assert settings_of(store, *names, mode=mode) == ["wal", 1, 1, 1, waits, 0 if checkpoints.NEEDED else 1000]
        assert settings_of(store, "query_only", mode=mode) == [0 if mode.writes else 1]


@pytest.mark.parametrize("rebuilds", [False, True])
def test_a_connection_that_migrated_has_its_settings_again(path: Path, *, rebuilds: bool) -> None:
    """backends B-20: it waits in pieces, and its foreign keys are on."""
    with StateStore.open(path) as store:
        with store.backend.migration(7, rebuilds=rebuilds):
            pass
        assert settings_of(store, "busy_timeout", "foreign_keys", mode=Mode.WRITE) == [250, 1]


def test_a_connection_that_breaks_while_it_migrates_is_given_up(path: Path) -> None:
    """backends B-20, B-40."""
    with StateStore.open(path) as store:
        with pytest.raises(MisuseError, match="closed"), store.backend.migration(7) as connection:
            connection.connection.driver_connection.close()  # type: ignore[union-attr]
        store.workflows.runs.create("w", trigger=TRIGGER, phase="p")


def test_a_reading_unit_cannot_write_even_by_mistake(path: Path) -> None:
    """backends B-21: read units never write."""
    with StateStore.open(path) as store:
        for mode in (Mode.READ, Mode.SNAPSHOT):
            checkout = store.backend.acquire(mode)
            with pytest.raises(sqlite3.OperationalError, match="readonly"):
                checkout.driver.execute("DELETE FROM workflow_overrides")
            store.backend.rollback(checkout)
            store.backend.release(checkout)


def test_full_durability_syncs_each_commit(path: Path) -> None:
    """backends B-20."""
    with StateStore.open(path, durability="full") as store:
        assert settings_of(store, "synchronous", mode=Mode.WRITE) == [2]


def test_the_checkpoint_can_be_tuned_and_switched_off(path: Path) -> None:
    """backends B-20: given ``wal_autocheckpoint=0``, the WAL grows until a checkpoint."""
    wal = path.with_name("lastlight.db-wal")
    with StateStore.open(path, settings=Settings(wal_autocheckpoint=0)) as store:
        assert settings_of(store, "wal_autocheckpoint", mode=Mode.WRITE) == [0]
        context = {"text": "x" * 100_000}
        sizes = []
        for _ in range(60):
            store.workflows.runs.create("w", trigger=TRIGGER, phase="p", context=context)
            sizes.append(wal.stat().st_size)
        assert sizes == sorted(sizes)
        assert sizes[-1] > 6_000_000


def test_the_wal_is_bounded_by_default(path: Path) -> None:
    """backends B-20: ``wal_autocheckpoint`` is 1000 pages."""
    wal = path.with_name("lastlight.db-wal")
    with StateStore.open(path) as store:
        context = {"text": "x" * 100_000}
        for _ in range(60):
            store.workflows.runs.create("w", trigger=TRIGGER, phase="p", context=context)
        assert wal.stat().st_size < 5_000_000


def test_closing_updates_the_planners_statistics(path: Path) -> None:
    """backends B-24: ``PRAGMA optimize`` on close."""
    with StateStore.open(path) as store:
        with store.transaction() as tx:
            for _ in range(300):
                tx.workflows.runs.create("w", trigger=TRIGGER, phase="p")
        store.workflows.runs.list(limit=10)
        checkout = store.backend.acquire(Mode.WRITE)  # the writer's own queries are what optimize goes by
        checkout.driver.execute("SELECT id FROM workflow_runs WHERE status = 'running' ORDER BY started_at").fetchall()
        store.backend.commit(checkout)
        store.backend.release(checkout)
    with sqlite3.connect(path) as plain:
        assert plain.execute("SELECT count(*) FROM sqlite_stat1 WHERE tbl = 'workflow_runs'").fetchone()[0] > 0
    plain.close()


@pytest.mark.parametrize("name", ["nfs4", "cifs", "9p", "virtiofs", "fuse.sshfs"])
def test_on_a_remote_file_system_the_journal_is_rolled_back_and_synced_and_the_log_says_so(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    """backends B-23: DELETE and FULL, said in a log line."""
    with caplog.at_level(logging.WARNING, "lastlight_state"):
        settings = list(pragmas(Options(), name))
    assert "journal_mode = DELETE" in settings
    assert "synchronous = FULL" in settings
    assert "mmap_size = 0" in settings
    assert [record.getMessage() for record in caplog.records] == [
        f"the database file lies on {name}: rollback journal and full sync instead of WAL"
    ]


def test_the_journal_mode_of_a_remote_file_system_can_be_overridden(caplog: pytest.LogCaptureFixture) -> None:
    """backends B-23: overridable; what is synced is not."""
    settings = list(pragmas(Options(journal_mode="wal"), "nfs4"))
    assert "journal_mode = WAL" in settings
    assert "synchronous = FULL" in settings
    assert caplog.records == []


def test_on_a_local_file_system_it_is_wal_and_nothing_is_said(caplog: pytest.LogCaptureFixture) -> None:
    """backends B-23."""
    settings = list(pragmas(Options(), "ext4"))
    assert "journal_mode = WAL" in settings
    assert "synchronous = NORMAL" in settings
    assert caplog.records == []


@pytest.mark.parametrize("journal_mode", ["delete", "truncate", "persist", "wal"])
def test_the_journal_mode_asked_for_is_the_files(path: Path, journal_mode: Any) -> None:
    """backends B-23: ``journal_mode``."""
    with StateStore.open(path, settings=Settings(journal_mode=journal_mode)) as store:
        run = store.workflows.runs.create("w", trigger=TRIGGER, phase="p")
        assert settings_of(store, "journal_mode", mode=Mode.WRITE) == [journal_mode]
        assert store.workflows.runs.get(run.id) == run


def test_a_journal_mode_that_is_not_to_be_had_is_refused_with_the_setting_that_helps(state_dir: Path) -> None:
    """backends B-23: a refusal that says why."""
    engine = sa.create_engine(f"sqlite:///file:{state_dir}/new.db?vfs=unix-dotfile&uri=true")  # has no shared memory
    with pytest.raises(NotSupported, match=r"wal is not to be had where it lies.*journal_mode=delete"):
        StateStore.open(engine=engine)
    with StateStore.open(engine=engine, settings=Settings(journal_mode="delete")) as store:
        run = store.workflows.runs.create("w", trigger=TRIGGER, phase="p")
        assert store.workflows.runs.get(run.id) == run
    engine.dispose()


def test_a_relative_path_means_the_directory_at_the_time_of_opening(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """backends B-3: connections are opened as they are needed."""
    (tmp_path / "here").mkdir()
    (tmp_path / "there").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    with StateStore.open("lastlight.db") as store:
        monkeypatch.chdir(tmp_path / "there")
        run = store.workflows.runs.create("w", trigger=TRIGGER, phase="p")
        with store.view() as view:
            assert view.workflows.runs.get(run.id) == run
    assert list((tmp_path / "there").iterdir()) == []


@pytest.mark.parametrize("name", ["a b?c#d%20.db", "ünï 👩‍🚀.db", "mode=memory", "a&b=c.db"])
def test_any_file_name_is_taken_literally(state_dir: Path, name: str) -> None:
    """backends B-3: a bare path."""
    StateStore.open(str(state_dir / name)).close()
    assert [file.name for file in state_dir.iterdir()] == [name]


def test_a_database_in_memory_is_one_for_all_threads(path: Path) -> None:
    """backends B-6: ``sqlite:///:memory:`` is one shared connection."""
    with StateStore.open("sqlite:///:memory:") as store:
        made: list[str] = []
        threads = [
            threading.Thread(
                target=lambda: made.append(store.workflows.runs.create("w", trigger=TRIGGER, phase="p").id)
            )
            for _ in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert {run.id for run in store.workflows.runs.list()} == set(made)
        assert len(made) == 4


def test_nothing_said_means_the_file_in_the_state_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """backends B-3: ``./state/lastlight.db``, or in ``STATE_DIR``."""
    monkeypatch.chdir(tmp_path)
    for variable in ("STATE_DIR", "LASTLIGHT_STATE_STATE_DIR", "LASTLIGHT_STATE_URL"):
        monkeypatch.delenv(variable, raising=False)
    StateStore.open().close()
    assert (tmp_path / "state" / "lastlight.db").exists()
    monkeypatch.setenv("STATE_DIR", str(tmp_path / "other"))
    StateStore.open().close()
    assert (tmp_path / "other" / "lastlight.db").exists()
    monkeypatch.setenv("LASTLIGHT_STATE_URL", f"sqlite:///{tmp_path}/named.db")
    StateStore.open().close()
    assert (tmp_path / "named.db").exists()


def test_a_directory_in_the_place_of_the_file_is_unavailable(state_dir: Path) -> None:
    with pytest.raises(BackendUnavailable, match="cannot be opened"):
        StateStore.open(state_dir)


def test_a_file_in_the_place_of_the_directory_is_unavailable(state_dir: Path) -> None:
    (state_dir / "file").touch()
    with pytest.raises(BackendUnavailable, match="cannot be opened"):
        StateStore.open(state_dir / "file" / "lastlight.db")


def test_a_file_that_is_no_database_is_said_to_be_none_and_left_alone(state_dir: Path) -> None:
    path = state_dir / "lastlight.db"
    path.write_bytes(b"not a database, but long enough to have a header of one hundred bytes " * 4)
    before = path.read_bytes()
    with pytest.raises(BackendUnavailable) as raised:
        StateStore.open(path)
    assert raised.value.details["reason"] == "not_a_database"
    assert path.read_bytes() == before


def test_an_old_sqlite_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """backends B-7: SQLite 3.35."""
    monkeypatch.setattr(sqlite3, "sqlite_version_info", (3, 34, 9))
    with pytest.raises(NotSupported, match=r"older than 3\.35"):
        SqliteBackend(":memory:", Options())
    monkeypatch.setattr(sqlite3, "sqlite_version_info", (3, 35, 0))
    SqliteBackend(":memory:", Options()).close()


def test_a_connection_that_cannot_be_rolled_back_is_given_up(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """backends B-40: the next caller must find the connection clean."""
    caplog.set_level(logging.DEBUG, "lastlight_state")
    with StateStore.open(path) as store:
        for mode in (Mode.WRITE, Mode.SNAPSHOT):
            checkout = store.backend.acquire(mode)
            checkout.driver.close()
            store.backend.rollback(checkout)
            assert checkout.broken
            store.backend.release(checkout)
        store.workflows.runs.create("w", trigger=TRIGGER, phase="p")
        with store.view() as view:
            assert len(view.workflows.runs.list()) == 1
    assert "ROLLBACK of a unit that was cut off" in caplog.text


def test_a_file_that_is_locked_while_it_enters_wal_mode_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """backends B-20: SQLite's own busy timeout does not cover it."""
    holder, connection = (sqlite3.connect(tmp_path / "new.db", isolation_level=None, timeout=0) for _ in range(2))
    holder.execute("BEGIN EXCLUSIVE")
    monkeypatch.setattr(time, "sleep", lambda _: holder.execute("ROLLBACK"))
    set_up(connection, ("journal_mode = WAL",), Options(busy_timeout=0), writes=False)
    assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    connection.close()
    holder.close()


def test_closing_a_store_does_not_fail_because_the_file_is_busy(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """backends B-24: ``PRAGMA optimize`` is a courtesy."""
    caplog.set_level(logging.DEBUG, "lastlight_state")
    store = StateStore.open(path)
    with store.transaction() as tx:
        tx.connection.exec_driver_sql("PRAGMA busy_timeout = 1")
        for _ in range(300):
            tx.workflows.runs.create("w", trigger=TRIGGER, phase="p")
        tx.connection.exec_driver_sql("SELECT id FROM workflow_runs WHERE status = 'x' ORDER BY started_at").fetchall()
    holder = sqlite3.connect(path, isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    store.close()
    holder.close()
    assert "PRAGMA optimize at close" in caplog.text


def test_a_read_only_store_creates_nothing(tmp_path: Path) -> None:
    """backends B-25: ``read_only=True``."""
    with pytest.raises(NotMigrated):
        StateStore.open(tmp_path / "new" / "lastlight.db", read_only=True)
    assert list(tmp_path.iterdir()) == []


def test_a_read_only_store_reads_beside_a_writer_and_changes_nothing(path: Path) -> None:
    """backends B-25: dashboards poll with it."""
    with StateStore.open(path) as writer, StateStore.open(path, read_only=True) as reader:
        before = path.read_bytes()
        run = writer.workflows.runs.create("w", trigger=TRIGGER, phase="p")
        assert reader.workflows.runs.get(run.id) == run
        writes: list[Callable[[], object]] = [
            lambda: reader.workflows.runs.create("w", trigger=TRIGGER, phase="p"),
            lambda: reader.transaction().__enter__(),
            lambda: reader.run(lambda tx: tx.workflows),
        ]
        for write in writes:
            with pytest.raises(ReadOnlyTransaction):
                write()
        with reader.view() as view:
            writer.workflows.runs.create("w", trigger=TRIGGER, phase="p")
            assert len(view.workflows.runs.list()) == 2
            writer.workflows.runs.create("w", trigger=TRIGGER, phase="p")  # not blocked
            assert len(view.workflows.runs.list()) == 2
        assert path.read_bytes() == before


def test_a_read_only_store_does_not_migrate(state_dir: Path) -> None:
    """backends B-25."""
    path = state_dir / "lastlight.db"
    path.touch()
    with pytest.raises(NotMigrated):
        StateStore.open(path, read_only=True, migrate=True)
    assert path.stat().st_size == 0


def test_a_file_deleted_under_a_store_is_not_created_again_by_a_reader(path: Path) -> None:
    with StateStore.open(path) as store:
        with store.view() as view:
            view.workflows.runs.list()
            for file in path.parent.iterdir():
                file.unlink()
            with pytest.raises(NotMigrated):
                StateStore.open(path, migrate=False)
            errors: list[Exception] = []

            def read() -> None:
                try:
                    store.workflows.runs.list()
                except BackendUnavailable as error:
                    errors.append(error)

            thread = threading.Thread(target=read)
            thread.start()
            thread.join()
        assert len(errors) == 1
    assert not path.exists()


def test_a_connection_with_somebodys_old_cursor_is_replaced(path: Path) -> None:
    """backends B-50: no wait would end, since the cursor keeps the state that it began with."""
    with StateStore.open(path) as store, StateStore.open(path) as other:
        checkout = store.backend.acquire(Mode.ONE)
        old = checkout.driver.execute("SELECT 1 FROM sqlite_master")
        assert old.fetchone() == (1,)
        store.backend.release(checkout)
        other.workflows.runs.create("other", trigger=TRIGGER, phase="p")
        store.workflows.runs.create("build", trigger=TRIGGER, phase="p")
        assert len(store.workflows.runs.list().items) == 2
        del old
