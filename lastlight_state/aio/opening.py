"""How an async store is opened: as the sync one, with the same parameters, on a worker thread."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial, wraps
from typing import Any, Generic, ParamSpec, TypeVar

from lastlight_state.aio.lanes import Lane
from lastlight_state.store import StateStore

P = ParamSpec("P")
A = TypeVar("A")


class Opening(Generic[P]):
    """A class method that opens a sync store, as a coroutine that gives the async one."""

    def __init__(self, opens: Callable[P, StateStore]) -> None:
        self._opens = opens
        self.__doc__ = opens.__doc__

    def __get__(self, store: object, owner: type[A]) -> Callable[P, Coroutine[Any, Any, A]]:
        @wraps(self._opens)
        async def opened(*args: P.args, **kwargs: P.kwargs) -> A:
            return await _opened(owner, partial(self._opens, *args, **kwargs))

        return opened


async def _opened(kind: Callable[[StateStore], A], opens: Callable[[], StateStore]) -> A:
    """The async store. A task that is cancelled meanwhile leaves none open."""
    lane = Lane("open")
    stores: list[StateStore] = []

    def work() -> None:
        stores.append(opens())

    try:
        await lane.run(work)
    except asyncio.CancelledError:
        for store in stores:
            await lane.finish(store.close)
        raise
    finally:
        lane.close()
    return kind(stores[0])
