"""The writer while the database is away, when processes die, and after a fork."""

from __future__ import annotations

import os
import sys
import threading
from itertools import count
from pathlib import Path

import pytest
from support.answers import dropped_answers
from support.faults.interrupts import Interrupted, raised_at
from support.journal import queued_writer
from support.preloaded import run_program
from support.workflows.steps import all_pages, started

from lastlight_state import Settings, StateStore
from lastlight_state.errors import BackendBusy, BackendUnavailable, MisuseError, StoreClosed, UnsavedEvents
from lastlight_state.journal import LineFileMirror, NewEvent, WriterOptions
from lastlight_state.journal.writer import registry
from lastlight_state.testing import Database

IMPATIENT = Settings(lock_timeout=0.02, busy_timeout=0.001, retry_seconds=0)


def block(database: Database) -> object:
    """Keep everybody from appending; the connection ends it with ``ROLLBACK``."""
    holder = database.raw()
    holder.execute("BEGIN" if database.name == "postgresql" else "BEGIN IMMEDIATE")
    if database.name == "postgresql":
        holder.execute("LOCK TABLE run_events IN ACCESS EXCLUSIVE MODE")
    return holder


def test_events_wait_while_the_database_is_busy_and_are_stored_in_order_afterwards(database: Database) -> None:
    """journal W-8, W-9: a flush says so as soon as one whole attempt has failed."""
    store = database.open(settings=IMPATIENT)
    run_id = started(store).id
    with store.journal.writer(WriterOptions(max_batch=3)) as writer:
        holder = block(database)
        pending = [writer.append(run_id, "a", {"i": i}) for i in range(7)]
        for _ in range(2):
            with pytest.raises(UnsavedEvents) as raised:
                writer.flush()
            assert [event.payload["i"] for event in raised.value.waiting] == list(range(7))
            assert isinstance(raised.value.__cause__, BackendBusy)
        with pytest.raises(BackendBusy):
            pending[0].wait(0.01)
        assert writer.stats().queued == 7
        holder.execute("ROLLBACK")  # type: ignore[attr-defined]
        writer.flush()
        assert [one.seq for one in pending] == list(range(7))
    stored = store.journal.events.list(run_id)
    assert [event.payload["i"] for event in stored] == list(range(7))


def test_a_flush_that_ends_before_the_database_answers_says_so(database: Database) -> None:
    """journal W-9: nothing has failed yet, and what waits is stored later."""
    store = database.open()
    run_id = started(store).id
    with store.journal.writer() as writer:
        holder = block(database)
        writer.append(run_id, "a")
        with pytest.raises(UnsavedEvents) as raised:
            writer.flush(0.01)
        holder.execute("ROLLBACK")  # type: ignore[attr-defined]
    assert "not stored in time" in str(raised.value.__cause__)
    assert [event.type for event in raised.value.waiting] == ["a"]
    assert store.journal.events.count(run_id) == 1


def test_a_writer_that_is_closed_hands_back_what_it_could_not_store(database: Database) -> None:
    """journal W-9, W-12: and stores it never again."""
    store = database.open(settings=IMPATIENT)
    run_id = started(store).id
    writer = store.journal.writer()
    holder = block(database)
    pending = writer.append(run_id, "a")
    with pytest.raises(UnsavedEvents) as raised:
        writer.close()
    assert [event.event_id for event in raised.value.waiting] == [pending.event_id]
    holder.execute("ROLLBACK")  # type: ignore[attr-defined]
    with pytest.raises(StoreClosed):
        pending.wait()
    writer.close()
    assert (writer.stats().queued, writer.stats().queued_bytes) == (0, 0)
    assert store.journal.events.count(run_id) == 0


def test_events_wait_while_the_disk_is_full(sqlite_database: Database) -> None:
    """journal W-8, W-9: none is given up, and all are stored once there is room."""
    store = sqlite_database.open(settings=IMPATIENT)
    run_id, raw = started(store).id, sqlite_database.raw()
    with store.transaction() as tx:
        present = tx.connection.exec_driver_sql("PRAGMA page_count").scalar_one()
        tx.connection.exec_driver_sql(f"PRAGMA max_page_count = {present}")
    with store.journal.writer() as writer:
        for i in range(4):
            writer.append(run_id, "a", {"i": i, "text": "x" * 50_000})
        with pytest.raises(UnsavedEvents) as raised:
            writer.flush()
        assert isinstance(raised.value.__cause__, BackendUnavailable)
        assert ([event.payload["i"] for event in raised.value.waiting], raised.value.failures) == ([0, 1, 2, 3], ())
        with store.transaction() as tx:
            tx.connection.exec_driver_sql("PRAGMA max_page_count = 100000")
        writer.flush()
        assert (writer.stats().stored, writer.stats().failed) == (4, 0)
    assert raw.execute("SELECT count(*) FROM run_events").fetchone() == (4,)


def test_the_pauses_between_attempts_double_up_to_the_longest(database: Database) -> None:
    """journal W-8: and the first attempt that succeeds ends them."""
    store = database.open(settings=IMPATIENT)
    run_id = started(store).id
    core = store.journal.writer()._core
    holder = block(database)
    core.queue.offer(core.entry(run_id, NewEvent("a")))
    pauses = []
    for _ in range(8):
        core.saver.run_here()
        pauses.append(core.saver._pause)
    assert pauses == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0]
    holder.execute("ROLLBACK")  # type: ignore[attr-defined]
    core.saver.run_here()
    assert (core.saver._pause, core.saver.stored) == (0.0, 1)


@pytest.mark.parametrize("many", [1, 5])
def test_a_batch_whose_commit_was_not_answered_is_stored_once(postgres_database: Database, many: int) -> None:
    """journal W-2, T-8: its events are found by their keys, and mirrored."""
    with dropped_answers(postgres_database.url) as (url, drop), StateStore.open(url) as far:
        run_id = started(far).id
        mirrored: list[int] = []
        with far.journal.writer(mirrors=[lambda events: mirrored.extend(event.seq for event in events)]) as writer:
            drop("COMMIT\0")
            for i in range(many):
                writer.append(run_id, "a", {"i": i}, event_id=f"k{i}" if i % 2 else None)
            writer.flush()
            assert far.metrics.retries == 1
        assert [event.payload["i"] for event in far.journal.events.list(run_id)] == list(range(many))
        assert mirrored == list(range(many))


def test_a_killed_writer_leaves_a_beginning_of_each_run(fresh_database: Database, tmp_path: Path) -> None:
    """journal W-13, W-17, W-18: also between the commit and the lines of its log file."""
    with fresh_database.open() as store:
        ended, first, second = (started(store).id for _ in range(3))
    command = [sys.executable, "-W", "error", queued_writer.__file__, fresh_database.url, str(tmp_path)]
    finished = run_program([*command, ended, first, second], capture_output=True, text=True, check=False)
    assert (finished.returncode, finished.stderr, finished.stdout) == (-9, "", "finished\n")
    with fresh_database.open() as store:
        events = store.journal.events
        assert [event.payload["i"] for event in events.list(ended)] == list(range(100))
        mirror = LineFileMirror(events, tmp_path)
        for run_id in (first, second):
            stored = all_pages(events.list, run_id=run_id)
            assert [event.payload["i"] for event in stored] == list(range(len(stored)))
            assert 0 < len(queued_writer.lines_of(mirror.path_of(run_id))) < len(stored)
            events.append(run_id, "direct")
            mirror.catch_up(run_id)
            assert queued_writer.lines_of(mirror.path_of(run_id)) == list(range(len(stored) + 1))


def test_a_writer_is_its_parents_after_a_fork(fresh_database: Database) -> None:
    """journal W-15: the child's copy refuses, and the parent's goes on."""
    with fresh_database.open() as store:
        run_id = started(store).id
        with store.journal.writer(WriterOptions(linger=60)) as writer:
            pending = writer.append(run_id, "a")
            child = os.fork()
            if not child:
                calls = (lambda: writer.append(run_id, "b"), writer.flush, pending.wait)
                refused = 0
                for call in calls:
                    try:
                        call()
                    except MisuseError:
                        refused += 1
                writer.close()
                os._exit(refused)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3
            writer.append(run_id, "b")
            writer.flush()
        assert [event.type for event in store.journal.events.list(run_id)] == ["a", "b"]


def test_an_open_writer_is_flushed_when_the_interpreter_ends(sqlite_database: Database) -> None:
    """journal W-12."""
    with sqlite_database.open() as store:
        run_id = started(store).id
    program = (
        "import sys\nfrom lastlight_state import StateStore\nfrom lastlight_state.journal import WriterOptions\n"
        "writer = StateStore.open(sys.argv[1]).journal.writer(WriterOptions(linger=60))\n"
        "for i in range(9): writer.append(sys.argv[2], 'a')\n"
    )
    run_program([sys.executable, "-c", program, sqlite_database.url, run_id], check=True, timeout=30)
    assert sqlite_database.open().journal.events.count(run_id) == 9


@pytest.mark.logs("the interpreter ends with 2 events queued that are not stored")
def test_what_the_end_of_the_interpreter_cannot_store_is_told(
    sqlite_database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """journal W-12."""
    monkeypatch.setattr(registry, "EXIT_SECONDS", 0.01)
    store = sqlite_database.open(settings=Settings(busy_timeout=0.01, retry_seconds=0.01))
    run_id = started(store).id
    writer = store.journal.writer(WriterOptions(linger=60))
    with sqlite_database.open().transaction():
        for _ in range(2):
            writer.append(run_id, "a")
        registry._flush_all()
    writer.close()
    assert store.journal.events.count(run_id) == 2


@pytest.mark.logs("the interpreter ends with 1 events queued")
def test_the_end_of_the_interpreter_stores_without_a_thread_what_it_can(
    sqlite_database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """journal W-12: no thread begins there any more. It ends at the first failure, and a later end goes on from it."""
    monkeypatch.setattr(registry, "EXIT_SECONDS", 0.01)
    store = sqlite_database.open(settings=IMPATIENT)
    run_id = started(store).id
    writer = store.journal.writer(WriterOptions(max_batch=2))
    with monkeypatch.context() as ending:
        ending.setattr(threading.Thread, "start", _no_threads)
        with sqlite_database.open().transaction():
            writer.append(run_id, "a")
            registry._flush_all()
        assert writer.stats().queued == 1
        for _ in range(4):
            writer.append(run_id, "a")
        registry._flush_all()
        assert (writer.stats().queued, writer.stats().stored) == (0, 5)
    assert writer.append(run_id, "a").wait(30) == 5
    writer.close()


def _no_threads(thread: threading.Thread) -> None:
    raise RuntimeError("can't create new thread at interpreter shutdown")


EVERY = [pytest.param(5, id="some lines"), pytest.param(1, id="lines", marks=pytest.mark.soak)]


@pytest.mark.parametrize("step", EVERY)
def test_a_writer_works_after_an_exception_at_any_line(sqlite_database: Database, step: int) -> None:
    """journal W-13, backends B-87: nothing is lost that was queued, nothing doubled, and nobody waits for ever."""
    store = sqlite_database.open()
    run_id = started(store).id
    writer = store.journal.writer()
    for number in count(1, step):

        def work(number: int = number) -> None:
            writer.append(run_id, "a", {"i": number})
            writer.flush()

        error = raised_at(number, work)
        assert error is None or isinstance(error, Interrupted)
        writer.append(run_id, "after").wait(30)
        writer.flush(timeout=30)
        if error is None:
            break
    assert number > 50
    writer.close()
    found = [event.payload["i"] for event in all_pages(store.journal.events.list, run_id=run_id) if event.payload]
    assert found == sorted(set(found))
