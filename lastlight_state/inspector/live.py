"""Live pages: one look for all browsers that show the same, made again and sent when it has changed.

A topic is an address with its query. While anybody is subscribed, one task looks every few seconds; a page with a mark
is made again only when its mark has changed. What a hundred open pages cost the database is what one costs.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Hashable
from contextlib import aclosing

from starlette.responses import StreamingResponse
from starlette.types import Send

#: Seconds between two looks, and between signs of life on a connection where nothing happens.
EVERY, SIGN = 2.0, 15.0
#: How many times as long as it took the database rests after a look.
REST = 5
#: The most topics at once. Further pages are shown, but not live.
MOST_TOPICS = 32

#: Makes what a page shows, or None where it is as at the look before.
Look = Callable[[], Awaitable[str | None]]

_log = logging.getLogger("lastlight_state.inspector")


class Topic:
    """What is shown at one address, and who looks at it."""

    def __init__(self, look: Look, every: float) -> None:
        self._look = look
        self._every = every
        self._shown: str | None = None
        self._number = 0
        self._changed = asyncio.Condition()
        self._fails = False
        self.subscribers = 0
        self.task = asyncio.ensure_future(self._going())

    async def _going(self) -> None:
        now = asyncio.get_running_loop().time
        while True:
            began = now()
            try:
                shown = await self._look()
                self._fails = False
            except Exception:  # noqa: BLE001 the database is away for a moment, or the run was removed: it stays as it is
                if not self._fails:  # said once, and not every two seconds until it is back
                    _log.warning("a live page could not be made again", exc_info=True)
                shown, self._fails = None, True
            if shown is not None and shown != self._shown:
                async with self._changed:
                    self._shown, self._number = shown, self._number + 1
                    self._changed.notify_all()
            await asyncio.sleep(max(self._every, REST * (now() - began)))

    async def changes(self, sign: float) -> AsyncIterator[str | None]:
        """Yield what is shown, each time that it has changed; None after each ``sign`` seconds without a change."""
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
    """Server-sent events of a topic, which is left as soon as the browser has gone, also while something is sent."""

    body_iterator: AsyncGenerator[bytes, None]

    def __init__(self, stream: AsyncGenerator[bytes, None]) -> None:
        super().__init__(stream, media_type="text/event-stream")

    async def stream_response(self, send: Send) -> None:
        """Send events until there are no more, or the browser has gone."""
        async with aclosing(self.body_iterator):
            await super().stream_response(send)


class Topics:
    """The topics that somebody looks at."""

    def __init__(self, *, every: float = EVERY, sign: float = SIGN) -> None:
        self._every, self._sign = every, sign
        self._topics: dict[Hashable, Topic] = {}

    def is_full_for(self, key: Hashable) -> bool:
        """True if there is no room for this topic."""
        return key not in self._topics and len(self._topics) >= MOST_TOPICS

    async def stream(self, key: Hashable, look: Look) -> AsyncGenerator[bytes, None]:
        """Yield server-sent events with what is shown, until the browser goes."""
        if self.is_full_for(key):  # others came between the answer and its first part
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
    """Return the text as one server-sent event."""
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    return ("".join(f"data: {line}\n" for line in lines) + "\n").encode("utf-8", "backslashreplace")
