"""Sync blocks around coroutines: entered and left on a worker thread, with the exception that ended them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager
from functools import partial, wraps
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypeVar, overload

from lastlight_state.aio.forward import Face, Runner

P = ParamSpec("P")
T = TypeVar("T")


@asynccontextmanager
async def entered(runner: Runner, block: AbstractContextManager[T]) -> AsyncIterator[T]:
    """What the block gives, on shared threads. A task that is cancelled while it enters leaves it again."""
    targets: list[T] = []
    try:
        await runner.write(lambda: targets.append(block.__enter__()))
        yield targets[0]
    except BaseException as raised:
        leave = partial(_raise_in, block, raised)
        if not targets or not await runner.finish(leave):
            raise
    else:
        await runner.finish(lambda: block.__exit__(None, None, None))


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
            return entered(face._runner, getattr(face._target, self.name)(*args, **kwargs))

        return call


def block(method: Callable[Concatenate[Any, P], AbstractContextManager[T]]) -> Block[P, T]:
    """Forward a method that gives a block. A task that is cancelled in it leaves the block as an exception does."""
    return Block(method)


def _raise_in(block: AbstractContextManager[Any], error: BaseException) -> bool | None:
    return block.__exit__(type(error), error, error.__traceback__)
