"""Sync blocks around coroutines: entered and left on a worker thread, with the exception that ended them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractContextManager, asynccontextmanager, suppress
from functools import partial
from typing import Any, TypeVar

T = TypeVar("T")

#: Runs a call on a worker thread.
Run = Callable[[Callable[[], Any]], Awaitable[Any]]


@asynccontextmanager
async def entered(run: Run, block: AbstractContextManager[T]) -> AsyncIterator[T]:
    """What the block gives, until the coroutine leaves it. A task that is cancelled while it enters leaves it again."""
    target = await _enter(run, block)
    try:
        yield target
    except BaseException as error:
        if not await run(partial(block.__exit__, type(error), error, error.__traceback__)):
            raise
    else:
        await run(partial(block.__exit__, None, None, None))


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
