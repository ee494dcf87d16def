"""Events of MCP servers that clients resume from, over ``store.states`` (extra ``mcp``).

::

    from lastlight_state.aio import AsyncStateStore
    from lastlight_state.integrations.mcp import MCPEventStore, MCPSessions

    async with await AsyncStateStore.open("state/lastlight.db") as store:
        manager = MCPSessions(server, lambda: MCPEventStore(store))

An event is a state that a prune removes in its time. A call that is cancelled learns its outcome first.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from lastlight_state.aio import AsyncStateStore
from lastlight_state.db import valid
from lastlight_state.domains import View
from lastlight_state.errors import CorruptData, MisuseError
from lastlight_state.ids import new_id
from lastlight_state.integrations.conversing import MCP_EVENTS, Calls
from lastlight_state.keys import composed

try:
    from mcp.server.streamable_http import EventCallback, EventMessage, EventStore
    from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
    from mcp_types import JSONRPCMessage, jsonrpc_message_adapter
except ImportError:  # the module can be looked at without the SDK; a store cannot be made
    EventStore = StreamableHTTPSessionManager = object

#: How long an event is there for a client that comes back.
_LIFE = timedelta(days=1)
#: How many events are read at once.
_PAGE = 100


class MCPEventStore(EventStore):
    """The events of one session of an MCP server over streamable HTTP. The store stays the caller's, who closes it.

    ``session`` names it, and without a name it is a session of its own: the SDK calls a stream after the id of its
    request, which two clients may have alike. ``ttl`` is how long an event lives, until a prune removes it, and
    ``user`` whose it is, for erasure. ``scope`` keeps its sessions apart from others. Raises `MisuseError` without the
    SDK.
    """

    def __init__(
        self,
        store: AsyncStateStore,
        *,
        session: str | None = None,
        scope: str = "mcp",
        ttl: timedelta | None = _LIFE,
        user: str | None = None,
    ) -> None:
        if EventStore is object:
            raise MisuseError.missing_extra("mcp", what="a store of events for MCP")
        self._scope = composed(scope, MCP_EVENTS, session or new_id(), "")
        self._kept: dict[str, Any] = {"scope": self._scope, "ttl": ttl, "user": user}
        self._calls = Calls(store, None, label=type(self).__name__)
        self._turn = asyncio.Lock()
        #: By the stream: the place that a client is told who has just got what it missed.
        self._places: dict[str, str] = {}

    async def store_event(self, stream_id: str, message: JSONRPCMessage | None) -> str:
        """Store an event of a stream, and return its id. Without a message it is a place, which is not sent again."""
        place = self._places.pop(stream_id, None)
        if message is None and place is not None:
            return place
        async with self._turn:
            return await self._store(stream_id, message)

    async def replay_events_after(self, last_event_id: str, send_callback: EventCallback) -> str | None:
        """Send the events of a stream behind one of them, in their order, and return the stream.

        Returns None for an event that is not there, is of another session, or has expired. Raises `CorruptData`.
        """
        if not valid.are_storable(last_event_id, self._scope):
            return None
        found = await self._calls.view(lambda view: view.states.find(last_event_id, scope=self._scope))
        if found is None:
            return None
        stream: str = json.loads(found.value)[0]
        last = last_event_id
        while True:
            # The SDK sends an event that is stored later only once it goes on behind this call. So the last look and
            # the place that it asks for then are one turn, and nothing is awaited between them and its going on.
            async with self._turn:
                rows = await self._calls.view(lambda view: self._read(view, last))  # noqa: B023 - awaited at once
                if not rows:
                    self._places[stream] = await self._store(stream, None)
                    return stream
            for event_id, body in rows:
                of, text = json.loads(body)
                if of == stream and text is not None:
                    await send_callback(EventMessage(jsonrpc_message_adapter.validate_json(text), event_id))
                last = event_id

    async def _store(self, stream_id: str, message: JSONRPCMessage | None) -> str:
        event_id = new_id()
        text = None if message is None else message.model_dump_json(by_alias=True, exclude_unset=True)
        body = json.dumps([stream_id, text]).encode()
        await self._calls.transact(lambda tx: tx.states.put(event_id, body, **self._kept), repeatable=True)
        return event_id

    def _read(self, view: View, last: str) -> list[tuple[str, bytes]]:
        """Return events of the session behind one, with their ids. Raises `CorruptData` for one that cannot be read."""
        given = {"after_scope": self._scope, "after_key": last, "limit": _PAGE}
        events = []
        for row in view.states._bodies(self._scope)(given).rows:
            if isinstance(row, CorruptData):
                raise row
            events.append((row["key"], row["body"] or b""))
        return events


class MCPSessions(StreamableHTTPSessionManager):
    """A session manager of the SDK each of whose sessions has an event store of its own.

    ``make`` returns one, such as an `MCPEventStore`; the other arguments are the SDK's. The SDK's manager hands one
    event store to all sessions, and a client that comes back would get what another one's request of the same id got.
    Raises `MisuseError` without the SDK.
    """

    def __init__(self, app: Any, make: Callable[[], EventStore], **options: Any) -> None:
        if EventStore is object:
            raise MisuseError.missing_extra("mcp", what="a session manager for MCP")
        self._make = make
        super().__init__(app, **options)

    @property
    def event_store(self) -> EventStore:
        """Return the event store of the next session. The SDK asks for one as it makes a session."""
        return self._make()

    @event_store.setter
    def event_store(self, _: object) -> None:
        """Leave what the SDK sets, None, aside."""
