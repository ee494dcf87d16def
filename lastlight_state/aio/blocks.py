"""Sync blocks around coroutines: entered and left on a worker thread, with the exception that ended them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator, MutableMapping
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager, suppress
from functools import partial, wraps
from types import TracebackType
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypeVar, overload
from weakref import ref

from sqlalchemy.engine import Connection
from sqlalchemy.orm import Session
from sqlalchemy.util import greenlet_spawn

from lastlight_state.aio.forward import Face, Runner
from lastlight_state.aio.lanes import Lane
from lastlight_state.db import valid
from lastlight_state.errors import MisuseError, NestedTransaction
from lastlight_state.lazy import load
from lastlight_state.unwinding import Exit, HeldResource

# Blocks of coroutines that have a thread of their own: transactions and views.

T = TypeVar("T")

#: Which tasks are inside a block of which store.
Tasks = MutableMapping["asyncio.Task[Any]", "Pinned"]


class Pinned(HeldResource):
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
        """Return what the block gives. A task that is cancelled while it enters leaves it again."""
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
            _exit_pinned(self._block, error)

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
        """Keep the calls of the transaction as the calls of the block."""


def refuse_inside(tasks: Tasks, problem: str) -> None:
    """Raise `NestedTransaction` for a task that is inside one of these blocks."""
    task = asyncio.current_task()
    block = tasks.get(task) if task is not None else None
    if block is not None and not block.gone:
        raise NestedTransaction(problem)


def _exit_pinned(block: AbstractContextManager[Any], error: BaseException) -> bool | None:
    return block.__exit__(type(error), error, error.__traceback__)


# Blocking iterators for coroutines: each runs on a thread of its own.

_END: Any = object()


class StopEvent(threading.Event):
    """Set when the iteration was left, and while ``stop`` of the caller is set."""

    def __init__(self, stop: threading.Event | None) -> None:
        super().__init__()
        self._stop = valid.stop(stop)

    def is_set(self) -> bool:
        """Return whether the iterator is to end."""
        return super().is_set() or self._stop.is_set()


async def streamed(start: Callable[[], Iterator[T]], stop: threading.Event | None = None) -> AsyncIterator[T]:
    """Yield the items of the iterator that ``start`` returns.

    Leaving the iteration, or cancelling the task that waits for an item, sets ``stop`` and closes the iterator.
    """
    lane = Lane("stream")
    cancelled = stop.set if stop is not None else None
    items: Iterator[T] | None = None
    try:
        items = await lane.run(start)
        while (item := await lane.run(partial(next, items, _END), on_cancel=cancelled)) is not _END:
            yield item
    finally:
        if stop is not None:
            stop.set()
        close = getattr(items, "close", None)
        if close is not None:
            await lane.finish(close)
        lane.close()


# ``transaction(connection=…)`` of an async store: calls inside an asynchronous transaction of the caller's.
#
# What is awaited there belongs to the event loop. So these calls are not made on a thread, but in a greenlet of the
# loop, as SQLAlchemy makes its own.

R = TypeVar("R")


class JoinedBlock(AbstractAsyncContextManager[T]):
    """``async with`` over a sync block that joined; ``face`` makes of what the block gives what the coroutine gets."""

    def __init__(
        self, block: AbstractContextManager[Any], face: Callable[[Any, Runner], T], admit: Callable[[], None]
    ) -> None:
        self._block = block
        self._face = face
        self._admit = admit
        self._runner = _LoopRunner()

    async def __aenter__(self) -> T:
        self._admit()
        return self._face(await self._runner.write(self._block.__enter__), self._runner)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        return await self._runner.finish(partial(self._block.__exit__, kind, error, trace))


class _LoopRunner:
    """Makes calls in greenlets of the event loop, one after the other."""

    def __init__(self) -> None:
        self._turn = asyncio.Lock()

    def read(self, call: Callable[[], R]) -> Awaitable[R]:
        return self._made(call)

    write = finish = read

    def refuse_closed(self) -> None:
        """Do nothing: its calls are those of the transaction."""

    async def _made(self, call: Callable[[], R]) -> R:
        async with self._turn:
            made: R = await greenlet_spawn(call)
            return made


def sync_of(given: Any) -> Connection | Session:
    """Return the sync connection or session below an asynchronous one. Raises `MisuseError` for anything else."""
    kinds = load("sqlalchemy.ext.asyncio")
    if isinstance(given, kinds.AsyncSession | kinds.AsyncConnection):
        found: Connection | Session | None = getattr(given, "sync_session", None) or given.sync_connection
        if found is not None:
            return found
        instead = "it is not connected: use `async with engine.begin() as connection`"
    elif isinstance(given, kinds.AsyncEngine):
        instead = "use `async with engine.begin() as connection`"
    elif isinstance(given, Connection | Session):
        instead = "use StateStore.transaction, in a thread of its own"
    elif hasattr(given, "registry"):  # an async_scoped_session
        instead = "give session()"
    else:
        instead = "give one that is inside a transaction"
    raise MisuseError(
        f"connection= takes an AsyncConnection or AsyncSession of SQLAlchemy, not {type(given).__name__}: {instead}"
    )


P = ParamSpec("P")


@asynccontextmanager
async def entered(
    runner: Runner, block: AbstractContextManager[T], asked: Callable[[], object] | None = None
) -> AsyncIterator[T]:
    """Give what the block gives, on shared threads. A task that is cancelled while it enters leaves it again.

    ``asked`` is the call that made the block, by which its arguments are judged while it waits for a thread.
    """
    targets: list[T] = []
    try:
        await runner.write(partial(_enter, block, targets, asked))
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
            asked = partial(getattr(face._target, self.name), *args, **kwargs)
            return entered(face._runner, asked(), asked)

        return call


def block(method: Callable[Concatenate[Any, P], AbstractContextManager[T]]) -> Block[P, T]:
    """Forward a method that gives a block. A task that is cancelled in it leaves the block as an exception does."""
    return Block(method)


def _enter(block: AbstractContextManager[T], targets: list[T], _asked: object) -> None:
    targets.append(block.__enter__())


def _raise_in(block: AbstractContextManager[Any], error: BaseException) -> bool | None:
    return block.__exit__(type(error), error, error.__traceback__)
