"""Sync blocks around coroutines: entered and left on a worker thread, with the exception that ended them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager, suppress
from functools import partial, wraps
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypeVar, overload

from lastlight_state.aio.forward import Face

P = ParamSpec("P")
T = TypeVar("T")

#: Runs a call on a worker thread.
Run = Callable[[Callable[[], Any]], Awaitable[Any]]


@asynccontextmanager
async def entered(run: Run, block: AbstractContextManager[T]) -> AsyncIterator[T]:
    """The value of the block, until the coroutine leaves it. A task cancelled while entering leaves it again."""
    target = await _enter(run, block)
    try:
        yield target
    except BaseException as error:
        if not await run(partial(block.__exit__, type(error), error, error.__traceback__)):
            raise
    else:
        await run(partial(block.__exit__, None, None, None))


class Block(Generic[P, T]):
    """A sync method that gives a block, seen from coroutines: ``async with face.method(…) as target``."""

    def __init__(self, method: Callable[Concatenate[Any, P], AbstractContextManager[T]]) -> None:
        self.method = method
        self.__doc__ = method.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    @overload
    def __get__(self, face: None, owner: type) -> Self: ...
    @overload
    def __get__(self, face: Face[Any], owner: type) -> Callable[P, AbstractAsyncContextManager[T]]: ...
    def __get__(self, face: Face[Any] | None, owner: type) -> Any:
        if face is None:
            return self

        @wraps(self.method)
        def call(*args: P.args, **kwargs: P.kwargs) -> AbstractAsyncContextManager[T]:
            return entered(face._runner.write, getattr(face._target, self.name)(*args, **kwargs))

        return call


def block(method: Callable[Concatenate[Any, P], AbstractContextManager[T]]) -> Block[P, T]:
    """Forward a method that gives a block. A task that is cancelled in it leaves the block as an exception does."""
    return Block(method)


async def _enter(run: Run, block: AbstractContextManager[T]) -> T:
    targets: list[T] = []

    def enter() -> None:
        targets.append(block.__enter__())

    try:
        await run(enter)
    except asyncio.CancelledError as error:
        if targets:
            await run(partial(_leave, block, error))
        raise
    return targets[0]


def _leave(block: AbstractContextManager[Any], error: BaseException) -> None:
    with suppress(asyncio.CancelledError):
        block.__exit__(type(error), error, error.__traceback__)
