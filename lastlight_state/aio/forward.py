"""The async faces of repositories: one line per method, typed as the sync method is.

::

    class AsyncRuns(Face[Runs]):
        get = reading(Runs.get)
        create = writing(Runs.create)
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from contextvars import copy_context
from functools import partial, wraps
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, Self, TypeVar, overload

from lastlight_state import metrics
from lastlight_state.backends.waiting import LEAST_LOOK, all_in_use
from lastlight_state.db.news.watch import Arrivals, TimeLimit

#: What a look is given beside its limit, so that its own error comes first.
_SLACK = 0.25

# Waiting in a coroutine for what a thread of the store looks for: no thread is held, and no time is lost.


class Waker:
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


async def looked(runner: Runner, limit: TimeLimit, call: Callable[[], R], *, writes: bool = False) -> R:
    """Return what a look of a call with a ``timeout`` gives.

    Raises `BackendUnavailable` where no thread or connection becomes free in that time.
    """
    run = runner.write if writes else runner.read
    try:
        async with asyncio.timeout(max(limit.left, LEAST_LOOK) + _SLACK):
            return await run(partial(limit.look, call))
    except TimeoutError:
        raise all_in_use("threads and connections") from None


P = ParamSpec("P")
R = TypeVar("R")
S = TypeVar("S")


class Runner(Protocol):
    """Runs the calls of a face on worker threads."""

    def read(self, call: Callable[[], R]) -> Awaitable[R]: ...

    def write(self, call: Callable[[], R]) -> Awaitable[R]: ...

    def finish(self, call: Callable[[], R]) -> Awaitable[R]:
        """Make and await a call that ends something, even if the task is cancelled."""

    def refuse_closed(self) -> None:
        """Refuse a call through the store inside a transaction of the same task."""


class Face(Generic[S]):
    """The async face of a sync object: each of its calls runs on a worker thread."""

    def __init__(self, target: S, runner: Runner) -> None:
        self._target = target
        self._runner = runner

    def _made(self, kind: type[Any], name: str) -> Any:
        return kind(getattr(self._target, name), self._runner)


class Forward(Generic[P, R]):
    """A sync method, seen from coroutines."""

    def __init__(self, method: Callable[Concatenate[Any, P], R], *, writes: bool) -> None:
        self.method = method
        self.writes = writes
        self.name = ""
        self.__doc__ = method.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    @overload
    def __get__(self, face: None, owner: type) -> Self: ...
    @overload
    def __get__(self, face: Face[Any], owner: type) -> Callable[P, Coroutine[Any, Any, R]]: ...
    def __get__(self, face: Face[Any] | None, owner: type) -> Any:
        if face is None:
            return self
        run = face._runner.write if self.writes else face._runner.read
        method = getattr(face._target, self.name)

        @wraps(self.method)
        async def call(*args: P.args, **kwargs: P.kwargs) -> R:
            made = partial(method, *args, **kwargs)
            return await run(made if metrics.observer is None else partial(copy_context().run, made))

        face.__dict__[self.name] = call  # so that later look-ups skip the descriptor
        return call


def reading(method: Callable[Concatenate[Any, P], R]) -> Forward[P, R]:
    """Forward a method that only reads."""
    return Forward(method, writes=False)


def writing(method: Callable[Concatenate[Any, P], R]) -> Forward[P, R]:
    """Forward a method that writes. It runs in the writers' lane, so that waiting writers do not block readers."""
    return Forward(method, writes=True)
