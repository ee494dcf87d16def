"""Blocking iterators for coroutines: each runs on a thread of its own."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from typing import Any, TypeVar

from lastlight_state.aio.lanes import Lane
from lastlight_state.db import valid

T = TypeVar("T")

_END: Any = object()


class Left(threading.Event):
    """Set when the iteration was left, and while ``stop`` of the caller is set."""

    def __init__(self, stop: threading.Event | None) -> None:
        super().__init__()
        self._stop = valid.stop(stop)

    def is_set(self) -> bool:
        """Whether the iterator is to end."""
        return super().is_set() or self._stop.is_set()


async def streamed(start: Callable[[], Iterator[T]], stop: threading.Event | None = None) -> AsyncIterator[T]:
    """The items of the iterator that ``start`` returns.

    Leaving the iteration, or cancelling the task that waits for an item, sets ``stop`` and closes the iterator.
    """
    lane = Lane("stream")
    cancelled = stop.set if stop is not None else None
    items: Iterator[T] | None = None
    try:
        items = await lane.run(start)
        while (item := await lane.run(partial(next, items, _END), on_cancel=cancelled)) is not _END:
            yield item
    finally:
        if stop is not None:
            stop.set()
        close = getattr(items, "close", None)
        if close is not None:
            await lane.finish(close)
        lane.close()
