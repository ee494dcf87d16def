"""backends B-180, B-181, B-182: checkpoints of versions of SQLite that may lose a commit which falls into one."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from support import checkpoint_locks, open_files
from support.processes import started

from lastlight_state import BackendBusy, StateStore
from lastlight_state.backends.base import Checkout, Mode
from lastlight_state.backends.sqlite import checkpoints
from lastlight_state.backends.sqlite.checkpoints import WriteAheadLog
from lastlight_state.settings import Settings
from lastlight_state.workflows import Trigger

TRIGGER = Trigger(type="cli", id="t")
CONTEXT = {"text": "x" * 20_000}
PAGES = 100
#: What a process does with its store, on an engine that has the fault or is treated so.
WRITER = """
import sys
from lastlight_state import BackendBusy, Settings, StateStore
from lastlight_state.backends.sqlite import checkpoints
from lastlight_state.workflows import Trigger
checkpoints.NEEDED = True
trigger, context = Trigger(type="cli", id="t"), {"text": "x" * 20_000}
store = StateStore.open(sys.argv[1], settings=Settings(wal_autocheckpoint=100))
print("open", flush=True)
for number in range(int(sys.argv[2])):
    store.workflows.runs.create("w", trigger=trigger, phase="p", context=context)
    if number % 20 == 0:
        try:
            store.maintenance.checkpoint.run(("TRUNCATE", "PASSIVE", "RESTART", "FULL")[number // 20 % 4])
            store.workflows.runs.list(limit=20)
        except BackendBusy:
            pass
    if number == 50:
        store.maintenance.vacuum.run()
print("done", flush=True)
sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def has_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tests hold on each version: one without the fault is treated like one with it."""
    monkeypatch.setattr(checkpoints, "NEEDED", True)


@pytest.fixture
def store(path: Path) -> Iterator[StateStore]:
    with StateStore.open(path, settings=Settings(wal_autocheckpoint=PAGES)) as opened:
        yield opened


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "a.db"


def create(store: Any, count: int = 1) -> None:
    for _ in range(count):
        store.workflows.runs.create("w", trigger=TRIGGER, phase="p", context=CONTEXT)


def pages_of(path: Path) -> int:
    """How many pages the log had at most since it was last cut."""
    wal = Path(f"{path}-wal")
    return wal.stat().st_size // 4096 if wal.exists() else 0


@contextmanager
def statements(*drivers: sqlite3.Connection) -> Iterator[list[tuple[str, bool]]]:
    """The statements of these connections, each with whether the first of them was in a transaction."""
    told: list[tuple[str, bool]] = []
    for driver in drivers:
        driver.set_trace_callback(lambda sql: told.append((sql, drivers[0].in_transaction)))
    yield told
    for driver in drivers:
        driver.set_trace_callback(None)


def drivers(store: StateStore) -> list[sqlite3.Connection]:
    """The connection that writes, and one that reads."""
    found = []
    for mode in (Mode.WRITE, Mode.READ):
        with Checkout(mode, store.backend) as checkout:
            found.append(checkout.driver)
            store.backend.rollback(checkout)
    return found


@pytest.mark.slow
def test_no_checkpoint_of_ours_is_made_while_another_process_commits(path: Path) -> None:
    """backends B-180: three processes write, checkpoint in every mode and vacuum; a fourth looks at SQLite's locks.

    Without it the fourth meets many checkpoints beside writers.
    """
    with StateStore.open(path) as first:
        create(first)
        with started([sys.executable, checkpoint_locks.__file__, f"{path}-shm"], stdin=subprocess.PIPE) as looking:
            assert looking.stdout is not None
            assert looking.stdout.readline() == "looks\n"
            command = [sys.executable, "-c", WRITER, str(path), "120"]
            with (
                started(command, stdin=subprocess.PIPE) as one,
                started(command, stdin=subprocess.PIPE) as two,
                started(command, stdin=subprocess.PIPE) as three,
            ):
                for writer in (one, two, three):
                    assert writer.stdout is not None
                    assert [writer.stdout.readline(), writer.stdout.readline()] == ["open\n", "done\n"]
            met, beside = map(int, looking.communicate()[0].split())
        assert met > 10
        assert beside == 0
        assert len(first.workflows.runs.list(limit=500)) > 360
        assert first.maintenance.doctor.examine(deep=True, only=["DOC-07"]).findings == ()


@pytest.mark.parametrize("mode", [Mode.READ, Mode.SNAPSHOT, Mode.ONE, Mode.WRITE])
def test_sqlite_makes_no_checkpoint_by_itself(store: StateStore, mode: Mode) -> None:
    """backends B-180: on no connection, and the setting stays visible."""
    with Checkout(mode, store.backend) as checkout:
        assert checkout.driver.execute("PRAGMA wal_autocheckpoint").fetchone() == (0,)
        store.backend.rollback(checkout)
    assert store.maintenance.stats.collect().settings["wal_autocheckpoint"] == PAGES


@pytest.mark.parametrize("mode", ["TRUNCATE", "RESTART", "FULL", "PASSIVE"])
def test_a_checkpoint_is_made_while_the_writers_lock_is_held(store: StateStore, mode: Any) -> None:
    """backends B-180: as a PASSIVE one. The other modes would become that without the lock, if they did not get it."""
    create(store)
    with statements(*drivers(store)) as told:
        done = store.maintenance.checkpoint.run(mode)
    made = [(sql, is_held) for sql, is_held in told if "checkpoint" in sql]
    assert made
    assert set(made) == {("PRAGMA wal_checkpoint(PASSIVE)", True)}
    assert (done.applicable, done.busy) == (True, False)
    assert done.wal_bytes_after <= (5_000 if mode == "TRUNCATE" else done.wal_bytes_before)


def test_the_log_is_brought_in_at_the_pages_of_the_setting(store: StateStore, path: Path) -> None:
    """backends B-181."""
    with statements(*drivers(store)) as told:
        create(store, 200)
    made = [is_held for sql, is_held in told if "checkpoint" in sql]
    assert all(made)
    assert 20 <= len(made) <= 60
    assert pages_of(path) < 3 * PAGES  # the migration was one commit of more than 250


def test_a_log_is_due_from_its_page_on_and_again_after_it_has_started_anew(tmp_path: Path) -> None:
    """backends B-181: whoever wrote it."""
    path = tmp_path / "a.db"
    log = WriteAheadLog(path, 10)
    assert not log.is_due()
    with closing(sqlite3.connect(path, isolation_level=None)) as raw:
        raw.execute("PRAGMA journal_mode = WAL")
        raw.execute("PRAGMA wal_autocheckpoint = 0")
        raw.execute("CREATE TABLE t (x)")  # two pages: the first, and the table's
        for _ in range(7):
            raw.execute("INSERT INTO t VALUES (1)")
            assert not log.is_due()
        raw.execute("INSERT INTO t VALUES (1)")
        assert log.is_due()
        assert log.is_due()
        log.record_checkpoint(10)
        raw.execute("INSERT INTO t VALUES (1)")
        assert not log.is_due()
        raw.execute("INSERT INTO t VALUES (1)")
        assert log.is_due()
        raw.execute("PRAGMA wal_checkpoint")
        for _ in range(9):
            raw.execute("INSERT INTO t VALUES (1)")
            assert not log.is_due()
        raw.execute("INSERT INTO t VALUES (1)")
        assert log.is_due()
        assert not WriteAheadLog(path, 0).is_due()
    log.forget()


def test_a_checkpoint_that_another_writer_is_in_the_way_of_is_made_after_the_next_commit(
    store: StateStore, path: Path
) -> None:
    """backends B-181: the commit before it is kept all the same."""
    bring_in, tries = checkpoints.bring_in, []

    def in_between(*given: Any) -> None:
        tries.append(given)
        if len(tries) == 1:
            rival.execute("BEGIN IMMEDIATE")
        try:
            bring_in(*given)
        finally:
            if rival.in_transaction:
                rival.execute("ROLLBACK")

    with (
        closing(sqlite3.connect(path, isolation_level=None)) as rival,
        statements(*drivers(store)) as told,
        pytest.MonkeyPatch.context() as patched,
    ):
        patched.setattr(checkpoints, "bring_in", in_between)
        while not tries:
            create(store)
        assert not [sql for sql, _ in told if "checkpoint" in sql]
        stored = len(store.workflows.runs.list(limit=500))
        create(store)
        assert len(tries) == 2
        assert [sql for sql, _ in told if "checkpoint" in sql]
    assert len(store.workflows.runs.list(limit=500)) == stored + 1


def test_a_writer_that_stays_is_busy_and_not_a_checkpoint_beside_it(path: Path) -> None:
    """backends B-180."""
    with StateStore.open(path, settings=Settings(busy_timeout=0.05, retry_seconds=0)) as store:
        create(store)
        with closing(sqlite3.connect(path, isolation_level=None)) as rival:
            rival.execute("BEGIN IMMEDIATE")
            with pytest.raises(BackendBusy):
                store.maintenance.checkpoint.run()
            rival.execute("ROLLBACK")
        assert not store.maintenance.checkpoint.run().busy


@pytest.mark.parametrize("mode", ["FULL", "RESTART", "TRUNCATE"])
def test_a_reader_that_stays_is_told(store: StateStore, path: Path, mode: Any) -> None:
    """backends B-180: and the log is brought in once it has ended."""
    create(store)
    with closing(sqlite3.connect(path, isolation_level=None)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM workflow_runs").fetchone()
        create(store)
        assert store.maintenance.checkpoint.run(mode).busy
        reader.execute("ROLLBACK")
        assert not store.maintenance.checkpoint.run(mode).busy


def test_the_log_is_bounded_under_readers_that_overlap(store: StateStore, path: Path) -> None:
    """backends B-182: four threads read without a pause, and one writes."""
    stop = threading.Event()
    seen: list[Exception] = []

    def read() -> None:
        try:
            while not stop.is_set():
                with store.view() as view:
                    view.workflows.runs.list(limit=20)
        except Exception as error:  # noqa: BLE001
            seen.append(error)

    create(store, 20)
    readers = [threading.Thread(target=read) for _ in range(4)]
    for reader in readers:
        reader.start()
    try:
        create(store, 150)
    finally:
        stop.set()
        for reader in readers:
            reader.join()
    assert not seen
    assert pages_of(path) < 12 * PAGES


@pytest.mark.slow
def test_an_interruption_in_the_middle_leaves_the_next_writer_a_clean_connection(store: StateStore) -> None:
    """backends B-87, B-180."""
    copied: Callable[..., Any] = checkpoints._copy_pages

    def interrupted(*given: Any, **named: Any) -> Any:
        copied(*given, **named)
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(checkpoints, "_copy_pages", interrupted)
        with pytest.raises(KeyboardInterrupt):
            create(store, 200)
        with pytest.raises(KeyboardInterrupt):
            store.maintenance.checkpoint.run()
    before = len(store.workflows.runs.list(limit=500))
    create(store, 2)
    assert len(store.workflows.runs.list(limit=500)) == before + 2
    assert not store.maintenance.checkpoint.run().busy


@pytest.mark.slow
@pytest.mark.parametrize("options", [{"pool_size": 1, "max_overflow": 0}, {"poolclass": sa.NullPool}])
def test_the_log_of_a_callers_engine_is_brought_in(path: Path, options: dict[str, Any]) -> None:
    """backends B-181: also where its pool has one connection, which has its own setting again after each unit."""
    engine = sa.create_engine(f"sqlite:///{path}", **options)
    with StateStore.open(engine=engine, settings=Settings(wal_autocheckpoint=PAGES)) as store:
        create(store, 200)
        assert pages_of(path) < 3 * PAGES
        assert not store.maintenance.checkpoint.run().busy
        with engine.connect() as connection:
            assert connection.exec_driver_sql("PRAGMA wal_autocheckpoint").scalar() == 1000
    engine.dispose()


def opened_logs(path: Path) -> list[str]:
    """The logs of a file that this process has open, also those that are gone."""
    return [target for target in open_files.targets() if target.startswith(f"{path}-wal")]


@pytest.mark.parametrize("options", [{"pool_size": 1, "max_overflow": 0}, {"poolclass": sa.NullPool}])
def test_a_callers_engine_that_is_disposed_leaves_no_log_open(path: Path, options: dict[str, Any]) -> None:
    """backends B-181: whether before the store is closed or after, or never."""
    engine = sa.create_engine(f"sqlite:///{path}", **options)
    store = StateStore.open(engine=engine)
    create(store)
    engine.dispose()
    assert opened_logs(path) == []
    create(store)
    store.close()
    engine.dispose()
    assert opened_logs(path) == []


def test_a_unit_that_outlives_its_store_leaves_no_log_open(path: Path) -> None:
    """backends B-181."""
    store = StateStore.open(path, settings=Settings(queue_timeout=0.01))
    create(store)
    checkout = store.backend.acquire(Mode.WRITE)
    closing_thread = threading.Thread(target=store.close)
    closing_thread.start()
    closing_thread.join()
    store.backend.commit(checkout)
    store.backend.release(checkout)
    assert opened_logs(path) == []


def test_an_engine_that_always_gives_one_connection_works(path: Path) -> None:
    """backends B-181: it keeps its connection, and its log grows until others bring it in."""
    only = sqlite3.connect(path, check_same_thread=False)
    engine = sa.create_engine("sqlite://", creator=lambda: only, poolclass=sa.StaticPool)
    engine.url = sa.make_url(f"sqlite:///{path}")
    with StateStore.open(engine=engine, settings=Settings(wal_autocheckpoint=PAGES)) as store:
        create(store, 100)
        assert len(store.workflows.runs.list(limit=200)) == 100
    only.close()


def test_closing_the_last_connection_brings_the_log_in(path: Path) -> None:
    """backends B-180: under a lock of the whole file, so nobody commits meanwhile."""
    with StateStore.open(path) as store:
        create(store)
        other = sqlite3.connect(path)
        other.execute("SELECT count(*) FROM workflow_runs").fetchone()
    assert Path(f"{path}-wal").stat().st_size > 0
    other.close()
    assert not Path(f"{path}-wal").exists()


def test_writers_wait_for_readers_only_where_a_log_has_grown_on(tmp_path: Path) -> None:
    """backends B-182: a hundredth of a second for each usual length of it."""

    class Reader:
        asked = 0

        def execute(self, _: str) -> Any:
            self.asked += 1
            return self

        def fetchone(self) -> tuple[int, int, int]:
            return 0, 300, 200

    log, reader = WriteAheadLog(tmp_path / "none", 100), Reader()
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as writer:
        checkpoints.bring_in(log, writer, reader)
        assert reader.asked == 1
        began = time.monotonic()
        checkpoints.bring_in(log, writer, reader)
        assert time.monotonic() - began >= 0.03
    assert reader.asked > 2
