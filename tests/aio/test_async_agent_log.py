"""The event log from coroutines."""

from __future__ import annotations

import asyncio

import pytest

from lastlight_state import AsyncStateStore, StateStore, StoreClosed
from lastlight_state.files.agent_log import Cwd, LogLine, Outcome, Reset

PROMPT = {"type": "user", "message": {"role": "user", "content": "go"}}


def _line(text: str) -> dict[str, object]:
    return {"type": "assistant", "message": {"role": "assistant", "content": text}, "sessionId": "s-1"}


def test_a_session_is_written_and_read(state_store: StateStore) -> None:
    """agent-log L-6: async faces forward every method."""

    async def work() -> list[str | None]:
        log = AsyncStateStore(state_store).agent_log
        async with log.writer.open(place=Cwd("/app"), session_id="s-1", prompt="hello") as session:
            await session.append([_line("one"), _line("two")])
            assert await session.finish(Outcome()) == "s-1"
            assert session.lines_written == 4
        assert [file.id for file in (await log.sessions.list()).items] == ["s-1"]
        return [line.type async for line in log.reader.scan("s-1")]

    assert asyncio.run(work()) == ["user", "assistant", "assistant", "result"]


def test_a_writer_is_closed_when_its_block_is_left(state_store: StateStore) -> None:
    """agent-log L-6: it takes no more lines."""

    async def work() -> None:
        log = AsyncStateStore(state_store).agent_log
        async with log.writer.open(place=Cwd("/app"), session_id="s-1") as session:
            await session.append([_line("one")])
        with pytest.raises(StoreClosed):
            await session.append([_line("two")])
        assert [line.type async for line in log.reader.scan("s-1")] == ["assistant"]

    asyncio.run(work())


def test_a_follower_gets_what_comes_and_ends_when_it_is_left(state_store: StateStore) -> None:
    async def work() -> list[str]:
        log = AsyncStateStore(state_store).agent_log
        seen: list[str] = []
        async with log.writer.open(place=Cwd("/app"), session_id="s-1") as session:
            await session.append([_line("one")])
            async for line in log.reader.follow("s-1", poll=0.01):
                assert isinstance(line, LogLine)
                seen.append(line.value["message"]["content"])
                if len(seen) == 3:
                    break
                await session.append([_line(f"more {len(seen)}")])
        return seen

    assert asyncio.run(work()) == ["one", "more 1", "more 2"]


def test_a_cancelled_follower_ends_within_a_poll(state_store: StateStore) -> None:
    """agent-log L-44: leaving the iterator closes the descriptor."""

    async def work() -> None:
        log = AsyncStateStore(state_store).agent_log

        async def follow() -> list[LogLine | Reset]:
            return [line async for line in log.reader.follow("not-there-yet", poll=600)]

        task = asyncio.create_task(follow())
        await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(task, timeout=60)

    asyncio.run(work())
