"""Stored events of MCP servers, from which clients resume a stream, over ``store.states`` (extra ``mcp``).

::

    from lastlight_state.aio import AsyncStateStore
    from lastlight_state.integrations.mcp import MCPEventStore, MCPSessions

    async with await AsyncStateStore.open("state/lastlight.db") as store:
        manager = MCPSessions(server, lambda: MCPEventStore(store))

An event is stored as a state that a prune removes after its lifetime. A cancelled call waits for the outcome of its
write before it raises.
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
from lastlight_state.keys import compose_key

try:
    from mcp.server.streamable_http import EventCallback, EventMessage, EventStore
    from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
    from mcp_types import JSONRPCMessage, jsonrpc_message_adapter
except ImportError:  # without the SDK the module can be imported, but no store created
    EventStore = StreamableHTTPSessionManager = object

#: How long an event is kept for a client that reconnects.
_LIFE = timedelta(days=1)
#: Events that one query reads.
_PAGE = 100


class MCPEventStore(EventStore):
    """The events of one session of an MCP server over streamable HTTP. The caller opens and closes the store.

    ``session`` is the session's name. Without a name, the object is a new session: the SDK names a stream after its
    request's id, and two clients may use the same id. ``ttl`` is how long an event is kept; then a prune removes it.
    ``user`` is the person to whom the events belong, for erasure. ``scope`` is the namespace of its sessions. Raises
    `MisuseError` without the SDK.
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
        self._scope = compose_key(scope, MCP_EVENTS, session or new_id(), "")
        self._kept: dict[str, Any] = {"scope": self._scope, "ttl": ttl, "user": user}
        self._calls = Calls(store, None, label=type(self).__name__)
        self._turn_lock = asyncio.Lock()
        #: By stream: the event id that a client gets as its position after a replay.
        self._places: dict[str, str] = {}

    async def store_event(self, stream_id: str, message: JSONRPCMessage | None) -> str:
        """Store an event of a stream, and return its id.

        An event without a message only marks a position and is never resent.
        """
        place = self._places.pop(stream_id, None)
        if message is None and place is not None:
            return place
        async with self._turn_lock:
            return await self._store(stream_id, message)

    async def replay_events_after(self, last_event_id: str, send_callback: EventCallback) -> str | None:
        """Send the stream's events that follow the given one, in order, and return the stream's id.

        Returns None if the event does not exist, belongs to another session, or has expired. Raises `CorruptData`.
        """
        if not valid.are_storable(last_event_id, self._scope):
            return None
        found = await self._calls.view(lambda view: view.states.find(last_event_id, scope=self._scope))
        if found is None:
            return None
        stream: str = json.loads(found.value)[0]
        last = last_event_id
        while True:
            # The SDK sends events stored later only after this call has returned. So the last read and the position
            # that the SDK asks for next share one lock, and nothing is awaited between them and the return.
            async with self._turn_lock:
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
        """Return up to `_PAGE` of the session's events after ``last``, as pairs of id and bytes.

        Raises `CorruptData`.
        """
        given = {"after_scope": self._scope, "after_key": last, "limit": _PAGE}
        events = []
        for row in view.states._bodies(self._scope)(given).rows:
            if isinstance(row, CorruptData):
                raise row
            _, key, body = row
            events.append((key, body or b""))
        return events


class MCPSessions(StreamableHTTPSessionManager):
    """The SDK's session manager, except that each session has its own event store.

    ``make`` returns an event store, such as an `MCPEventStore`. The other arguments are the SDK's. The SDK's own
    manager shares one event store among all sessions, so that a reconnecting client could get events of another
    client's request with the same id. Raises `MisuseError` without the SDK.
    """

    def __init__(self, app: Any, make: Callable[[], EventStore], **options: Any) -> None:
        if EventStore is object:
            raise MisuseError.missing_extra("mcp", what="a session manager for MCP")
        self._make = make
        super().__init__(app, **options)

    @property
    def event_store(self) -> EventStore:
        """Return a new event store. The SDK reads this attribute once for each session that it creates."""
        return self._make()

    @event_store.setter
    def event_store(self, _: object) -> None:
        """Ignore the value: the SDK sets None."""
