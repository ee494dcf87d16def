"""Blocks of coroutines that have a thread of their own: transactions and views."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, MutableMapping
from contextlib import AbstractAsyncContextManager, AbstractContextManager, suppress
from functools import partial
from typing import Any, TypeVar
from weakref import ref

from lastlight_state.aio.lanes import Lane
from lastlight_state.errors import NestedTransaction
from lastlight_state.unwinding import Exit, Held

T = TypeVar("T")

#: Which tasks are inside a block of which store.
Tasks = MutableMapping["asyncio.Task[Any]", "Pinned"]


class Pinned(Held):
    """A sync block and its thread. Left on that thread however the ``async with`` statement ends."""

    def __init__(
        self,
        block: AbstractContextManager[Any],
        face: Callable[[Any, Lane], Any],
        tasks: Tasks,
        admit: Callable[[], None],
    ) -> None:
        self._admit = admit
        self._block = block
        self._face = face
        self._lane = Lane("transaction", abandon=self._end_for_its_task)
        self._tasks = tasks

    async def enter(self) -> Any:
        """What the block gives. A task that is cancelled while it enters leaves it again."""
        self._admit()
        entered: list[Any] = []
        try:
            await self._lane.run(lambda: entered.append(self._block.__enter__()))
        except BaseException as raised:
            if entered:
                await self._lane.finish(partial(self._end, raised))
            self.abandoned(self.handle)
            raise
        task = asyncio.current_task()
        if task is not None:
            self._tasks[task] = self
        return self._face(entered[0], self._lane)

    def leave(self, *raised: Any) -> Coroutine[Any, Any, bool | None]:
        """End the block, with the exception that ended its body. From here on the statement keeps the coroutine."""
        leaving = self._leave(*raised)
        self.handle = ref(leaving, self.abandoned)
        return leaving

    async def _leave(self, *raised: Any) -> bool | None:
        try:
            return await self._lane.finish(lambda: self._block.__exit__(*raised))
        except BaseException as error:
            self._lane.post(partial(self._end, error))  # perhaps nothing was queued; a block that has ended bears it
            raise
        finally:
            self._forget()
            self.handle = None

    def abandoned(self, handle: object) -> None:
        self._lane.post(partial(self._end, GeneratorExit()))
        self._forget()

    def _end_for_its_task(self) -> None:
        self.abandoned(self.handle)

    def _end(self, error: BaseException) -> None:
        with suppress(BaseException):
            _raise_in(self._block, error)

    def _forget(self) -> None:
        for task, block in list(self._tasks.items()):
            if block is self:
                self._tasks.pop(task, None)
        self._lane.close()


class PinnedBlock(AbstractAsyncContextManager[T]):
    """``async with`` over a sync block; ``face`` makes of what the block gives what the coroutine gets.

    ``admit`` raises where a task may not enter it; ``tasks`` says which ones have.
    """

    def __init__(
        self,
        block: AbstractContextManager[Any],
        face: Callable[[Any, Lane], T],
        tasks: Tasks,
        admit: Callable[[], None],
    ) -> None:
        self._pinned = Pinned(block, face, tasks, admit)

    async def __aenter__(self) -> T:
        pinned = self._pinned
        if pinned.handle is None:  # entered by a call: the block lasts as long as somebody has this object
            pinned.handle = ref(self, pinned.abandoned)
        entered: T = await pinned.enter()
        return entered

    __aexit__ = Exit(Pinned.leave, "_pinned")


class PinnedRunner:
    """Everything on one thread, where a transaction lives."""

    def __init__(self, lane: Lane) -> None:
        self.read = self.write = lane.run
        self.finish = lane.finish

    def refuse_closed(self) -> None:
        """Its calls are those of the transaction."""


def refuse_inside(tasks: Tasks, problem: str) -> None:
    """Raise `NestedTransaction` for a task that is inside one of these blocks."""
    task = asyncio.current_task()
    block = tasks.get(task) if task is not None else None
    if block is not None and not block.gone:
        raise NestedTransaction(problem)


def _raise_in(block: AbstractContextManager[Any], error: BaseException) -> bool | None:
    return block.__exit__(type(error), error, error.__traceback__)
