"""An `AsyncStateStore` with the calls of the sync store, so that one test covers both."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, cast

from lastlight_state.aio import AsyncStateStore
from lastlight_state.aio.forward import Face
from lastlight_state.aio.store import AsyncDomains
from lastlight_state.store import StateStore
from lastlight_state.workflows import Driven


class Loop:
    """An event loop that runs in its own thread."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="test-loop", daemon=True)
        self._thread.start()

    def run(self, make: Any) -> Any:
        """Call ``make`` in the event loop and return its result, awaited if it is awaitable."""

        async def go() -> Any:
            made = make()
            return await made if inspect.isawaitable(made) else made

        return asyncio.run_coroutine_threadsafe(go(), self._loop).result()

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class Blocking:
    """Wraps the async form of a store so that each call blocks until it is done."""

    def __init__(self, target: Any, loop: Loop) -> None:
        self._target = target
        self._loop = loop

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._target, name)
        return partial(self._call, value) if callable(value) else self._wrap_value(value)

    def _call(self, method: Any, *args: Any, **kwargs: Any) -> Any:
        return self._wrap_value(self._loop.run(partial(method, *args, **kwargs)))

    def _wrap_value(self, value: Any) -> Any:
        if hasattr(value, "__aenter__"):
            return self._block(value)
        if hasattr(value, "__aiter__"):
            return self._items(value)
        return Blocking(value, self._loop) if isinstance(value, Face | AsyncDomains) else value

    @contextmanager
    def _block(self, block: Any) -> Iterator[Any]:
        entered = self._loop.run(block.__aenter__)
        for name, part in vars(entered).items():
            if isinstance(part, Face) and entered is not block:  # an object that a block yields may hold repositories
                setattr(entered, name, Blocking(part, self._loop))
        if isinstance(entered, Driven):
            setattr(entered, "transaction", partial(self._call, entered.transaction))  # noqa: B010 - it is a method
        try:
            yield self._wrap_value(entered) if entered is not block else Blocking(block, self._loop)
        except BaseException as error:
            if not self._loop.run(partial(block.__aexit__, type(error), error, error.__traceback__)):
                raise
        else:
            self._loop.run(partial(block.__aexit__, None, None, None))

    def _items(self, items: Any) -> Iterator[Any]:
        while True:
            try:
                yield self._loop.run(items.__anext__)
            except StopAsyncIteration:
                return


@contextmanager
def blocking_store(store: StateStore) -> Iterator[StateStore]:
    """Yield the async form of a store, called like a sync store."""
    loop = Loop()
    try:
        yield cast(StateStore, Blocking(AsyncStateStore(store), loop))
    finally:
        loop.close()
