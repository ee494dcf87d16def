"""Contract tests of a history store for an agent framework, as test classes over a fixture ``history``.

They serve anybody who writes a session store. ``history`` is a function that returns a session by its name. The same
name means the same session, even as another object::

    from lastlight_state.testing.contracts import HistoryContract

    class TestMySessions(HistoryContract):
        @pytest.fixture
        def history(self, tmp_path):
            return lambda name: MySession(name, tmp_path / "sessions.db")

A session has the four methods of the OpenAI Agents SDK. Each test creates an event loop of its own.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine
from typing import Any, Protocol

from lastlight_state.testing.contracts.steps import fresh


class History(Protocol):
    """A session: a history of JSON items to which items are added, and from which they are removed, at its end."""

    async def get_items(self, limit: int | None = None) -> list[Any]: ...

    async def add_items(self, items: list[Any]) -> None: ...

    async def pop_item(self) -> Any | None: ...

    async def clear_session(self) -> None: ...


Histories = Callable[[str], History]


def user_messages(*texts: str) -> list[dict[str, Any]]:
    """Return user messages with these texts."""
    return [{"role": "user", "content": text} for text in texts]


class HistoryContract:
    """Tests of a session as an agent framework uses it: from successive processes and from concurrent tasks."""

    def test_what_was_added_comes_back_in_its_order(self, history: Histories) -> None:
        name = fresh("session")

        async def story() -> None:
            await history(name).add_items(user_messages("a", "b"))
            await history(name).add_items(user_messages("c"))
            assert await history(name).get_items() == user_messages("a", "b", "c")

        asyncio.run(story())

    def test_a_limit_gives_the_last_in_their_order(self, history: Histories) -> None:
        async def story() -> None:
            session = history(fresh("session"))
            await session.add_items(user_messages(*"abcd"))
            assert await session.get_items(limit=2) == user_messages("c", "d")
            assert await session.get_items(limit=9) == user_messages(*"abcd")
            assert await session.get_items(limit=0) == []

        asyncio.run(story())

    def test_nothing_is_in_a_session_that_nobody_wrote_to(self, history: Histories) -> None:
        async def story() -> None:
            session = history(fresh("session"))
            assert await session.get_items() == []
            assert await session.pop_item() is None
            await session.clear_session()
            await session.add_items([])
            assert await session.get_items() == []

        asyncio.run(story())

    def test_the_last_is_taken_off_and_given_back(self, history: Histories) -> None:
        async def story() -> None:
            session = history(fresh("session"))
            await session.add_items(user_messages("a", "b"))
            assert await session.pop_item() == user_messages("b")[0]
            await session.add_items(user_messages("c"))
            assert await session.get_items() == user_messages("a", "c")
            assert [await session.pop_item() for _ in range(3)] == [*user_messages("c"), *user_messages("a"), None]

        asyncio.run(story())

    def test_a_cleared_session_begins_anew(self, history: Histories) -> None:
        async def story() -> None:
            session = history(fresh("session"))
            await session.add_items(user_messages("a", "b"))
            await session.clear_session()
            assert await session.get_items() == []
            await session.add_items(user_messages("c"))
            assert await session.get_items() == user_messages("c")

        asyncio.run(story())

    def test_sessions_do_not_see_each_other(self, history: Histories) -> None:
        async def story() -> None:
            one, other = history(fresh("session")), history(fresh("session"))
            await one.add_items(user_messages("a"))
            await other.add_items(user_messages("b"))
            await one.clear_session()
            assert await other.get_items() == user_messages("b")

        asyncio.run(story())

    def test_equal_items_are_two(self, history: Histories) -> None:
        async def story() -> None:
            session = history(fresh("session"))
            await session.add_items(user_messages("a", "a"))
            await session.add_items(user_messages("a"))
            assert await session.get_items() == user_messages("a", "a", "a")

        asyncio.run(story())

    def test_every_json_comes_back_equal(self, history: Histories) -> None:
        """Store tool calls, and texts that some databases cannot store."""
        items = [
            {"type": "function_call", "call_id": "1", "name": "f", "arguments": '{"n": 1}'},
            {"type": "reasoning", "summary": [], "encrypted_content": None},
            {"role": "user", "content": [{"type": "input_text", "text": "\0 \U0001f600 \u2028 '; DROP TABLE x"}]},
            {"role": "user", "content": "\ud800", "number": 2**70, "flag": True, "half": 0.5, "whole": 1.0},
        ]

        async def story() -> None:
            session = history(fresh("session"))
            await session.add_items(items)
            found = await session.get_items()
            assert json.dumps(found, sort_keys=True) == json.dumps(items, sort_keys=True)

        asyncio.run(story())

    def test_one_call_is_whole_however_long_it_is(self, history: Histories) -> None:
        texts = [str(number) for number in range(2_500)]

        async def story() -> None:
            session = history(fresh("session"))
            await session.add_items(user_messages(*texts))
            assert await session.get_items() == user_messages(*texts)
            assert await session.get_items(limit=700) == user_messages(*texts[-700:])

        asyncio.run(story())

    def test_a_call_that_fails_leaves_nothing(self, history: Histories) -> None:
        async def story() -> None:
            session = history(fresh("session"))
            await session.add_items(user_messages("a"))
            given: list[Any] = [*user_messages("b"), {"role": "user", "content": object()}]
            refused = False
            try:
                await session.add_items(given)
            except Exception:  # noqa: BLE001 - each store has its own error for what is no JSON
                refused = True
            assert refused
            assert await session.get_items() == user_messages("a")

        asyncio.run(story())

    def test_writers_at_once_lose_nothing(self, history: Histories) -> None:
        """Add items concurrently, including the first items of a session."""
        name = fresh("session")
        texts = [[f"{writer} {turn}" for turn in range(5)] for writer in range(8)]

        async def write(turns: list[str]) -> None:
            session = history(name)
            for turn in turns:
                await session.add_items(user_messages(turn))

        async def story() -> None:
            await asyncio.gather(*map(write, texts))
            found = [one["content"] for one in await history(name).get_items()]
            assert sorted(found) == sorted(text for turns in texts for text in turns)
            assert all([one for one in found if one in turns] == turns for turns in texts)

        asyncio.run(story())

    def test_of_those_who_pop_at_once_each_gets_another(self, history: Histories) -> None:
        name = fresh("session")

        async def story() -> None:
            await history(name).add_items(user_messages(*"abcdef"))
            popped = await asyncio.gather(*(history(name).pop_item() for _ in range(8)))
            taken = sorted(one["content"] for one in popped if one is not None)
            assert taken == list("abcdef")
            assert await history(name).get_items() == []

        asyncio.run(story())

    def test_a_call_that_is_cancelled_is_done_or_not_begun(self, history: Histories) -> None:
        """Check that nothing is written any more after a cancelled call has returned."""

        async def story() -> None:
            session = history(fresh("session"))
            await session.add_items(user_messages("first"))
            for number in range(1, 11):
                await _cancel_after(session.add_items(user_messages(f"a {number}", f"b {number}")), number)
                seen = await session.get_items()
                await asyncio.sleep(0.02)
                assert await session.get_items() == seen
                assert len(seen) % 2 == 1

        asyncio.run(story())


async def _cancel_after(call: Coroutine[Any, Any, None], turns: int) -> None:
    """Start a call, and cancel it after some iterations of the event loop."""
    task = asyncio.create_task(call)
    for _ in range(turns):
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
