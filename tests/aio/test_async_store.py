"""`AsyncStateStore`: many tasks, few threads, no write left in doubt."""

from __future__ import annotations

import asyncio
import gc
import os
import threading
import time
import weakref
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from support import between
from support.garbage import collect

from lastlight_state import (
    AsyncStateStore,
    BackendUnavailable,
    ClaimLost,
    MisuseError,
    NestedTransaction,
    NotFound,
    ReadOnlyTransaction,
    Settings,
    StateStore,
    StoreClosed,
    Transaction,
    View,
)
from lastlight_state.aio import lanes
from lastlight_state.aio.lanes import Lane
from lastlight_state.testing import Database
from lastlight_state.workflows import PhaseEntry, Trigger

TRIGGER = Trigger("t-1", type="api")


async def _new_run(store: AsyncStateStore) -> str:
    return (await store.workflows.runs.create("triage", trigger=TRIGGER, phase="start")).id


def test_a_store_opened_in_one_loop_serves_another(every_backend: StateStore) -> None:
    """backends B-72: no event-loop affinity."""
    store = AsyncStateStore(every_backend)
    run_id = asyncio.run(_new_run(store))
    assert asyncio.run(store.workflows.runs.get(run_id)).id == run_id


def test_open_and_close_work_from_a_coroutine(database: Database) -> None:
    async def work() -> str:
        async with await AsyncStateStore.open(database.url, state_dir=database.state_dir) as store:
            return await _new_run(store)

    run_id = asyncio.run(work())
    assert database.open().workflows.runs.get(run_id).status == "running"


def test_many_tasks_lose_no_write(every_backend: StateStore) -> None:
    async def work() -> str:
        store = AsyncStateStore(every_backend)
        run_id = await _new_run(store)
        await asyncio.gather(*(store.workflows.runs.merge_scratch(run_id, {f"k{i}": i}) for i in range(64)))
        return run_id

    run_id = asyncio.run(work())
    assert every_backend.workflows.runs.get(run_id).scratch == {f"k{i}": i for i in range(64)}


def test_a_cancelled_write_is_known_before_the_cancellation_is_raised(every_backend: StateStore) -> None:
    """backends B-71, workflows case 65: a write under way is committed when CancelledError arrives."""
    under_way, go_on = threading.Event(), threading.Event()

    def write(tx: Transaction) -> None:
        under_way.set()
        assert go_on.wait(30)
        tx.workflows.runs.create("written", trigger=TRIGGER, phase="start")

    async def work() -> None:
        store = AsyncStateStore(every_backend)
        task = asyncio.create_task(store.run(write))
        await asyncio.to_thread(under_way.wait, 30)
        task.cancel()
        await asyncio.sleep(0)
        assert not task.done()
        go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert [run.workflow_name for run in every_backend.workflows.runs.list()] == ["written"]

    asyncio.run(work())


def test_a_call_that_no_thread_has_begun_is_cancelled_at_once_and_never_made(every_backend: StateStore) -> None:
    """backends B-74."""
    go_on = threading.Event()

    async def work() -> None:
        store = AsyncStateStore(every_backend)
        writers = every_backend.settings.pool_size
        busy = [asyncio.create_task(store.run(lambda _: go_on.wait(30))) for _ in range(writers)]
        await asyncio.sleep(0)
        queued = asyncio.create_task(store.workflows.runs.create("never", trigger=TRIGGER, phase="start"))
        await asyncio.sleep(0)
        queued.cancel()
        await asyncio.sleep(0)
        assert queued.cancelled()
        go_on.set()
        await asyncio.gather(*busy)
        await _new_run(store)
        assert not store._lanes.writers._calls.outstanding  # nothing is kept of it

    asyncio.run(work())
    assert [run.workflow_name for run in every_backend.workflows.runs.list()] == ["triage"]


@pytest.mark.parametrize("way", ["call", "transaction", "run"])
def test_a_timeout_behind_queued_writers_of_a_locked_file_ends_in_time(sqlite_database: Database, way: str) -> None:
    """backends B-74, journal T-5: nothing is written before BEGIN IMMEDIATE, so nobody waits for it."""
    run_sync = sqlite_database.open(settings=Settings(busy_timeout=600, queue_timeout=600))
    holder = sqlite_database.raw()

    async def write(store: AsyncStateStore) -> None:
        if way == "transaction":
            async with store.transaction() as tx:
                await tx.workflows.runs.create("never", trigger=TRIGGER, phase="start")
        elif way == "run":
            await store.run(lambda tx: tx.workflows.runs.create("never", trigger=TRIGGER, phase="start"))
        else:
            await _new_run(store)

    async def work() -> float:
        store = AsyncStateStore(run_sync)
        others = [asyncio.create_task(write(store)) for _ in range(3)]
        await asyncio.sleep(0)
        begun = time.monotonic()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2):
                await write(store)
        for other in others:  # the first of them is waiting for the file's lock
            other.cancel()
        await asyncio.wait(others)
        lasted = time.monotonic() - begun
        holder.execute("ROLLBACK")
        await _new_run(store)
        return lasted

    holder.execute("BEGIN IMMEDIATE")
    assert asyncio.run(work()) < 60
    assert [run.workflow_name for run in run_sync.workflows.runs.list()] == ["triage"]


@pytest.mark.parametrize("way", ["call", "transaction", "run", "view"])
def test_a_task_that_is_cancelled_while_it_waits_gives_up_nothing(
    database: Database, caplog: pytest.LogCaptureFixture, way: str
) -> None:
    """backends B-74: a client that hung up is no sign of a busy database, in the log as in the counters."""
    opened = database.open(settings=Settings(pool_size=1))
    if way == "view" and database.name == "sqlite":
        return  # readers of a file wait for nobody

    async def use(store: AsyncStateStore) -> None:
        if way == "call":
            await _new_run(store)
        elif way == "run":
            await store.run(lambda tx: tx.workflows.runs.get("none"), label="waiting")
        elif way == "view":
            async with store.view():
                pass
        else:
            async with store.transaction(label="waiting"):
                pass

    async def work() -> None:
        store = AsyncStateStore(opened)
        with opened.transaction():
            waiting = [asyncio.create_task(use(store)) for _ in range(3)]
            await asyncio.to_thread(_until_somebody_waits, opened)
            for task in waiting:
                task.cancel()
            done, _ = await asyncio.wait(waiting)
        assert all(task.cancelled() for task in done)
        await _new_run(store)

    asyncio.run(work())
    assert caplog.text == ""
    assert (opened.metrics.gave_up, opened.metrics.of("waiting")) == (0, {})


def _until_somebody_waits(store: StateStore) -> None:
    """Wait until a call waits for a connection, or for its turn to write."""
    backend: Any = store.backend
    line = backend._connections.line if backend.name == "sqlite" else backend._pool._line
    while not any(turn.gate for turn in list(line._turns)):
        time.sleep(0.001)


def test_a_block_whose_end_is_cancelled_ends_all_the_same(every_backend: StateStore) -> None:
    """backends B-40, journal T-5: what ends something is made, however often its task is cancelled."""

    async def work() -> None:
        store = AsyncStateStore(every_backend)
        entered = asyncio.Event()

        async def body() -> None:
            async with store.transaction() as tx:
                await tx.workflows.runs.create("never", trigger=TRIGGER, phase="start")
                entered.set()
                await asyncio.Event().wait()

        task = asyncio.create_task(body())
        await entered.wait()
        task.cancel()
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await _new_run(store)

    asyncio.run(work())
    assert [run.workflow_name for run in every_backend.workflows.runs.list()] == ["triage"]


def test_the_error_of_a_cancelled_call_is_not_reported_as_never_retrieved(
    state_store: StateStore, caplog: pytest.LogCaptureFixture
) -> None:
    async def work() -> None:
        store = AsyncStateStore(state_store)
        task = asyncio.ensure_future(store.workflows.runs.get("nowhere"))
        await asyncio.sleep(0)

        async def waiting() -> None:
            await task

        waiter = asyncio.create_task(waiting())
        await asyncio.sleep(0)
        waiter.cancel()
        with pytest.raises((asyncio.CancelledError, NotFound)):
            await waiter

    asyncio.run(work())
    assert not caplog.records


def test_a_call_through_the_store_inside_its_transaction_is_refused(every_backend: StateStore) -> None:
    async def work() -> None:
        store = AsyncStateStore(every_backend)
        run_id = await _new_run(store)
        async with store.transaction() as tx:
            await tx.workflows.runs.append_phase(run_id, PhaseEntry("build", True))
            with pytest.raises(NestedTransaction):
                await store.workflows.runs.get(run_id)
            async with asyncio.timeout(10):  # a SQLite file would wait for its own transaction
                with pytest.raises(NestedTransaction):
                    await store.workflows.runs.append_phase(run_id, PhaseEntry("no", True))
            with pytest.raises(NestedTransaction):
                async with store.transaction():
                    pass
        assert (await store.workflows.runs.get(run_id)).phase_count == 1

    asyncio.run(work())


def test_another_task_reads_while_a_transaction_is_open(every_backend: StateStore) -> None:
    async def work() -> None:
        store = AsyncStateStore(every_backend)
        run_id = await _new_run(store)
        async with store.transaction() as tx:
            await tx.workflows.runs.append_phase(run_id, PhaseEntry("build", True))
            other = await asyncio.create_task(_phases(store, run_id))
        assert (other, await _phases(store, run_id)) == (0, 1)

    async def _phases(store: AsyncStateStore, run_id: str) -> int:
        return (await store.workflows.runs.get(run_id)).phase_count

    asyncio.run(work())


@pytest.mark.parametrize("ending", ["raises", "cancelled"])
def test_a_body_that_does_not_end_well_leaves_nothing_and_the_connection_clean(
    every_backend: StateStore, ending: str
) -> None:
    """backends B-40: the next caller finds the connection clean."""

    async def work() -> None:
        store = AsyncStateStore(every_backend)
        run_id = await _new_run(store)

        async def body() -> None:
            async with store.transaction(label="half") as tx:
                await tx.workflows.runs.append_phase(run_id, PhaseEntry("build", True))
                if ending == "raises":
                    raise RuntimeError("no")
                await asyncio.Event().wait()

        task = asyncio.create_task(body())
        if ending == "cancelled":
            await asyncio.sleep(0.05)
            task.cancel()
        with pytest.raises((RuntimeError, asyncio.CancelledError)):
            await task
        await store.workflows.runs.append_phase(run_id, PhaseEntry("again", True))
        assert [entry.phase for entry in (await store.workflows.runs.get(run_id)).phase_history] == ["again"]

    asyncio.run(work())


def test_a_transaction_whose_event_loop_is_closed_ends_although_its_task_is_still_there(
    every_backend: StateStore,
) -> None:
    """backends B-87: as an exception in the middle of ``asyncio.run`` can leave it."""
    loop = asyncio.new_event_loop()
    entered = loop.create_future()

    async def stay() -> None:
        async with AsyncStateStore(every_backend).transaction() as tx:
            await tx.workflows.overrides.put("inside", enabled=False, reason="r", by="b")
            entered.set_result(None)
            await asyncio.Event().wait()

    task = loop.create_task(stay())
    loop.run_until_complete(entered)
    loop.close()
    every_backend.workflows.overrides.put("outside", enabled=False, reason="r", by="b")
    while any(thread.name == "lastlight-transaction" for thread in threading.enumerate()):
        time.sleep(0.01)
    assert [found.name for found in every_backend.workflows.overrides.list()] == ["outside"]
    with pytest.raises(StoreClosed):
        task.get_coro().close()


@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_transaction_whose_event_loop_nobody_refers_to_ends_by_itself(every_backend: StateStore) -> None:
    """backends B-87: as an exception at the end of ``asyncio.run`` can leave it, neither running nor closed."""

    def leave_behind() -> None:
        loop = asyncio.new_event_loop()
        entered = loop.create_future()

        async def stay() -> None:
            async with AsyncStateStore(every_backend).transaction() as tx:
                await tx.workflows.overrides.put("inside", enabled=False, reason="r", by="b")
                entered.set_result(None)
                await asyncio.Event().wait()

        task = loop.create_task(stay())
        loop.run_until_complete(entered)
        assert not task.done()

    gc.disable()
    try:
        leave_behind()
        every_backend.workflows.overrides.put("outside", enabled=False, reason="r", by="b")
        while any(thread.name == "lastlight-transaction" for thread in threading.enumerate()):
            time.sleep(0.01)
    finally:
        gc.enable()
    assert [found.name for found in every_backend.workflows.overrides.list()] == ["outside"]


def test_a_block_whose_end_was_cut_off_before_a_thread_knew_of_it_ends_all_the_same(
    every_backend: StateStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """backends B-87: also while the exception is still looked at."""

    def cut_off(lane: Lane, call: Any) -> Any:
        raise KeyboardInterrupt

    async def work() -> None:
        async with AsyncStateStore(every_backend).transaction() as tx:
            await tx.workflows.overrides.put("inside", enabled=False, reason="r", by="b")
            monkeypatch.setattr(Lane, "finish", cut_off)

    with pytest.raises(KeyboardInterrupt) as looked_at:
        asyncio.run(work())
    every_backend.workflows.overrides.put("outside", enabled=False, reason="r", by="b")
    assert [found.name for found in every_backend.workflows.overrides.list()] == ["outside"]
    assert looked_at.value.__traceback__ is not None


def test_a_view_reads_one_moment_and_refuses_to_write(every_backend: StateStore) -> None:
    async def work() -> None:
        store = AsyncStateStore(every_backend)
        run_id = await _new_run(store)
        async with store.view() as view:
            before = await view.workflows.runs.get(run_id)
            await asyncio.create_task(_append(store, run_id))
            assert await view.workflows.runs.get(run_id) == before
            with pytest.raises(ReadOnlyTransaction):
                await view.workflows.runs.append_phase(run_id, PhaseEntry("no", True))

    async def _append(store: AsyncStateStore, run_id: str) -> None:
        await store.workflows.runs.append_phase(run_id, PhaseEntry("build", True))

    asyncio.run(work())


def test_a_plain_function_reads_one_moment(every_backend: StateStore) -> None:
    """backends B-191: on a worker thread, and not of a closed store."""

    async def work() -> None:
        store = AsyncStateStore(every_backend)
        ids = [await _new_run(store) for _ in range(3)]
        threads: set[int] = set()

        def look(view: View) -> list[str]:
            threads.add(threading.get_ident())
            return [view.workflows.runs.get(run_id).id for run_id in ids]

        assert await store.read(look) == ids
        assert threads.isdisjoint({threading.get_ident()})
        await store.close()
        with pytest.raises(StoreClosed):
            await store.read(look)

    asyncio.run(work())


def test_hooks_run_after_the_commit_alone(every_backend: StateStore) -> None:
    async def work() -> list[str]:
        store = AsyncStateStore(every_backend)
        told: list[str] = []
        async with store.transaction() as tx:
            tx.after_commit(lambda: told.append("committed"))
            assert told == []
        with pytest.raises(RuntimeError):
            await _telling_then_raising(store, told)
        return told

    async def _telling_then_raising(store: AsyncStateStore, told: list[str]) -> None:
        async with store.transaction() as tx:
            tx.after_commit(lambda: told.append("never"))
            raise RuntimeError

    assert asyncio.run(work()) == ["committed"]


def test_run_takes_a_plain_function_of_a_transaction(every_backend: StateStore) -> None:
    async def work() -> str:
        store = AsyncStateStore(every_backend)
        return await store.run(lambda tx: tx.workflows.runs.create("triage", trigger=TRIGGER, phase="start").id)

    assert every_backend.workflows.runs.get(asyncio.run(work())).workflow_name == "triage"


def test_a_closed_store_refuses_and_closing_again_is_nothing(database: Database) -> None:
    async def work() -> None:
        store = await AsyncStateStore.open(database.url, state_dir=database.state_dir)
        await _new_run(store)
        await store.close()
        await store.close()
        with pytest.raises(StoreClosed):
            await store.workflows.runs.get("any")

    asyncio.run(work())


@pytest.mark.parametrize("ending", ["closed", "dropped"])
def test_the_threads_of_a_store_end_with_it(database: Database, ending: str) -> None:
    before = set(threading.enumerate())

    async def work() -> None:
        store = AsyncStateStore(database.open())
        await _new_run(store)
        if ending == "closed":
            await store.close()

    asyncio.run(work())
    collect()
    for thread in set(threading.enumerate()) - before:
        thread.join(timeout=30)
        assert not thread.is_alive()


def test_a_burst_of_reads_gets_as_many_threads_as_there_may_be(state_store: StateStore) -> None:
    """backends B-73: readers side by side; a reader that waits keeps no other one waiting."""
    lane = Lane("test", 4)
    together = threading.Barrier(4, timeout=30)

    async def work() -> None:
        await lane.run(lambda: None)
        await asyncio.gather(*(lane.run(together.wait) for _ in range(4)))

    asyncio.run(work())
    lane.close()


def test_a_burst_of_calls_gets_no_more_threads_than_there_may_be() -> None:
    """backends B-73."""
    lane, go_on = Lane("test", 2), threading.Event()

    async def work() -> list[bool]:
        calls = [lane.run(partial(go_on.wait, 30)) for _ in range(6)]
        go_on.set()
        return await asyncio.gather(*calls)

    assert asyncio.run(work()) == [True] * 6
    lane.close()
    lane.join()
    assert len(lane._calls.threads) == 2


def test_calls_one_after_another_share_a_thread() -> None:
    """backends B-73: another one is started only for a call that would wait."""
    lane = Lane("test", 4)

    async def work() -> set[int]:
        return {await lane.run(threading.get_ident) for _ in range(5)}

    assert len(asyncio.run(work())) == 1
    lane.close()
    lane.join()
    assert len(lane._calls.threads) == 1


def test_what_a_call_raises_reaches_its_caller_and_the_thread_goes_on() -> None:
    """backends B-87: whatever it is."""
    lane = Lane("test")

    async def work() -> list[BaseException | None]:
        calls = [lane.run(partial(_fail, error)) for error in (KeyError("a"), GeneratorExit())]
        await asyncio.wait(calls, timeout=5)
        return [call.exception() if call.done() else None for call in calls]

    assert [type(error) for error in asyncio.run(work())] == [KeyError, GeneratorExit]
    lane.close()
    lane.join()


def _fail(error: BaseException) -> None:
    raise error


def test_a_blocks_thread_takes_calls_after_it_has_looked_for_the_end_of_its_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """backends B-87."""
    ended, looked = threading.Event(), threading.Event()
    monkeypatch.setattr(lanes, "AGAIN", 0.01)
    between.before(monkeypatch, lanes._Calls, "_look_after", looked.set)
    lane = Lane("test", abandon=ended.set)

    async def work() -> str:
        await lane.run(lambda: None)
        assert looked.wait(5)
        return await lane.run(lambda: "served")

    assert asyncio.run(work()) == "served"
    lane.close()
    lane.join()


def test_an_error_that_no_future_takes_reaches_its_caller_as_another(state_store: StateStore) -> None:
    def work(tx: object) -> object:
        return next(iter(()))

    with pytest.raises(RuntimeError, match="StopIteration"):
        asyncio.run(AsyncStateStore(state_store).run(work))


def test_in_a_forked_child_a_call_is_refused_and_does_not_hang(state_store: StateStore) -> None:
    """backends B-11: after fork the child's copy is MisuseError."""
    store = AsyncStateStore(state_store)
    run_id = asyncio.run(_new_run(store))
    child = os.fork()
    if child == 0:
        try:
            asyncio.run(store.workflows.runs.get(run_id))
        except MisuseError:
            os._exit(7)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7


def test_closing_waits_for_the_calls_that_were_under_way(database: Database) -> None:
    async def work() -> list[object]:
        store = AsyncStateStore(database.open())
        run_id = await _new_run(store)
        reads = [asyncio.create_task(store.workflows.runs.get(run_id)) for _ in range(50)]
        await asyncio.sleep(0)
        await store.close()
        return await asyncio.gather(*reads, return_exceptions=True)

    assert not [answer for answer in asyncio.run(work()) if isinstance(answer, Exception)]


def test_closing_inside_the_tasks_own_transaction_is_refused(every_backend: StateStore) -> None:
    async def work() -> None:
        store = AsyncStateStore(every_backend)
        async with store.transaction():
            with pytest.raises(NestedTransaction):
                await store.close()

    asyncio.run(work())


def test_an_open_that_is_cancelled_leaves_no_store_behind(database: Database) -> None:
    before = _descriptors()

    async def work() -> None:
        task = asyncio.create_task(AsyncStateStore.open(database.url, state_dir=database.state_dir))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(work())
    collect()
    assert _descriptors() <= before


async def _open(store: StateStore) -> None:
    await AsyncStateStore.open(store.settings.state_dir)


async def _follow(store: StateStore) -> None:
    async for _ in AsyncStateStore(store).conversations.changes.follow("nowhere"):
        pass


async def _enter(store: StateStore) -> None:
    lost = store.workflows.claims.take(store.workflows.runs.create("w", trigger=TRIGGER, phase="p").id, owner="a")
    store.workflows.claims.release(lost)
    async with AsyncExitStack() as blocks:
        await blocks.enter_async_context(AsyncStateStore(store).transaction(claim=lost))


@pytest.mark.parametrize("call", [_open, _follow, _enter])
def test_what_fails_leaves_no_thread_of_its_own_behind(state_store: StateStore, call: Any) -> None:
    """Also while its error is still looked at."""
    before = set(threading.enumerate())

    async def work() -> None:
        with pytest.raises((BackendUnavailable, NotFound, ClaimLost)) as failed:
            await call(state_store)
        for thread in set(threading.enumerate()) - before:
            thread.join(timeout=10)
            assert not thread.is_alive()
        assert failed.value.__traceback__ is not None

    asyncio.run(work())


def test_what_a_call_returns_after_its_loop_was_closed_is_kept_nowhere() -> None:
    lane, loop, go_on = Lane("test"), asyncio.new_event_loop(), threading.Event()
    returned: list[weakref.ref[object]] = []

    def call() -> object:
        assert go_on.wait(30)
        result = threading.Event()
        returned.append(weakref.ref(result))
        return result

    async def leave() -> None:
        lane.run(call)

    loop.run_until_complete(leave())
    loop.close()
    go_on.set()
    lane.close()
    lane.join()
    assert [result() for result in returned] == [None]


def test_a_loop_that_is_closed_before_it_was_told_leaves_its_lane_to_others() -> None:
    """backends B-87: what was returned is dropped, and the same thread makes the next call."""
    lane, loop, go_on = Lane("test"), asyncio.new_event_loop(), threading.Event()
    returned: list[weakref.ref[object]] = []

    def call() -> object:
        assert go_on.wait(30)
        result = threading.Event()
        returned.append(weakref.ref(result))
        return result

    async def leave() -> None:
        lane.run(call)

    async def again() -> str:
        async with asyncio.timeout(10):
            return await lane.run(lambda: "made")

    loop.run_until_complete(leave())
    go_on.set()
    while not lane._completions[loop]._woken:
        time.sleep(0.001)
    loop.close()
    while [result() for result in returned] != [None]:
        time.sleep(0.01)
    assert asyncio.run(again()) == "made"


def _descriptors() -> int:
    """Return how many files this process has open, where the system tells."""
    folder = Path("/proc/self/fd")
    return len(list(folder.iterdir())) if folder.is_dir() else 0
