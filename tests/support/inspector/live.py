"""Browsers that are subscribed to live pages, in the event loop of a test."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from contextlib import asynccontextmanager
from typing import Any

from starlette.types import ASGIApp


class Subscriber:
    """A browser with one live page: its events as far as they came."""

    def __init__(self) -> None:
        self.status = 0
        self.events: list[str] = []
        self._gone, self._told = asyncio.Event(), asyncio.Event()
        self._text = ""
        self.stalls, self._reads = False, True

    async def receive(self) -> MutableMapping[str, Any]:
        """Send the request, and once the browser has gone, that."""
        if not self._told.is_set():
            self._told.set()
            return {"type": "http.request", "body": b"", "more_body": False}
        await self._gone.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: MutableMapping[str, Any]) -> None:
        """Take a part of the answer."""
        self.status = message.get("status", self.status)
        if not self._reads and message.get("body"):
            self.stalls = True
            await asyncio.Event().wait()
        self._text += message.get("body", b"").decode()
        *whole, self._text = self._text.split("\n\n")
        self.events += [event for event in whole if event.startswith("data:")]

    def stall(self) -> None:
        """Read no more: what is sent next waits for ever."""
        self._reads = False

    def go(self) -> None:
        """Close the page."""
        self._gone.set()


@asynccontextmanager
async def subscribed(app: ASGIApp, path: str, number: int = 1) -> AsyncIterator[list[Subscriber]]:
    """Open a page in this many browsers."""
    browsers = [Subscriber() for _ in range(number)]
    tasks = [asyncio.ensure_future(app(_scope(path), browser.receive, browser.send)) for browser in browsers]
    try:
        yield browsers
    finally:
        for browser in browsers:
            browser.go()
        await asyncio.gather(*tasks)


async def until(holds: Callable[[], bool], seconds: float = 20) -> None:
    """Wait for something to hold."""
    async with asyncio.timeout(seconds):
        while not holds():  # noqa: ASYNC110 it may be anything
            await asyncio.sleep(0.01)


def run(work: Awaitable[Any]) -> None:
    """Run a coroutine in a loop of its own."""

    async def going() -> None:
        await work

    asyncio.run(going())


def _scope(path: str) -> dict[str, Any]:
    path, _, query = path.partition("?")
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": "GET",
        "path": path,
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "root_path": "",
        "scheme": "http",
        "headers": [(b"host", b"testserver"), (b"accept", b"text/event-stream")],
        "server": ("testserver", 80),
        "client": ("testclient", 1),
    }
