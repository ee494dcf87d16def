"""Sync context managers for coroutines.

They are entered and left on a worker thread, where they see the body's exception.
"""

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

# Context managers that have a thread of their own: transactions and views.

T = TypeVar("T")

#: Maps each task to the block (transaction or view) that it is inside of.
Tasks = MutableMapping["asyncio.Task[Any]", "Pinned"]


class Pinned(HeldResource):
    """A sync context manager with a thread of its own.

    It is left on that thread, however the ``async with`` statement ends.
    """

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
        """Enter the context manager and return the async form of its target.

        If the task is cancelled meanwhile, leave it again.
        """
        self._admit()
        entered: list[Any] = []
        try:
            await self._lane.run(lambda: entered.append(self._block.__enter__()))
        except BaseException as raised:
            if entered:
                await self._lane.finish(partial(self._end, raised))
            self.end_interrupted(self.handle)
            raise
        task = asyncio.current_task()
        if task is not None:
            self._tasks[task] = self
        return self._face(entered[0], self._lane)

    def leave(self, *raised: Any) -> Coroutine[Any, Any, bool | None]:
        """Return a coroutine that exits the block with the body's exception.

        If it is never awaited, the block ends when the coroutine is garbage-collected.
        """
        leaving = self._leave(*raised)
        self.handle = ref(leaving, self.end_interrupted)
        return leaving

    async def _leave(self, *raised: Any) -> bool | None:
        try:
            return await self._lane.finish(lambda: self._block.__exit__(*raised))
        except BaseException as error:
            self._lane.post(partial(self._end, error))  # in case the exit was never queued; a second exit does no harm
            raise
        finally:
            self._forget()
            self.handle = None

    def end_interrupted(self, handle: object) -> None:
        self._lane.post(partial(self._end, GeneratorExit()))
        self._forget()

    def _end_for_its_task(self) -> None:
        self.end_interrupted(self.handle)

    def _end(self, error: BaseException) -> None:
        with suppress(BaseException):
            _exit_pinned(self._block, error)

    def _forget(self) -> None:
        for task, block in list(self._tasks.items()):
            if block is self:
                self._tasks.pop(task, None)
        self._lane.close()


class PinnedBlock(AbstractAsyncContextManager[T]):
    """An ``async with`` block over a sync context manager.

    ``face`` converts its target to the async object for the body. ``admit`` raises if the current task may not enter.
    ``tasks`` maps each task inside to its block.
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
        if pinned.handle is None:  # entered by hand, without a statement: the block lasts as long as this object
            pinned.handle = ref(self, pinned.end_interrupted)
        entered: T = await pinned.enter()
        return entered

    __aexit__ = Exit(Pinned.leave, "_pinned")


class PinnedRunner:
    """Runs all calls of a transaction on the transaction's thread."""

    def __init__(self, lane: Lane) -> None:
        self.read = self.write = lane.run
        self.finish = lane.finish

    def refuse_closed(self) -> None:
        """Do nothing: calls inside the transaction are allowed."""


def refuse_inside(tasks: Tasks, problem: str) -> None:
    """Raise `NestedTransaction` with this message if the current task is inside one of these blocks."""
    task = asyncio.current_task()
    block = tasks.get(task) if task is not None else None
    if block is not None and not block.is_gone:
        raise NestedTransaction(problem)


def _exit_pinned(block: AbstractContextManager[Any], error: BaseException) -> bool | None:
    return block.__exit__(type(error), error, error.__traceback__)


# Blocking iterators for coroutines. Each runs on a thread of its own.

_END: Any = object()


class StopEvent(threading.Event):
    """An event that counts as set once the iterator must end, or while the event ``stop`` of the caller is set."""

    def __init__(self, stop: threading.Event | None) -> None:
        super().__init__()
        self._stop = valid.stop(stop)

    def is_set(self) -> bool:
        """True if the iterator should end."""
        return super().is_set() or self._stop.is_set()


async def stream_items(start: Callable[[], Iterator[T]], stop: threading.Event | None = None) -> AsyncIterator[T]:
    """Yield the items of the blocking iterator that ``start`` returns. Each item is fetched on a worker thread.

    Leaving the loop over it, or cancelling the task that waits for an item, sets ``stop`` and closes the iterator.
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


# ``transaction(connection=…)`` of an async store: calls inside the caller's own async transaction. The caller's
# connection belongs to the event loop. So these calls run not on a thread, but in a greenlet of the loop, as
# SQLAlchemy's own calls do.

R = TypeVar("R")


class JoinedBlock(AbstractAsyncContextManager[T]):
    """An ``async with`` block that joined the caller's transaction. ``face`` converts its target for coroutines."""

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
    """Runs calls one after the other, each in a greenlet of the event loop."""

    def __init__(self) -> None:
        self._turn_lock = asyncio.Lock()

    def read(self, call: Callable[[], R]) -> Awaitable[R]:
        return self._run_in_turn(call)

    write = finish = read

    def refuse_closed(self) -> None:
        """Do nothing: calls inside the transaction are allowed."""

    async def _run_in_turn(self, call: Callable[[], R]) -> R:
        async with self._turn_lock:
            made: R = await greenlet_spawn(call)
            return made


def sync_of(given: Any) -> Connection | Session:
    """Return the sync connection or session inside an async one. Raises `MisuseError` for any other object."""
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
async def enter_block(
    runner: Runner, block: AbstractContextManager[T], asked: Callable[[], object] | None = None
) -> AsyncIterator[T]:
    """Enter a sync context manager on shared threads and yield its target. If the task is cancelled, leave it again.

    ``asked`` is the call that created the block. Its arguments are checked while the block waits for a thread.
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
    """Descriptor for a sync method that returns a context manager: ``async with face.method(…) as target``."""

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
            return enter_block(face._runner, asked(), asked)

        return call


def block(method: Callable[Concatenate[Any, P], AbstractContextManager[T]]) -> Block[P, T]:
    """Forward a method that returns a context manager. Cancelling the task inside it has the effect of an exception."""
    return Block(method)


def _enter(block: AbstractContextManager[T], targets: list[T], _asked: object) -> None:
    targets.append(block.__enter__())


def _raise_in(block: AbstractContextManager[Any], error: BaseException) -> bool | None:
    return block.__exit__(type(error), error, error.__traceback__)
