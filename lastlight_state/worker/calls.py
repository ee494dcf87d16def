"""How one step serves threads and coroutines: its calls are awaited where the store is one for coroutines."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Coroutine
from typing import Any, TypeVar, cast

from lastlight_state.errors import MisuseError
from lastlight_state.workflows import Failure

T = TypeVar("T")


class RunFailed(Exception):
    """Raise this in the function of a workflow to end its run as failed, with no further try."""

    def __init__(self, error: str, *, detail: Any = None) -> None:
        super().__init__(error)
        self.failure = Failure(error, detail)


class Left(BaseException):
    """Leaves the function of a workflow: the run was paused, or is to be given back. Not for ``except Exception``."""


async def settled(value: Awaitable[T] | T) -> T:
    """Return what a call of a store returned, awaited where the store is one for coroutines."""
    return await value if inspect.isawaitable(value) else value


def at_once(steps: Coroutine[Any, Any, T]) -> T:
    """Run a step to its end where nothing waits. Raises `MisuseError` for a function that is a coroutine."""
    try:
        steps.send(None)
    except StopIteration as done:
        return cast(T, done.value)
    steps.close()
    raise MisuseError("a function of a Worker must not be a coroutine: use AsyncWorker")


class Entered:
    """A block of a store, entered by ``async with`` also where the store is one for threads."""

    def __init__(self, block: Any) -> None:
        self._block = block

    async def __aenter__(self) -> Any:
        begin = getattr(self._block, "__aenter__", None) or self._block.__enter__
        return await settled(begin())

    async def __aexit__(self, *raised: object) -> Any:
        end = getattr(self._block, "__aexit__", None) or self._block.__exit__
        return await settled(end(*raised))
