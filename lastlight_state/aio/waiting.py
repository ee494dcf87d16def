"""Waiting in a coroutine for what a thread of the store looks for: no thread is held, and no time is lost."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

from lastlight_state.db.arrivals import Arrivals


class Woken:
    """Wakes the task that made it, from any thread: ``woken.up`` is what that thread calls."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._event = asyncio.Event()

    def up(self) -> None:
        """Wake the task."""
        with suppress(RuntimeError):  # its loop was closed, and the task with it
            self._loop.call_soon_threadsafe(self._event.set)

    async def arrived(self, arrivals: Arrivals[Any]) -> bool:
        """Wait until something has come, and return whether it has before the time was over. Raises `StoreClosed`."""
        with suppress(TimeoutError):
            async with asyncio.timeout(arrivals.seconds_left):
                while not arrivals.wait(0):
                    self._event.clear()
                    await self._event.wait()
                return True
        return False
