"""A worker whose workflow functions are coroutines."""

from __future__ import annotations

import asyncio
import logging
import signal
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, overload

from lastlight_state.errors import BackendError, StateError
from lastlight_state.journal import Signal
from lastlight_state.worker.common import PAUSE_SECONDS, Registry
from lastlight_state.worker.held import HeldRun
from lastlight_state.worker.loops import LoopSteps
from lastlight_state.worker.memory import Place
from lastlight_state.worker.steps import Steps, require_input
from lastlight_state.workflows import Approval, Claim, Gate, HumanRequest, Question, RunningExecution, WorkflowRun

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager

    from lastlight_state.aio import AsyncStateStore, AsyncTransaction
    from lastlight_state.aio.journal import AsyncJournal
    from lastlight_state.aio.workflows import AsyncWorkflows

T = TypeVar("T")
_Journal: TypeAlias = "AsyncJournal"
_Workflows: TypeAlias = "AsyncWorkflows"
_Block: TypeAlias = "AbstractAsyncContextManager[AsyncTransaction]"

_log = logging.getLogger("lastlight_state.worker")


class _HeldRun(HeldRun["AsyncStateStore", _Workflows, _Journal, _Block]):
    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.storing_lock = asyncio.Lock()

    def is_stopped_by(self, error: BaseException) -> bool:
        task = asyncio.current_task()
        if task is None:  # no task: the coroutine is being closed
            return True
        return isinstance(error, asyncio.CancelledError) and task.cancelling() > 0


class AsyncJobSteps(Steps["AsyncStateStore", _Workflows, _Journal, _Block]):
    """The steps of `JobSteps` as coroutines."""

    @overload
    async def phase(
        self,
        name: str,
        work: Callable[[RunningExecution], Awaitable[Any]] | Callable[[], Awaitable[Any]],
        *,
        returns: type[T],
    ) -> T: ...
    @overload
    async def phase(
        self, name: str, work: Callable[[RunningExecution], Awaitable[T]] | Callable[[], Awaitable[T]]
    ) -> T: ...
    async def phase(
        self,
        name: str,
        work: Callable[[RunningExecution], Awaitable[Any]] | Callable[[], Awaitable[Any]],
        *,
        returns: Any = None,
    ) -> Any:
        """See `Job.phase`."""
        return await self._phase(name, work, returns)

    @overload
    async def ask(self, gate: Question) -> HumanRequest: ...
    @overload
    async def ask(self, gate: Gate | str, summary: str | None = None, **details: Any) -> Approval: ...
    async def ask(
        self, gate: Gate | Question | str, summary: str | None = None, **details: Any
    ) -> Approval | HumanRequest:
        """See `Job.ask`."""
        if isinstance(gate, Question):
            return await self._question(gate)
        return await self._ask(gate, summary, details)

    async def sleep(
        self, length: timedelta | None = None, *, until: datetime | None = None, name: str = "sleep"
    ) -> None:
        """See `Job.sleep`."""
        await self._sleep(length, until, name)

    async def wait_for(
        self,
        signal: str,
        *,
        correlation_id: str | None = None,
        timeout: timedelta | None = None,  # noqa: ASYNC109 - the run is paused for it, and nothing waits here
        name: str | None = None,
    ) -> Signal | None:
        """See `Job.wait_for`."""
        return await self._wait_for(signal, correlation_id, timeout, name)

    def loop(self, name: str, *, limit: int | None = None) -> AsyncIterator[AsyncTurn]:
        """See `Job.loop`; used with ``async for``."""
        return _Turns(self._held, self._place, name, limit)

    async def emit(self, type: str, payload: dict[str, Any] | None = None, *, event_id: str | None = None) -> None:  # noqa: A002 - the journal's word
        """See `Job.emit`."""
        await self._emit(type, payload, event_id)


class AsyncTurn(AsyncJobSteps):
    """A `Turn` whose steps are coroutines."""

    @property
    def number(self) -> int:
        """Return the turn's number, counted from 0."""
        return self._place.turn

    async def answers(self) -> tuple[Approval, ...]:
        """See `Turn.answers`."""
        return await self._answers()

    async def last_output(self) -> str | None:
        """See `Turn.last_output`."""
        return await self._last_output()


class _Turns(LoopSteps):
    def __aiter__(self) -> _Turns:
        return self

    async def __anext__(self) -> AsyncTurn:
        place = await self._next()
        if place is None:
            raise StopAsyncIteration
        return AsyncTurn(self._held, place)


class AsyncJob(AsyncJobSteps):
    """A `Job` whose steps, except ``check``, are coroutines. If its task is cancelled, the run is released."""

    def __init__(self, held: _HeldRun, place: Place, given: Any = None) -> None:
        super().__init__(held, place)
        self._given = given

    @property
    def input(self) -> Any:
        """See `Job.input`."""
        return require_input(self._given)


class AsyncWorker(Registry[Callable[[AsyncJob], Awaitable[Any]]]):
    """A `Worker` that drives each run in an asyncio task instead of a thread."""

    def __init__(self, store: AsyncStateStore, **settings: Any) -> None:
        """Create a worker over a store. ``settings`` are those of `Worker`."""
        super().__init__(**settings)
        self._store: AsyncStateStore = store
        self._stop: asyncio.Event = asyncio.Event()
        self._jobs: dict[str, asyncio.Task[None]] = {}
        self._waiting: asyncio.Task[bool] | None = None

    async def run(self) -> None:
        """See `Worker.run`. If its task is cancelled, the jobs end in the same way but without the time ``grace``."""
        self._refuse_idle()
        stopping = asyncio.ensure_future(self._stop.wait())
        with self._signals():
            try:
                while not self._stop.is_set():
                    begun = time.monotonic()
                    try:
                        pause = await self._look()
                    except BackendError as error:
                        _log.warning("the database cannot be used at the moment: %s", error)
                        self._note_outage(begun)
                        pause = PAUSE_SECONDS
                    await asyncio.wait([stopping, *self._tasks], timeout=pause, return_when=asyncio.FIRST_COMPLETED)
                    if self._waiting is not None and self._waiting.done():
                        self._waiting = None  # else the next waits would return at once while the slots are full
                if self._jobs:
                    await asyncio.wait(self._jobs.values(), timeout=self.grace.total_seconds())
            finally:
                ending = [stopping, *self._tasks]
                for task in ending:
                    task.cancel()
                await asyncio.gather(*ending, return_exceptions=True)
                await self._forget()
        self._stop.clear()

    @property
    def _tasks(self) -> list[asyncio.Task[Any]]:
        """Return the tasks of all jobs, and the task that waits for work."""
        return [*self._jobs.values(), *([self._waiting] if self._waiting is not None else [])]

    def stop(self) -> None:
        """Make `run` end, and return immediately. Call this in the event loop of `run`."""
        self._stop.set()

    def _start(self, claim: Claim) -> None:
        task = asyncio.ensure_future(self._drive(claim))
        self._jobs[claim.run_id] = task
        task.add_done_callback(partial(self._remove_job, claim.run_id))

    def _watch(self) -> None:
        if self._waiting is None:
            self._waiting = asyncio.ensure_future(self._wait())

    def _remove_job(self, run_id: str, _: asyncio.Task[None]) -> None:
        self._jobs.pop(run_id, None)

    async def _wait(self) -> bool:
        with suppress(StateError):
            return await self._store.workflows.queue.wait(**self._waiting_for)
        return False

    def _held_run(self, run: WorkflowRun, driven: Any) -> _HeldRun:
        return _HeldRun(self._store, run, driven, self._stop, self._wait_out)

    def _job(self, held: _HeldRun, given: Any) -> AsyncJob:
        return AsyncJob(held, held.memory.whole, given)

    def _pause(self, seconds: float) -> Awaitable[None]:
        return asyncio.sleep(seconds)

    @contextmanager
    def _signals(self) -> Iterator[None]:
        """Call `stop` at SIGTERM and SIGINT during the block, if the event loop runs in the main thread."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        loop, numbers = asyncio.get_running_loop(), (signal.SIGTERM, signal.SIGINT)
        for number in numbers:
            loop.add_signal_handler(number, self.stop)
        try:
            yield
        finally:
            for number in numbers:
                loop.remove_signal_handler(number)
