"""Units of one process that wait for the same SQLite file are committed together."""

from __future__ import annotations

import asyncio
import gc
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from functools import partial
from types import FrameType
from typing import Any

import pytest
import sqlalchemy as sa
from support.crowd import Crowd, failing, line_of, put, wait_for
from support.scratch import NOTES, scratch_tables

from lastlight_state import AsyncStateStore, BackendBusy, BackendUnavailable, StateStore, Transaction
from lastlight_state.backends import waiting
from lastlight_state.backends.base import Options
from lastlight_state.backends.sqlite import SqliteBackend, files
from lastlight_state.backends.sqlite.file_connections import SHARING_WRITERS
from lastlight_state.backends.waiting import Patience
from lastlight_state.db.rows.statements import statement_of
from lastlight_state.db.units.unit import Unit
from lastlight_state.errors import BackendError, Conflict
from lastlight_state.testing import Database

ORPHAN = statement_of(
    sa.insert(NOTES).values(thing_id=sa.literal_column("'nobody'"), at=sa.literal_column("'2026-02-03T00:00:00.000Z'"))
)
NAME: ContextVar[str] = ContextVar("NAME")
Call = Callable[[], object]


@pytest.fixture
def shared(sqlite_database: Database) -> Iterator[StateStore]:
    """Give a store on a file, with tables of its own."""
    with sqlite_database.open(durability="full") as store, scratch_tables(store):
        yield store


@pytest.fixture
def crowd(shared: StateStore, monkeypatch: pytest.MonkeyPatch) -> Crowd:
    return Crowd(shared, monkeypatch)


def writes(store: StateStore, *names: str) -> list[Callable[[], object]]:
    """Return one call for each of these ids."""
    return [partial(store._scope.write, put(name)) for name in names]


def stored(database: Database) -> list[str]:
    """Return the ids that another connection sees, in the order in which they were written."""
    return [name for (name,) in database.raw().execute("SELECT id FROM scratch_things ORDER BY rowid")]


def test_64_units_that_wait_share_one_commit(crowd: Crowd, sqlite_database: Database) -> None:
    """backends GC-1, B-170: of a thread each, with ``durability="full"``; each caller gets its own result."""
    names = [f"{number:02}" for number in range(64)]
    assert crowd.calls(writes(crowd.store, *names)) == names
    assert crowd.commits == 1
    assert stored(sqlite_database) == names


def test_a_65th_unit_waits_for_the_next_commit(crowd: Crowd) -> None:
    """backends B-170: a group has 64 units at most."""
    crowd.calls(writes(crowd.store, *map(str, range(65))))
    assert crowd.commits == 2


def test_a_group_ends_after_its_time(crowd: Crowd, monkeypatch: pytest.MonkeyPatch) -> None:
    """backends B-170: the first in line does not pay for the crowd."""
    monkeypatch.setattr("lastlight_state.backends.sqlite.group_commit.MOST_SECONDS", 0.0)
    crowd.calls(writes(crowd.store, *"abc"))
    assert crowd.commits == 3


def test_units_of_one_statement_share_a_commit_too(crowd: Crowd, sqlite_database: Database) -> None:
    """backends B-170: the first of them begins a transaction for all."""
    scope = crowd.store._scope
    assert crowd.calls([partial(scope.one_statement, put(name)) for name in "abc"]) == [*"abc"]
    assert (crowd.commits, stored(sqlite_database)) == (1, [*"abc"])


def test_a_unit_that_nobody_waits_behind_is_as_it_was(crowd: Crowd) -> None:
    """backends B-36, B-170: one statement alone begins no transaction, and a transaction has no savepoint."""
    crowd.calls([])
    crowd.store._scope.one_statement(put("a"))
    crowd.store._scope.write(put("b"))
    assert [text.split()[0] for text in crowd.sent] == ["INSERT", "BEGIN", "INSERT", "COMMIT"]


def test_a_unit_that_fails_keeps_no_other_from_being_stored(crowd: Crowd, sqlite_database: Database) -> None:
    """backends GC-3: it is undone alone, and made again in its own turn, which tells its caller what is wrong."""
    scope = crowd.store._scope
    works = [put("a"), failing("b", 0), put("c"), failing("d", 2), put("e")]
    a, b, c, d, e = crowd.calls([partial(scope.write, work) for work in works])
    assert (a, type(b), c, type(d), e) == ("a", Conflict, "c", ZeroDivisionError, "e")
    assert stored(sqlite_database) == ["a", "c", "e"]


def ending(name: str) -> Callable[[Unit], str]:
    """End the whole transaction at the first attempt, as a full disk does."""
    attempts = iter((True, False))

    def work(unit: Unit) -> str:
        if next(attempts):
            unit.driver.execute("ROLLBACK")
            raise BackendUnavailable("the disk is full")
        return put(name)(unit)

    return work


def test_a_unit_that_ends_the_transaction_harms_no_other(crowd: Crowd, sqlite_database: Database) -> None:
    """backends GC-3: all of the group are made again, each alone."""
    scope = crowd.store._scope
    calls = [partial(scope.write, work) for work in (put("a"), put("b"), ending("c"), put("d"))]
    assert crowd.calls(calls) == [*"abcd"]
    assert sorted(stored(sqlite_database)) == [*"abcd"]
    assert crowd.store.metrics.retries == 0


def test_a_commit_that_fails_is_only_its_own_units_failure(crowd: Crowd, sqlite_database: Database) -> None:
    """backends GC-3: a reference that is checked at the commit makes the group's commit fail, and not its members."""

    def orphan(unit: Unit) -> None:
        unit.driver.execute("PRAGMA defer_foreign_keys = ON")
        unit.change(ORPHAN)

    refused: Call = partial(crowd.store._scope.write, orphan)
    calls = [*writes(crowd.store, "a"), refused, *writes(crowd.store, "b")]
    a, failed, b = crowd.calls(calls)
    assert (a, type(failed), b) == ("a", Conflict, "b")
    assert sorted(stored(sqlite_database)) == ["a", "b"]


@pytest.mark.parametrize("is_committed", [False, True])
@pytest.mark.parametrize("repeatable", [False, True])
def test_the_outcome_of_a_commit_that_was_cut_off_is_unknown_to_each(
    crowd: Crowd, sqlite_database: Database, monkeypatch: pytest.MonkeyPatch, *, is_committed: bool, repeatable: bool
) -> None:
    """backends B-51, GC-5: those that a second run finds done are repeated."""
    backend: Any = crowd.store.backend
    commit = backend._commit

    def cut_off(checkout: Any) -> None:
        if is_committed or not checkout.groupable:
            commit(checkout)
        if checkout.groupable:
            monkeypatch.setattr(backend, "_commit", commit)
            raise KeyboardInterrupt

    ensure = statement_of(sa.text("INSERT INTO scratch_things (id, at) VALUES ('b', '') ON CONFLICT DO NOTHING"))
    scope = crowd.store._scope
    other = partial(scope.write, lambda unit: unit.change(ensure), repeatable=repeatable)
    first, second = crowd.calls(
        [*writes(crowd.store, "a"), other], lambda: monkeypatch.setattr(backend, "_commit", cut_off)
    )
    assert isinstance(first, KeyboardInterrupt)
    if repeatable:
        assert second == (0 if is_committed else 1)
    else:
        assert isinstance(second, BackendUnavailable)
        assert second.outcome == "unknown"
    assert stored(sqlite_database) == [*("a" if is_committed else ""), *("b" if is_committed or repeatable else "")]


def test_an_interrupt_in_one_thread_leaves_the_others_unharmed(crowd: Crowd, sqlite_database: Database) -> None:
    """backends GC-5: what ends the thread that makes the group ends its own call alone."""
    raises = iter((KeyboardInterrupt(), None))

    def interrupted(unit: Unit) -> str:
        error = next(raises)
        if error is not None:
            raise error
        return put("b")(unit)

    second: Call = partial(crowd.store._scope.write, interrupted)
    calls = [*writes(crowd.store, "a"), second, *writes(crowd.store, "c")]
    a, b, c = crowd.calls(calls)
    assert isinstance(a, KeyboardInterrupt)
    assert (b, c) == ("b", "c")
    assert stored(sqlite_database) == ["b", "c"]


class Interrupted(Exception):
    pass


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Let `SIGUSR1` raise `Interrupted` in the main thread, as Ctrl-C would."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise Interrupted

    before = signal.signal(signal.SIGUSR1, interrupt)
    yield
    signal.signal(signal.SIGUSR1, before)


@pytest.mark.usefixtures("interruptible")
def test_who_is_interrupted_while_another_makes_its_unit_harms_nobody(crowd: Crowd, sqlite_database: Database) -> None:
    """backends GC-5, B-87: the main thread goes on at once, and those of the group are stored."""
    scope, main = crowd.store._scope, threading.main_thread()
    held, release, left = threading.Event(), threading.Event(), threading.Event()
    threads: list[threading.Thread] = []

    def begin(work: Callable[[], object]) -> None:
        threads.append(threading.Thread(target=work))
        threads[-1].start()

    def hold() -> None:
        with crowd.store.transaction():
            held.set()
            release.wait(30)

    def interrupting(unit: Unit) -> str:
        signal.pthread_kill(main.ident or 0, signal.SIGUSR1)
        assert left.wait(30)
        return put("b")(unit)

    def last() -> None:
        wait_for(crowd.store, 2)
        begin(writes(crowd.store, "c")[0])
        wait_for(crowd.store, 3)
        release.set()

    begin(hold)
    assert held.wait(30)
    begin(writes(crowd.store, "a")[0])
    wait_for(crowd.store, 1)
    begin(last)
    with pytest.raises(Interrupted):
        scope.write(interrupting)
    left.set()
    assert scope.write(put("d")) == "d"
    for thread in threads:
        thread.join(30)
    assert sorted(stored(sqlite_database)) == ["a", "b", "c", "d"]


def test_a_call_that_is_cancelled_while_it_waits_is_not_made(crowd: Crowd, sqlite_database: Database) -> None:
    """backends GC-5, B-74: the others of the group are."""
    impatient = Patience()

    def cancelled() -> object:
        waiting.lend(impatient)
        return crowd.store._scope.write(put("b"))

    def cancel() -> None:
        impatient.end()
        while len(line_of(crowd.store).waiting_turns()) > 2:
            time.sleep(0.0005)

    a, b, c = crowd.calls([*writes(crowd.store, "a"), cancelled, *writes(crowd.store, "c")], cancel)
    assert (a, type(b), c) == ("a", BackendBusy, "c")
    assert stored(sqlite_database) == ["a", "c"]


def test_the_outcome_of_a_call_that_somebody_makes_already_is_waited_for(
    crowd: Crowd, sqlite_database: Database
) -> None:
    """backends GC-5, B-71: a cancellation that comes meanwhile does not leave it in doubt."""
    impatient = Patience()

    def cancelled() -> object:
        waiting.lend(impatient)
        return crowd.store._scope.write(cancelling)

    def cancelling(unit: Unit) -> str:
        impatient.end()
        return put("b")(unit)

    assert crowd.calls([*writes(crowd.store, "a"), cancelled]) == ["a", "b"]
    assert stored(sqlite_database) == ["a", "b"]


def test_a_reader_sees_a_unit_only_after_the_commit_of_its_group(crowd: Crowd, sqlite_database: Database) -> None:
    """backends GC-6: nor is any call of the group over before."""
    seen: list[object] = []

    def looking(unit: Unit) -> str:
        seen.append(stored(sqlite_database))
        seen.append([thread.is_alive() for thread in threading.enumerate() if thread.name == "first"])
        return put("c")(unit)

    def first() -> object:
        threading.current_thread().name = "first"
        return crowd.store._scope.write(put("a"))

    last: Call = partial(crowd.store._scope.write, looking)
    calls = [first, *writes(crowd.store, "b"), last]
    assert crowd.calls(calls) == [*"abc"]
    assert seen == [[], [True]]
    assert stored(sqlite_database) == [*"abc"]


def test_hooks_of_each_unit_run_in_its_own_thread_after_the_commit(crowd: Crowd, sqlite_database: Database) -> None:
    """backends B-47, B-170: in order, and none of a unit that failed. Whoever waits for commits is told."""
    told: list[tuple[int, str, list[str]]] = []
    woken: list[int] = []

    def hooked(name: str, *, fails: bool = False) -> object:
        me = threading.get_ident()

        def hook(text: str) -> None:
            told.append((threading.get_ident() - me, text, stored(sqlite_database)))

        def work(unit: Unit) -> None:
            unit.after_commit(partial(hook, f"{name}1"))
            unit.after_commit(partial(hook, f"{name}2"))
            (failing(name, 2) if fails else put(name))(unit)

        return crowd.store._scope.write(work)

    crowd.store._scope.after_commits.append(lambda: woken.append(1))
    crowd.calls([partial(hooked, "a"), partial(hooked, "b"), partial(hooked, "c", fails=True)])
    assert sorted(hook for _, hook, _ in told) == ["a1", "a2", "b1", "b2"]
    for name in "ab":
        assert [hook for _, hook, _ in told if hook[0] == name] == [f"{name}1", f"{name}2"]
    assert all(others == 0 and seen == ["a", "b"] for others, _, seen in told)
    assert len(woken) == 3  # with the transaction that all waited for


def test_a_unit_is_made_in_the_context_of_its_caller(crowd: Crowd) -> None:
    """backends B-170: whichever thread makes it."""

    def named(name: str) -> object:
        NAME.set(name)
        return crowd.store._scope.write(lambda _: NAME.get())

    assert crowd.calls([partial(named, "first"), partial(named, "second")]) == ["first", "second"]


@pytest.mark.parametrize("is_block", [True, False])
def test_a_block_is_alone_and_nobody_overtakes_it(crowd: Crowd, sqlite_database: Database, *, is_block: bool) -> None:
    """backends B-22, B-171: a group ends before the first in line that must be alone."""
    store = crowd.store

    def insert(tx: Transaction) -> str:
        tx.connection.exec_driver_sql("INSERT INTO scratch_things (id, at) VALUES ('block', '')")
        return "block"

    def block() -> str:
        with store.transaction() as tx:
            return insert(tx)

    alone: Call = block if is_block else partial(store.run, insert)
    calls = [*writes(store, "a", "b"), alone, *writes(store, "c", "d")]
    assert crowd.calls(calls) == ["a", "b", "block", "c", "d"]
    assert stored(sqlite_database) == ["a", "b", "block", "c", "d"]
    assert crowd.commits == 3


def test_what_no_transaction_may_surround_is_alone(crowd: Crowd) -> None:
    """backends B-171: a checkpoint and a vacuum between others that write."""
    store = crowd.store
    calls = [*writes(store, "a"), store.maintenance.checkpoint.run, store.maintenance.vacuum.run, *writes(store, "b")]
    a, checkpoint, vacuum, b = crowd.calls(calls)
    assert (a, checkpoint.applicable, b) == ("a", True, "b")
    assert vacuum.bytes_after > 0


def test_the_main_thread_takes_nobody_along(crowd: Crowd) -> None:
    """backends B-171: a signal's handler raises there, and would raise in the middle of somebody else's unit."""
    made: list[int] = []

    def note(unit: Unit) -> None:
        made.append(threading.get_ident())

    def main(unit: Unit) -> None:
        threads.append(threading.Thread(target=crowd.store._scope.write, args=(note,)))
        threads[0].start()
        wait_for(crowd.store, 1)

    threads: list[threading.Thread] = []
    crowd.store._scope.write(main)
    threads[0].join()
    assert made == [threads[0].ident]


def test_stores_of_others_engines_and_memory_commit_alone(sqlite_database: Database) -> None:
    """backends B-171: a caller's engine may look at each transaction, and a mailbox keeps no connection."""
    assert not SqliteBackend(sqlite_database.url, Options(across_mounts=True)).shares_commits
    engine = sa.create_engine(f"sqlite:///{sqlite_database.url}")
    with sqlite_database.open(engine=engine) as hosted, StateStore.open("sqlite:///:memory:") as memory:
        assert not hosted.backend.shares_commits
        assert not memory.backend.shares_commits
    engine.dispose()


def test_writes_of_coroutines_share_a_commit(crowd: Crowd, monkeypatch: pytest.MonkeyPatch) -> None:
    """backends GC-1, B-172: with ``durability="full"``, up to 32 at a time."""
    store = AsyncStateStore(crowd.store)
    lane = store._lanes.writers

    async def all_of_them() -> list[object]:
        calls = [asyncio.ensure_future(lane.run(call)) for call in writes(crowd.store, *map(str, range(32)))]
        await asyncio.to_thread(wait_for, crowd.store, 32)
        release.set()
        return list(await asyncio.gather(*calls))

    def hold() -> None:
        with crowd.store.transaction():
            held.set()
            release.wait(30)
        crowd.store.backend._connections._writer.set_trace_callback(crowd.sent.append)  # type: ignore[attr-defined]

    held, release = threading.Event(), threading.Event()
    crowd.calls([])
    holder = threading.Thread(target=hold)
    holder.start()
    held.wait(30)
    assert sorted(map(str, asyncio.run(all_of_them()))) == sorted(map(str, range(32)))
    holder.join()
    assert crowd.commits == 2  # with that of the transaction that all waited for


def test_where_no_commit_waits_for_the_disk_one_thread_writes_for_coroutines(sqlite_database: Database) -> None:
    """backends B-172: to hand a call to another thread costs more than such a commit."""
    with sqlite_database.open(durability="normal") as store:
        assert AsyncStateStore(store)._lanes.writers._most == 1


def test_on_a_network_file_system_writes_of_coroutines_share_commits(
    sqlite_database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """backends B-172: each commit waits for the disk there, whatever the setting is."""
    monkeypatch.setattr(files, "file_system", lambda _: "nfs4")
    with sqlite_database.open(durability="normal") as store:
        assert AsyncStateStore(store)._lanes.writers._most == SHARING_WRITERS


def test_a_call_leaves_nothing_to_the_garbage_collector(shared: StateStore) -> None:
    """backends B-170: a cycle for each call cost more than its commit did, and kept its connection in use."""
    gc.disable()
    try:
        for call in writes(shared, *"abc"):
            call()
        left = [found for found in gc.get_objects() if type(found) is Unit]  # not that of an open block
        assert [call for call in left if call.backend is shared.backend] == []
    finally:
        gc.enable()


def test_a_group_that_takes_along_what_ended_the_transaction_unseen_is_made_again(
    crowd: Crowd, sqlite_database: Database
) -> None:
    """backends GC-3: a unit that keeps such an error to itself harms no other either."""
    attempts = iter((True, False))

    def silent(unit: Unit) -> str:
        if next(attempts):
            unit.driver.execute("ROLLBACK")
            return "lost"
        return put("b")(unit)

    second: Call = partial(crowd.store._scope.write, silent)
    calls = [*writes(crowd.store, "a"), second, *writes(crowd.store, "c")]
    assert crowd.calls(calls) == [*"abc"]
    assert sorted(stored(sqlite_database)) == [*"abc"]


def test_a_leader_without_its_transaction_takes_nobody_along(crowd: Crowd, sqlite_database: Database) -> None:
    """backends GC-3: a savepoint outside a transaction is one, so each unit would be stored before it is made again."""
    made: list[str] = []

    def silent(unit: Unit) -> None:
        unit.driver.execute("ROLLBACK")

    def counted(unit: Unit) -> str:
        made.append("b")
        return put("b")(unit)

    calls: list[Call] = [partial(crowd.store._scope.write, work) for work in (silent, counted)]
    failed, second = crowd.calls(calls)
    assert (type(failed), second, made) == (BackendError, "b", ["b"])
    assert stored(sqlite_database) == ["b"]


def test_hooks_of_an_attempt_that_was_undone_in_a_group_never_run(
    crowd: Crowd, monkeypatch: pytest.MonkeyPatch
) -> None:
    """backends B-47, GC-3: not even where the unit's own commit leaves its outcome unknown."""
    backend: Any = crowd.store.backend
    commit = backend._commit
    told: list[str] = []
    attempts = iter((True, False, False))

    def failing_once(unit: Unit) -> str:
        if next(attempts):
            unit.after_commit(lambda: told.append("undone"))
            raise ZeroDivisionError
        return "b"

    def lost(checkout: Any) -> None:
        commit(checkout)
        if checkout.thread == second_thread[0]:
            monkeypatch.setattr(backend, "_commit", commit)
            raise BackendUnavailable("the answer was lost", outcome="unknown", repeats=1)

    def second() -> object:
        second_thread.append(threading.get_ident())
        return crowd.store._scope.write(failing_once, repeatable=True)

    second_thread: list[int] = []
    calls = [*writes(crowd.store, "a"), second]
    assert crowd.calls(calls, lambda: monkeypatch.setattr(backend, "_commit", lost)) == ["a", "b"]
    assert told == []
