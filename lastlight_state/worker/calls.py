"""Helpers that let one step serve threads and coroutines: results of an async store are awaited, others returned."""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Awaitable, Coroutine
from typing import Any, TypeVar, cast

from lastlight_state.db.news.listeners import message_of, storable
from lastlight_state.errors import MisuseError
from lastlight_state.workflows import Failure

T = TypeVar("T")

#: Most characters of an error message that are stored: its beginning.
ERROR_CHARS = 4_000
#: Most characters of a traceback that are stored: its end.
_TRACEBACK_CHARS = 16_000


class RunFailed(Exception):
    """Raise this in the function of a workflow to end its run as failed, without another try."""

    def __init__(self, error: str, *, detail: Any = None) -> None:
        super().__init__(error)
        self.failure = Failure(storable(str(error), ERROR_CHARS), detail)


def leaves(error: BaseException) -> list[BaseException]:
    """Return the exceptions in an exception group and its nested groups.

    For any other exception, return only that one.
    """
    if isinstance(error, BaseExceptionGroup):
        return [leaf for one in error.exceptions for leaf in leaves(one)]
    return [error]


class Left(BaseException):
    """Raised to leave a workflow's function, because its run was paused or is being released.

    ``except Exception`` does not catch it.
    """


async def result_of(value: Awaitable[T] | T) -> T:
    """Return the result of a store's call: if it is awaitable, await it, else return it as it is."""
    return await value if inspect.isawaitable(value) else value


def at_once(steps: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end that never waits, and return its result. Raises `MisuseError` if it does wait."""
    try:
        steps.send(None)
    except StopIteration as done:
        return cast(T, done.value)
    steps.close()
    raise MisuseError("a function of a Worker must not be a coroutine: use AsyncWorker")


class Entered:
    """Lets ``async with`` enter both kinds of context managers: sync and async."""

    def __init__(self, block: Any) -> None:
        self._block = block

    async def __aenter__(self) -> Any:
        begin = getattr(self._block, "__aenter__", None) or self._block.__enter__
        return await result_of(begin())

    async def __aexit__(self, *raised: object) -> Any:
        end = getattr(self._block, "__aexit__", None) or self._block.__exit__
        return await result_of(end(*raised))


def failure_of(error: BaseException) -> Failure:
    """Convert an exception to a `Failure`: its type and message as the text, its traceback as the detail.

    The message of an exception group, such as `asyncio.TaskGroup` raises, says little. So the text of the first
    exception in the group is appended.
    """
    if isinstance(error, RunFailed):
        return error.failure
    first, text = error, _error_text(error)
    while isinstance(first, BaseExceptionGroup):
        first = first.exceptions[0]
    if first is not error:
        text = f"{text}: {_error_text(first)}"
    return Failure(text, {"traceback": _traceback(error)})


def _error_text(error: BaseException) -> str:
    name, message = storable(type(error).__name__, 80), message_of(error)
    return f"{name}: {message}" if message else name


def _traceback(error: BaseException) -> str:
    text = "".join(traceback.format_exception(error))
    return storable(text[-_TRACEBACK_CHARS:], _TRACEBACK_CHARS)
