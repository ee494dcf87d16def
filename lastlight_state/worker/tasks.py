"""A worker whose functions are coroutines."""

from __future__ import annotations

import asyncio
import logging
import signal
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, cast

from lastlight_state.errors import BackendError, ClaimLost, Conflict, NotFound, StateError
from lastlight_state.worker.common import (
    PAUSE_SECONDS,
    SWEEP_SECONDS,
    WAIT_SECONDS,
    HeldRun,
    Left,
    Registry,
    RunFailed,
    gate_of,
)
from lastlight_state.workflows import Approval, Claim, Failure, Gate

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager

    from lastlight_state.aio import AsyncStateStore, AsyncTransaction
    from lastlight_state.aio.journal import AsyncJournal
    from lastlight_state.aio.workflows import AsyncWorkflows
    from lastlight_state.workflows import DrivenRun

T = TypeVar("T")
_Journal: TypeAlias = "AsyncJournal"
_Block: TypeAlias = "AbstractAsyncContextManager[AsyncTransaction]"

_log = logging.getLogger("lastlight_state.worker")


class AsyncJob(HeldRun["AsyncStateStore", "AsyncWorkflows", _Journal, _Block]):
    """A `Job` for a coroutine. ``check`` is not awaited. A task that is cancelled gives its run back."""

    async def phase(self, name: str, work: Callable[[], Awaitable[T]]) -> T:
        """See `Job.phase`."""
        if name in self._results:
            return cast(T, self._results[name])
        self.check()
        executions = self.workflows.executions
        execution = await executions.start(f"{self.run.workflow_name}:{name}", run_id=self.run.id)
        try:
            result = await work()
        except Exception as error:  # raised again once it is stored
            with suppress(StateError):
                await executions.finish(execution.id, "failed", failure=Failure(f"{type(error).__name__}: {error}"))
            raise
        await executions.finish_phase(execution.id, scratch={name: result})
        self._results[name] = result
        return result

    async def ask(self, gate: Gate | str, summary: str | None = None, **details: Any) -> Approval:
        """See `Job.ask`."""
        asked = gate_of(gate, summary, details)
        self.check()
        found = await self.workflows.approvals.find(self.run.id, asked.gate, node=asked.node)
        if found is not None and found.status != "pending":
            return found
        if found is None:
            await self.workflows.approvals.pause(self.run.id, asked)
        else:
            await self.workflows.waits.pause(self.run.id, gates=[found.id])
        raise Left

    async def emit(self, type: str, payload: dict[str, Any] | None = None, *, event_id: str | None = None) -> None:  # noqa: A002 - the journal's word
        """See `Job.emit`."""
        await self.journal.events.append(self.run.id, type, payload, event_id=event_id)


class AsyncWorker(Registry[Callable[[AsyncJob], Awaitable[Any]]]):
    """A `Worker` with a task for each run instead of a thread."""

    def __init__(self, store: AsyncStateStore, **settings: Any) -> None:
        """Make a worker over a store. ``settings`` are those of `Worker`."""
        super().__init__(**settings)
        self._store = store
        self._stop: asyncio.Event = asyncio.Event()
        self._jobs: dict[str, asyncio.Task[None]] = {}

    async def run(self) -> None:
        """See `Worker.run`. A task that is cancelled ends its jobs in the same way, without grace."""
        names = self._names
        waiting: asyncio.Task[bool] | None = None
        stopping = asyncio.ensure_future(self._stop.wait())
        with self._signals():
            try:
                while not self._stop.is_set():
                    try:
                        if self._sweep_is_due:
                            await self._store.workflows.claims.give_up(workflow_names=names)
                            self._swept = time.monotonic()
                        while len(self._jobs) < self.slots and await self._take():
                            pass
                        if len(self._jobs) < self.slots and (waiting is None or waiting.done()):
                            waiting = asyncio.ensure_future(self._wait())
                        pause = SWEEP_SECONDS
                    except BackendError as error:
                        _log.warning("the database cannot be used at the moment: %s", error)
                        pause = PAUSE_SECONDS
                    awaited = {stopping, *self._jobs.values(), *([waiting] if waiting is not None else [])}
                    await asyncio.wait(awaited, timeout=pause, return_when=asyncio.FIRST_COMPLETED)
                if self._jobs:
                    await asyncio.wait(self._jobs.values(), timeout=self.grace.total_seconds())
            finally:
                ending = [stopping, *self._jobs.values(), *([waiting] if waiting is not None else [])]
                for task in ending:
                    task.cancel()
                await asyncio.gather(*ending, return_exceptions=True)
        self._stop.clear()

    def stop(self) -> None:
        """Tell `run` to end. Returns at once. To be called in the loop of `run`."""
        self._stop.set()

    async def _take(self) -> bool:
        workflows, free = self._store.workflows, self.slots - len(self._jobs)
        claims = await workflows.queue.admit_next(**self._admitting, **self._taking, limit=free)
        if len(claims) < free:
            limit = free - len(claims)
            claims += await workflows.claims.take_next(**self._taking, workflow_names=self._names, limit=limit)
        for claim in claims:
            task = asyncio.ensure_future(self._drive(claim))
            self._jobs[claim.run_id] = task
            task.add_done_callback(partial(self._ended, claim.run_id))
        return bool(claims)

    def _ended(self, run_id: str, _: asyncio.Task[None]) -> None:
        self._jobs.pop(run_id, None)

    async def _wait(self) -> bool:
        with suppress(StateError):
            return await self._store.workflows.queue.wait(**self._admitting, timeout=WAIT_SECONDS, claimable=True)
        return False

    async def _drive(self, claim: Claim) -> None:
        try:
            run = await self._store.workflows.runs.get(claim.run_id)
            async with self._store.driving(claim) as driven:
                if claim.left_in_flight:
                    await driven.workflows.executions.interrupt(run.id, reason="its worker is gone")
                job = AsyncJob(self._store, run, driven, self._stop)
                try:
                    job.check()
                    await self._functions[run.workflow_name](job)
                    await _finish(driven, run.id, "succeeded")
                except RunFailed as error:
                    await _finish(driven, run.id, "failed", failure=error.failure)
                except Left:
                    if job._ends_cancelled:
                        await _finish(driven, run.id, "cancelled")
        except (ClaimLost, NotFound) as error:
            _log.info("run %s is another's: %s", claim.run_id, error)
        except Exception:  # noqa: BLE001 - the run is tried again when its lease is over
            _log.exception("run %s failed, and is tried again when its lease is over", claim.run_id)

    @contextmanager
    def _signals(self) -> Iterator[None]:
        """Stop at SIGTERM and SIGINT in the block, where the loop is the main thread's."""
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


async def _finish(driven: DrivenRun[AsyncWorkflows], run_id: str, status: Any, failure: Failure | None = None) -> None:
    try:
        await driven.workflows.runs.finish(run_id, status, failure=failure)
    except (ClaimLost, Conflict) as error:
        _log.debug("run %s was ended or paused by its function: %s", run_id, error)
