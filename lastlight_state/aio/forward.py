"""The async faces of repositories: one line per method, with the sync method's types.

::

    class AsyncRuns(Face[Runs]):
        get = forward_read(Runs.get)
        create = forward_write(Runs.create)
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
from lastlight_state.deprecation import call_after_warning, warn_deprecated

#: Seconds added to a call's time limit, so that the call's own error is raised first.
_SLACK = 0.25

# Waiting in a coroutine for a thread that polls the database: the wait itself holds no thread.


class Waker:
    """Wakes the task that created it, from any thread."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._event = asyncio.Event()

    def up(self) -> None:
        """Wake the task. Called from the thread on which the awaited event happened."""
        with suppress(RuntimeError):  # the event loop was closed
            self._loop.call_soon_threadsafe(self._event.set)

    async def wait_for_arrival(self, arrivals: Arrivals[Any]) -> bool:
        """Wait until ``arrivals`` has an item. Return False if the time limit passes first. Raises `StoreClosed`."""
        with suppress(TimeoutError):
            async with asyncio.timeout(arrivals.seconds_left):
                while not arrivals.wait(0):
                    self._event.clear()
                    await self._event.wait()
                return True
        return False


async def run_poll(runner: Runner, limit: TimeLimit, call: Callable[[], R], *, writes: bool = False) -> R:
    """Run one poll of a waiting call on a worker thread, and return its result.

    Raises `BackendUnavailable` if no thread or connection becomes free within the time limit.
    """
    run = runner.write if writes else runner.read
    try:
        async with asyncio.timeout(max(limit.seconds_left, LEAST_LOOK) + _SLACK):
            return await run(partial(limit.look, call))
    except TimeoutError:
        raise all_in_use("threads and connections") from None


P = ParamSpec("P")
R = TypeVar("R")
S = TypeVar("S")


class Runner(Protocol):
    """Runs the calls of a `Face`, usually on worker threads."""

    def read(self, call: Callable[[], R]) -> Awaitable[R]: ...

    def write(self, call: Callable[[], R]) -> Awaitable[R]: ...

    def finish(self, call: Callable[[], R]) -> Awaitable[R]:
        """Run a call that cleans up, such as the end of a commit, and await it even if the task is cancelled."""

    def refuse_closed(self) -> None:
        """Raise `NestedTransaction` if a task inside a transaction makes a call through the store itself."""


class Face(Generic[S]):
    """The async form of a sync object: each call runs on a worker thread."""

    def __init__(self, target: S, runner: Runner) -> None:
        self._target = target
        self._runner = runner

    def _make_part(self, kind: type[Any], name: str) -> Any:
        return kind(getattr(self._target, name), self._runner)


class Forward(Generic[P, R]):
    """Descriptor that turns a sync method into a coroutine function."""

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
        warning = getattr(self.method, "__deprecated__", None)
        method = getattr(face._target, self.name)
        if warning is not None:  # warns here, in the caller's task: a worker thread does not know the caller's line
            warn_deprecated(warning)
            method = partial(call_after_warning, method)

        @wraps(self.method)
        async def call(*args: P.args, **kwargs: P.kwargs) -> R:
            made = partial(method, *args, **kwargs)
            return await run(made if metrics.observer is None else partial(copy_context().run, made))

        if warning is None:
            face.__dict__[self.name] = call  # so that later look-ups skip this descriptor
        return call


def forward_read(method: Callable[Concatenate[Any, P], R]) -> Forward[P, R]:
    """Forward a method that only reads."""
    return Forward(method, writes=False)


def forward_write(method: Callable[Concatenate[Any, P], R]) -> Forward[P, R]:
    """Forward a method that writes. It runs on the writers' threads, so that waiting writers never block readers."""
    return Forward(method, writes=True)
