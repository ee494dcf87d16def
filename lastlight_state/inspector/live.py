"""Live pages: browsers on the same address share one polling task, and get the page again when it changes.

A topic is an address with its query. While it has a subscriber, one task polls every few seconds. A page with a mark is
made again only when its mark has changed. So a hundred open pages cost the database as much as one. At most 32 topics
are live at once; a page beyond them is shown, and is not live.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Hashable
from contextlib import aclosing

from starlette.responses import StreamingResponse
from starlette.types import Send

#: Seconds between two polls, and between two keep-alive comments on an idle connection.
EVERY, SIGN = 2.0, 15.0
#: Least pause after a poll, as a multiple of the poll's own duration.
REST = 5
#: Most topics at a time. Further pages are shown, but not live.
MOST_TOPICS = 32

#: Makes the content of a page. Returns None if it is unchanged since the last poll.
Look = Callable[[], Awaitable[str | None]]

_log = logging.getLogger("lastlight_state.inspector")


class Topic:
    """The content of one address, shared by its subscribers, and the task that polls it."""

    def __init__(self, look: Look, every: float) -> None:
        self._look = look
        self._every = every
        self._shown: str | None = None
        self._number = 0
        self._changed = asyncio.Condition()
        self._fails = False
        self.subscribers = 0
        self.task = asyncio.ensure_future(self._poll_changes())

    async def _poll_changes(self) -> None:
        now = asyncio.get_running_loop().time
        while True:
            began = now()
            try:
                shown = await self._look()
                self._fails = False
            except Exception:  # noqa: BLE001 the database is away for a moment, or the run was removed: it stays as it is
                if not self._fails:  # logged once, and not at each poll until the page works again
                    _log.warning("a live page could not be made again", exc_info=True)
                shown, self._fails = None, True
            if shown is not None and shown != self._shown:
                async with self._changed:
                    self._shown, self._number = shown, self._number + 1
                    self._changed.notify_all()
            await asyncio.sleep(max(self._every, REST * (now() - began)))

    async def changes(self, sign: float) -> AsyncIterator[str | None]:
        """Yield the content after each change. After ``sign`` seconds without a change, yield None."""
        seen = 0
        while True:
            try:
                async with asyncio.timeout(sign), self._changed:
                    while self._number == seen:
                        await self._changed.wait()
                    seen, shown = self._number, self._shown
            except TimeoutError:
                yield None
                continue
            yield shown


class Events(StreamingResponse):
    """A response of server-sent events.

    It unsubscribes from the topic as soon as the browser disconnects, even while sending.
    """

    body_iterator: AsyncGenerator[bytes, None]

    def __init__(self, stream: AsyncGenerator[bytes, None]) -> None:
        super().__init__(stream, media_type="text/event-stream")

    async def stream_response(self, send: Send) -> None:
        """Send events until there are no more, or the browser disconnects."""
        async with aclosing(self.body_iterator):
            await super().stream_response(send)


class Topics:
    """All topics that have subscribers."""

    def __init__(self, *, every: float = EVERY, sign: float = SIGN) -> None:
        self._every, self._sign = every, sign
        self._topics: dict[Hashable, Topic] = {}

    def is_full_for(self, key: Hashable) -> bool:
        """True if this topic would exceed `MOST_TOPICS`."""
        return key not in self._topics and len(self._topics) >= MOST_TOPICS

    async def stream(self, key: Hashable, look: Look) -> AsyncGenerator[bytes, None]:
        """Yield server-sent events with the content of a topic, until the browser disconnects."""
        if self.is_full_for(key):  # others have subscribed since the request was accepted
            return
        topic = self._topics.get(key)
        if topic is None or topic.task.done():
            topic = self._topics[key] = Topic(look, self._every)
        topic.subscribers += 1
        try:
            yield b"retry: 5000\n\n"
            async for shown in topic.changes(self._sign):
                yield b": still here\n\n" if shown is None else event(shown)
        finally:
            topic.subscribers -= 1
            if not topic.subscribers:
                topic.task.cancel()
                if self._topics.get(key) is topic:
                    del self._topics[key]


def event(text: str) -> bytes:
    """Encode a text as one server-sent event."""
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    return ("".join(f"data: {line}\n" for line in lines) + "\n").encode("utf-8", "backslashreplace")
