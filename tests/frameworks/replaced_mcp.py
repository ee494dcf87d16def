"""A plugin of pytest that puts our events in the place of those that MCP's own tests keep in memory.

Those tests name events by numbers, which ours are told by here, and look into the list of them.
"""

from __future__ import annotations

import os
from typing import Any

import anyio
import pytest
from mcp.server.streamable_http import EventMessage

from lastlight_state.aio import AsyncStateStore
from lastlight_state.integrations.mcp import MCPEventStore
from lastlight_state.store import StateStore

STORE = AsyncStateStore(StateStore.open(os.environ["FRAMEWORKS_DATABASE"]))


class NumberedEvents(MCPEventStore):
    """Our events, called by their numbers."""

    def __init__(self) -> None:
        super().__init__(STORE)
        self._ids: list[str] = []
        self._events: list[Any] = []
        self._stored = anyio.Condition()

    async def store_event(self, stream_id: str, message: Any) -> str:
        """Store an event, and return its number."""
        stored = await super().store_event(stream_id, message)
        async with self._stored:
            self._ids.append(stored)
            self._events.append((stream_id, message))
            self._stored.notify_all()
        return str(len(self._ids))

    async def wait_until_stored(self, count: int) -> None:
        """Wait until there are so many events."""
        async with self._stored:
            while len(self._ids) < count:
                await self._stored.wait()

    async def replay_events_after(self, last_event_id: str, send_callback: Any) -> str | None:
        """Send the events behind one of a number."""

        async def numbered(event: Any) -> None:
            await send_callback(EventMessage(event.message, str(self._ids.index(event.event_id) + 1)))

        at = int(last_event_id) - 1 if last_event_id.isdecimal() else -1
        known = self._ids[at] if 0 <= at < len(self._ids) else last_event_id
        return await super().replay_events_after(known, numbered)


class NamedEvents(NumberedEvents):
    """The same, with the list that the other store keeps."""

    async def store_event(self, stream_id: str, message: Any) -> str:
        """Store an event, and return its number."""
        stored = await super().store_event(stream_id, message)
        self._events[-1] = (stream_id, stored, message)
        return stored


#: By the names of the stores in memory: what stands in their place.
STORES = {"SequencedEventStore": NumberedEvents, "SimpleEventStore": NamedEvents}


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[Any]) -> None:
    """Put ours in the place of the stores that modules of tests know, and keep the tests that have one."""
    for item in items:
        for name in STORES.keys() & vars(item.module).keys():
            setattr(item.module, name, STORES[name])
    kept = [
        one for one in items if "event_store" in one.fixturenames or STORES.keys() & {*one.function.__code__.co_names}
    ]
    config.hook.pytest_deselected(items=[one for one in items if one not in kept])
    items[:] = kept


@pytest.fixture
def anyio_backend() -> str:
    """Run coroutines as the conftest of those tests says, which is left out: it wants more packages."""
    return "asyncio"
