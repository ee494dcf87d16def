"""How one step serves threads and coroutines: its calls are awaited where the store is one for coroutines."""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Awaitable, Coroutine
from typing import Any, TypeVar, cast

from lastlight_state.db.news.listeners import message_of, storable
from lastlight_state.errors import MisuseError
from lastlight_state.workflows import Failure

T = TypeVar("T")

#: Characters of an error that are kept, of its beginning.
ERROR_CHARS = 4_000
#: Characters of a traceback that are kept, of its end.
_TRACEBACK_CHARS = 16_000


class RunFailed(Exception):
    """Raise this in the function of a workflow to end its run as failed, with no further try."""

    def __init__(self, error: str, *, detail: Any = None) -> None:
        super().__init__(error)
        self.failure = Failure(storable(str(error), ERROR_CHARS), detail)


def leaves(error: BaseException) -> list[BaseException]:
    """Return the exceptions that a group holds, groups within it too; of another exception itself."""
    if isinstance(error, BaseExceptionGroup):
        return [leaf for one in error.exceptions for leaf in leaves(one)]
    return [error]


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


def failure_of(error: BaseException) -> Failure:
    """Return the failure that an exception is: its type and message, and its traceback as detail.

    A group, as `asyncio.TaskGroup` raises it, says nothing itself: the first of its exceptions is told behind it.
    """
    if isinstance(error, RunFailed):
        return error.failure
    first, text = error, _named(error)
    while isinstance(first, BaseExceptionGroup):
        first = first.exceptions[0]
    if first is not error:
        text = f"{text}: {_named(first)}"
    return Failure(text, {"traceback": _traceback(error)})


def _named(error: BaseException) -> str:
    name, message = storable(type(error).__name__, 80), message_of(error)
    return f"{name}: {message}" if message else name


def _traceback(error: BaseException) -> str:
    text = "".join(traceback.format_exception(error))
    return storable(text[-_TRACEBACK_CHARS:], _TRACEBACK_CHARS)
