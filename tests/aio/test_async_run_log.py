"""The run log from coroutines."""

from __future__ import annotations

import asyncio
import threading
from datetime import UTC, datetime
from pathlib import Path

import pytest

from lastlight_state import AsyncStateStore, StateStore
from lastlight_state.errors import StoreClosed
from lastlight_state.files.run_log import RunHeader, SessionState, new_run_id


def _header(run_id: str) -> RunHeader:
    return RunHeader(run_id=run_id, started_at=datetime(2026, 2, 3, tzinfo=UTC))


def test_calls_that_are_not_awaited_one_by_one_keep_their_order(state_store: StateStore) -> None:
    """run-log RL-23."""

    async def work() -> list[object]:
        log = AsyncStateStore(state_store).run_log
        run_id = new_run_id()
        async with await log.runs.start(_header(run_id)) as writer:
            calls = [writer.event({"n": n}) for n in range(300)]
            assert await asyncio.gather(*calls) == list(range(300))
        return [event.event["n"] for event in await log.replay.events(run_id)]

    assert asyncio.run(work()) == list(range(300))


def test_a_run_is_written_read_and_resumed(state_store: StateStore) -> None:
    """run-log RL-60: the files are those of the sync face, below the state directory."""

    async def work() -> None:
        log = AsyncStateStore(state_store).run_log
        run_id, session_id = new_run_id(), new_run_id()
        async with await log.runs.start(_header(run_id)) as writer:
            seq = await writer.llm_request({"messages": []})
            await writer.llm_response(seq, {"messages": []})
            assert (await log.runs.get(run_id)).state == "running"
        with pytest.raises(StoreClosed):
            await writer.event({})
        reading = await log.runs.read(run_id)
        assert [record.type async for record in reading] == ["header", "llm.request", "llm.response"]
        assert reading.counts["header"] == 1
        assert [turn.seq async for turn in log.replay.prompts(run_id)] == [1]
        assert (await log.checks.validate(run_id)).ok
        await log.states.put(SessionState(session_id=session_id, messages=()))
        updated = await log.states.update(session_id, lambda stored: stored.model_copy(update={"invoke_seq": 1}))
        assert updated.invoke_seq == 1
        assert [entry.session_id for entry in await log.states.list()] == [session_id]

    asyncio.run(work())
    assert state_store.run_log.root == Path(state_store.settings.state_dir).resolve()


def test_a_writer_may_be_closed_inside_its_block(state_store: StateStore) -> None:
    """run-log RL-27: no end is invented, and closing again is nothing."""

    async def work() -> str | None:
        log = AsyncStateStore(state_store).run_log
        run_id = new_run_id()
        async with await log.runs.start(_header(run_id)) as writer:
            await writer.close()
            await writer.close()
            await (await log.runs.reopen(run_id)).close()  # nobody writes it any more
        return (await log.runs.get(run_id)).outcome

    assert asyncio.run(work()) is None


@pytest.mark.parametrize("in_a_block", [True, False])
def test_a_closed_writer_leaves_no_thread(state_store: StateStore, in_a_block: bool) -> None:
    """run-log RL-60: also where somebody keeps it."""
    others = set(threading.enumerate())

    async def work() -> tuple[object, list[threading.Thread]]:
        writer = await AsyncStateStore(state_store).run_log.runs.start(_header(new_run_id()))
        await writer.event({})
        own = [thread for thread in set(threading.enumerate()) - others if thread.name == "lastlight-run-log"]
        if in_a_block:
            async with writer:
                pass
        else:
            await writer.close()
        return writer, own

    _kept, [thread] = asyncio.run(work())
    thread.join(10)
    assert not thread.is_alive()


def test_an_exception_in_the_block_ends_the_run(state_store: StateStore) -> None:
    """run-log RL-27."""

    async def work() -> str | None:
        log = AsyncStateStore(state_store).run_log
        run_id = new_run_id()

        begun = asyncio.Event()

        async def doomed() -> None:
            async with await log.runs.start(_header(run_id)):
                begun.set()
                await asyncio.Event().wait()

        task = asyncio.ensure_future(doomed())
        await begun.wait()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return (await log.runs.get(run_id)).outcome

    assert asyncio.run(work()) == "cancelled"
