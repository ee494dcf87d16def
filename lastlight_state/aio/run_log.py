"""The async form of ``store.run_log``. Its calls run on their own threads, so that files never wait for a database."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from lastlight_state.aio.blocks import stream_items
from lastlight_state.aio.forward import Face, forward_read, forward_write
from lastlight_state.aio.lanes import Lane
from lastlight_state.files.run_log import (
    Checks,
    PromptTurn,
    Replay,
    RunHeader,
    RunLog,
    RunReading,
    RunRecord,
    Runs,
    RunWriter,
    States,
)
from lastlight_state.files.run_log.paths import OnError
from lastlight_state.lazy import Part

T = TypeVar("T")


class _InTurn:
    """Runs the calls of one writer one at a time, in the order in which they were made."""

    def __init__(self) -> None:
        self.lane = Lane("run-log")

    def read(self, call: Callable[[], T]) -> Awaitable[T]:
        return self.lane.run(call)

    def write(self, call: Callable[[], T]) -> Awaitable[T]:
        return self.lane.run(call)

    def finish(self, call: Callable[[], T]) -> Awaitable[T]:
        return self.lane.finish(call)

    def refuse_closed(self) -> None:
        """Do nothing: file writes are allowed inside a transaction."""


class AsyncRunWriter(Face[RunWriter]):
    """A `RunWriter` for ``async with``. Calls keep their order, even if they are not awaited one by one."""

    append = forward_write(RunWriter.append)
    run_start = forward_write(RunWriter.run_start)
    context = forward_write(RunWriter.context)
    event = forward_write(RunWriter.event)
    tool_output = forward_write(RunWriter.tool_output)
    llm_request = forward_write(RunWriter.llm_request)
    llm_response = forward_write(RunWriter.llm_response)
    status = forward_write(RunWriter.status)
    error = forward_write(RunWriter.error)
    end = forward_write(RunWriter.end)
    flush = forward_write(RunWriter.flush)

    def __init__(self, target: RunWriter) -> None:
        self._turns = _InTurn()
        super().__init__(target, self._turns)

    @property
    def run_id(self) -> str:
        """Return the id of the run whose log is written."""
        return self._target.run_id

    @property
    def path(self) -> Path:
        """Return the path of the run's log file."""
        return self._target.path

    @property
    def ended(self) -> bool:
        """See `RunWriter.ended`."""
        return self._target.ended

    @property
    def failed_appends(self) -> int:
        """Number of records that could not be written."""
        return self._target.failed_appends

    async def close(self) -> None:
        """See `RunWriter.close`. Earlier calls are finished first, even if the task is cancelled."""
        if self._turns.lane.is_open:
            try:
                await self._turns.finish(self._target.close)
            finally:
                self._turns.lane.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._turns.lane.is_open:
            return
        try:
            await self._turns.finish(partial(self._target.__exit__, kind, error, trace))
        finally:
            self._turns.lane.close()


class AsyncRunReading:
    """A `RunReading` for coroutines. Read its records with ``async for``.

    Other attributes are those of the sync object.
    """

    def __init__(self, target: RunReading) -> None:
        self.facts = target

    def __aiter__(self) -> AsyncIterator[RunRecord]:
        return stream_items(lambda: iter(self.facts))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.facts, name)


class AsyncRuns(Face[Runs]):
    """The async form of ``store.run_log.runs``."""

    tail = forward_read(Runs.tail)
    last = forward_read(Runs.last)
    find = forward_read(Runs.find)
    get = forward_read(Runs.get)
    list = forward_read(Runs.list)
    path = forward_read(Runs.path)
    pack = forward_write(Runs.pack)
    prune = forward_write(Runs.prune)

    async def start(self, header: RunHeader, *, invoke_seq: int = 0, on_error: OnError = "raise") -> AsyncRunWriter:
        """See `Runs.start`."""
        start = partial(self._target.start, header, invoke_seq=invoke_seq, on_error=on_error)
        return AsyncRunWriter(await self._runner.write(start))

    async def reopen(self, run_id: str, *, invoke_seq: int = 0, on_error: OnError = "raise") -> AsyncRunWriter:
        """See `Runs.reopen`."""
        reopen = partial(self._target.reopen, run_id, invoke_seq=invoke_seq, on_error=on_error)
        return AsyncRunWriter(await self._runner.write(reopen))

    async def read(
        self, run_id: str, *, types: Collection[str] | None = None, strict_version: bool = False
    ) -> AsyncRunReading:
        """See `Runs.read`."""
        read = partial(self._target.read, run_id, types=types, strict_version=strict_version)
        return AsyncRunReading(await self._runner.read(read))


class AsyncReplay(Face[Replay]):
    """The async form of ``store.run_log.replay``."""

    prompt = forward_read(Replay.prompt)
    events = forward_read(Replay.events)
    history = forward_read(Replay.history)
    summarise = forward_read(Replay.summarise)

    def prompts(self, run_id: str) -> AsyncIterator[PromptTurn]:
        """See `Replay.prompts`. Raises `NotFound` only when the first turn is requested."""
        return stream_items(lambda: self._target.prompts(run_id))


class AsyncChecks(Face[Checks]):
    """The async form of ``store.run_log.checks``."""

    validate = forward_read(Checks.validate)
    salvage = forward_write(Checks.salvage)


class AsyncStates(Face[States]):
    """The async form of ``store.run_log.states``.

    The argument ``change`` of `update` is a plain function, run on a thread.
    """

    find = forward_read(States.find)
    get = forward_read(States.get)
    put = forward_write(States.put)
    update = forward_write(States.update)
    list = forward_read(States.list)
    clear = forward_write(States.clear)
    reconstruct = forward_read(States.reconstruct)


class AsyncRunLog(Face[RunLog]):
    """The async form of ``store.run_log``."""

    #: Starts, continues, reads and lists the logs of runs.
    runs: Part[AsyncRuns] = Part("lastlight_state.aio.run_log.AsyncRuns")
    #: Prompts, events and summaries of runs.
    replay: Part[AsyncReplay] = Part("lastlight_state.aio.run_log.AsyncReplay")
    #: Validates logs, and writes clean copies of damaged ones.
    checks: Part[AsyncChecks] = Part("lastlight_state.aio.run_log.AsyncChecks")
    #: The snapshots from which sessions resume.
    states: Part[AsyncStates] = Part("lastlight_state.aio.run_log.AsyncStates")

    @property
    def root(self) -> Path:
        """Return the directory whose ``sessions`` folder holds all files."""
        return self._target.root
