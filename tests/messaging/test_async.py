from __future__ import annotations

import asyncio
import threading

import pytest
from support.messaging.chat import KEY

from lastlight_state import AsyncStateStore, StateStore
from lastlight_state.messaging import MessageDraft
from lastlight_state.testing import racing


@pytest.mark.parametrize("platform_id", [None, "17.1"])
def test_the_outcome_of_a_cancelled_append_is_known(every_backend: StateStore, platform_id: str | None) -> None:
    """messaging case 52: the message is there when CancelledError arrives."""

    async def work() -> list[tuple[int, int]]:
        store = AsyncStateStore(every_backend)
        session_id = (await store.messaging.sessions.resume(KEY)).session.id
        seen: list[tuple[int, int]] = []

        async def append() -> None:
            try:
                await store.messaging.messages.append(
                    session_id, role="user", content="hello", platform_message_id=platform_id
                )
            except asyncio.CancelledError:
                counter = every_backend.messaging.sessions.get(session_id).message_count
                seen.append((counter, len(every_backend.messaging.messages.history(session_id))))
                raise

        under_way, go_on = threading.Event(), threading.Event()

        def hold() -> None:
            under_way.set()
            go_on.wait(30)

        with racing(every_backend) as race:
            race.before(1, hold)
            task = asyncio.create_task(append())
            await asyncio.to_thread(under_way.wait, 10)
            task.cancel()
            go_on.set()
            with pytest.raises(asyncio.CancelledError):
                await task
        return seen

    assert asyncio.run(work()) == [(1, 1)]


def test_many_tasks_share_one_conversation(every_backend: StateStore) -> None:
    """messaging M-13, M-31, M-34."""

    async def work() -> tuple[set[str], int]:
        store = AsyncStateStore(every_backend)
        messaging = store.messaging

        async def turn(number: int) -> str:
            session_id = (await messaging.sessions.resume(KEY)).session.id
            await messaging.messages.append_many(
                session_id, [MessageDraft("user", f"{number}"), MessageDraft("assistant", "ok")]
            )
            return session_id

        found = set(await asyncio.gather(*(turn(number) for number in range(20))))
        [session_id] = found
        return found, (await messaging.sessions.get(session_id)).message_count

    found, count = asyncio.run(work())
    assert (len(found), count) == (1, 40)
