"""What the writer promises to coroutines beyond what `test_writer` shows of both faces."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest
from support.workflows.steps import started

from lastlight_state import AsyncStateStore, StateStore
from lastlight_state.aio.journal_writer import AsyncLineFileMirror
from lastlight_state.errors import BackendBusy, InvalidValue, MisuseError, StoreClosed
from lastlight_state.journal import WriterOptions
from lastlight_state.testing import Database


def test_waiting_for_room_does_not_hold_up_the_event_loop(every_backend: StateStore, run_id: str) -> None:
    """journal W-6, W-7: nor does a flush, which may be cancelled."""
    reached, go_on = threading.Event(), threading.Event()

    def held(events: Any) -> None:
        reached.set()
        go_on.wait(30)

    async def work() -> None:
        store = AsyncStateStore(every_backend)
        heard: list[int] = []
        async with store.journal.writer(WriterOptions(max_queued=1, linger=0), mirrors=[held]) as writer:
            writer.subscribe(lambda _: heard.append(threading.get_ident()))
            first = await writer.append(run_id, "a")
            await asyncio.to_thread(reached.wait, 30)
            assert await first.wait() == 0
            waiting = [asyncio.create_task(writer.append(run_id, "b")), asyncio.create_task(writer.flush())]
            await asyncio.sleep(0.01)
            assert not any(task.done() for task in waiting)
            waiting[1].cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting[1]
            await writer.flush(timeout=0.01)  # it is stored, although a mirror has not finished
            go_on.set()
            second = await waiting[0]
            await writer.flush()
            assert (second and second.seq, writer.stats().stored) == (1, 2)
        assert heard == [threading.get_ident()] * 2

    asyncio.run(work())


def test_a_writer_that_refuses_when_full_does_not_wait(every_backend: StateStore, run_id: str) -> None:
    """journal W-6."""

    async def work() -> None:
        options = WriterOptions(max_queued=1, when_full="refuse", linger=60, full_timeout=60)
        async with AsyncStateStore(every_backend).journal.writer(options) as writer:
            await writer.append(run_id, "a")
            for _ in range(2):
                with pytest.raises(BackendBusy, match="full"):
                    await asyncio.wait_for(writer.append(run_id, "b"), 30)

    asyncio.run(work())


def test_waiting_is_refused_inside_a_transaction_of_the_same_task(every_backend: StateStore, run_id: str) -> None:
    """journal W-14."""

    async def work() -> None:
        store = AsyncStateStore(every_backend)
        async with store.journal.writer(WriterOptions(max_queued=1, linger=60, full_timeout=0.01)) as writer:
            async with store.transaction() as tx:
                pending = await writer.append(run_id, "a")
                with pytest.raises(MisuseError):
                    await writer.append(run_id, "b")
                with pytest.raises(MisuseError):
                    await pending.wait(0.01)
                with pytest.raises(MisuseError):
                    await writer.flush(0.01)
                with pytest.raises(MisuseError):
                    await writer.close(0.01)
                with pytest.raises(MisuseError):
                    tx.journal.writer()
            assert await pending.wait() == 0

    asyncio.run(work())


def test_closing_the_store_closes_its_writers_and_ends_who_waits(database: Database) -> None:
    """journal W-12, G-4: of events and of signals."""

    async def work() -> None:
        store = await AsyncStateStore.open(database.url, migrate=False)
        writer = store.journal.writer(WriterOptions(linger=60))
        pending = await writer.append(run_id, "a")
        taking = asyncio.create_task(
            store.journal.signals.try_take(run_id, "go", consumer="c", wait=60, poll_interval=0.01)
        )
        await asyncio.sleep(0.05)
        await store.close()
        assert pending.seq == 0
        with pytest.raises(StoreClosed):
            await writer.append(run_id, "b")
        with pytest.raises(StoreClosed):
            await taking

    run_id = started(database.open()).id
    asyncio.run(work())


def test_many_tasks_wait_for_signals_without_a_thread_each(every_backend: StateStore, run_id: str) -> None:
    """journal G-4, F-5: each gets one as they come; nobody else's calls are held up."""

    async def work() -> None:
        store = AsyncStateStore(every_backend)
        before = threading.active_count()
        waits = [
            asyncio.create_task(
                store.journal.signals.try_take(run_id, "go", consumer=f"c{i}", wait=30, poll_interval=0.01)
            )
            for i in range(12)
        ]
        await asyncio.sleep(0.05)
        assert threading.active_count() <= before + every_backend.settings.pool_size + 1
        for i in range(12):
            await store.journal.signals.send(run_id, "go", i)
        taken = await asyncio.wait_for(asyncio.gather(*waits), 20)  # whoever has one waits no longer
        assert sorted(signal.seq for signal in taken if signal) == list(range(12))
        assert await store.journal.signals.try_take(run_id, "go", consumer="c", wait=0.03, poll_interval=0.01) is None
        async with store.transaction() as tx:
            with pytest.raises(MisuseError):
                await tx.journal.signals.try_take(run_id, "go", consumer="c", wait=1)

    asyncio.run(work())


def test_the_log_file_of_an_async_store(every_backend: StateStore, run_id: str, tmp_path: Path) -> None:
    """journal W-18: its events are caught up with from a coroutine."""

    async def work() -> None:
        store = AsyncStateStore(every_backend)
        mirror = AsyncLineFileMirror(store.journal.events, tmp_path)
        async with store.journal.writer(mirrors=[mirror]) as writer:
            await writer.append(run_id, "a")
        await store.journal.events.append(run_id, "b")
        assert await mirror.catch_up(run_id) == 1
        assert len(mirror.path_of(run_id).read_text().splitlines()) == 2
        assert mirror.directory == tmp_path == mirror.path_of(run_id).parent
        with pytest.raises(InvalidValue):
            AsyncLineFileMirror(every_backend.journal.events, tmp_path)  # type: ignore[arg-type]

    asyncio.run(work())
