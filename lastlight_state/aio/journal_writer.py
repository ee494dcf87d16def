"""The async form of ``store.journal.writer``. Appending uses no thread, and waiting blocks none."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from lastlight_state.aio.forward import Face, forward_read
from lastlight_state.db.gate import guard_arguments
from lastlight_state.errors import InvalidValue, UnsavedEvents
from lastlight_state.files.jsonl.writer import SyncWord
from lastlight_state.journal import Event, writer
from lastlight_state.journal.arguments import NewEvent, WriterOptions
from lastlight_state.journal.events import Events
from lastlight_state.journal.records import WriterStats
from lastlight_state.journal.writer import CLOSE_SECONDS, NO_OPTIONS, JournalWriter, PendingEvent, has_room, number_of
from lastlight_state.journal.writer.core import Listener
from lastlight_state.journal.writer.mirrors import LineFileMirror, Mirror
from lastlight_state.journal.writer.queue import LOOK_SECONDS, Entry, Queue
from lastlight_state.journal.writer.registry import Writer


class AsyncPendingEvent(Face[PendingEvent]):
    """An event in a writer's queue. ``seq`` is its number, or None until it is stored."""

    @property
    def run_id(self) -> str:
        """See `PendingEvent.run_id`."""
        return self._target.run_id

    @property
    def event_id(self) -> str:
        """See `PendingEvent.event_id`."""
        return self._target.event_id

    @property
    def occurred_at(self) -> datetime:
        """See `PendingEvent.occurred_at`."""
        return self._target.occurred_at

    @property
    def seq(self) -> int | None:
        """See `PendingEvent.seq`."""
        return self._target.seq

    async def wait(self, timeout: float | None = None) -> int:  # noqa: ASYNC109 - as the sync method
        """See `PendingEvent.wait`."""
        entry, core = self._target._entry, self._target._core
        seconds = writer.check_timeout(timeout)
        if not entry.is_decided:
            self._runner.refuse_closed()
            core.saver.hurry()
            await _until(core.queue, lambda: entry.is_decided, seconds)
        return number_of(entry)


class AsyncJournalWriter(Face[JournalWriter]):
    """A `JournalWriter` for ``async with``. Listeners are called in the event loop's thread."""

    async def append(
        self,
        run_id: str,
        type: str,  # noqa: A002 - the column's name
        payload: dict[str, Any] | None = None,
        *,
        at: datetime | None = None,
        event_id: str | None = None,
        node_id: str | None = None,
    ) -> AsyncPendingEvent:
        """See `JournalWriter.append`. While the queue is full, other tasks can run."""
        entry = self._entry(run_id, NewEvent(type, payload, at, event_id, node_id))
        if not self._target._core.offer(entry):
            await self._wait_and_offer(entry)
        return AsyncPendingEvent(self._target._pending_event(entry), self._runner)

    def append_nowait(
        self,
        run_id: str,
        type: str,  # noqa: A002 - the column's name
        payload: dict[str, Any] | None = None,
        *,
        at: datetime | None = None,
        event_id: str | None = None,
        node_id: str | None = None,
    ) -> AsyncPendingEvent:
        """See `JournalWriter.append_nowait`. Not a coroutine."""
        return AsyncPendingEvent(
            self._target.append_nowait(run_id, type, payload, at=at, event_id=event_id, node_id=node_id), self._runner
        )

    async def flush(self, timeout: float | None = None) -> None:  # noqa: ASYNC109 - as the sync method
        """See `JournalWriter.flush`. Cancelling the task leaves the queue unchanged."""
        seconds = writer.check_timeout(timeout)
        self._runner.refuse_closed()
        core = self._target._core
        core.queue.refuse_if_over()
        flush = core.flush()
        await _until(core.queue, flush.is_over, seconds)
        core.report(flush)

    async def close(self, timeout: float | None = CLOSE_SECONDS) -> None:  # noqa: ASYNC109 - as the sync method
        """See `JournalWriter.close`."""
        seconds = writer.check_timeout(timeout)
        core = self._target._core
        if core.is_over:
            return
        self._runner.refuse_closed()
        core.close()
        end = None if seconds is None else time.monotonic() + seconds
        flush = core.flush()
        await _until(core.queue, flush.is_over, seconds)
        core.saver.end()
        left = None if end is None else max(end - time.monotonic(), 0.1)
        await _until(core.queue, lambda: not core.saver.is_at_work, left)
        core.report_last(flush)

    def subscribe(self, listener: Listener, types: Collection[str] = ()) -> None:
        """See `JournalWriter.subscribe`. Not a coroutine. The listener is a plain function."""
        self._target.subscribe(listener, types)

    def unsubscribe(self, listener: Listener) -> None:
        """See `JournalWriter.unsubscribe`. Not a coroutine."""
        self._target.unsubscribe(listener)

    def stats(self) -> WriterStats:
        """See `JournalWriter.stats`. Not a coroutine."""
        return self._target.stats()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self.close()
        except UnsavedEvents as unsaved:
            if error is None:
                raise
            error.add_note(f"the writer was closed, too: {unsaved}")

    @guard_arguments
    def _entry(self, run_id: str, given: NewEvent) -> Entry:
        return self._target._core.entry(run_id, given)

    async def _wait_and_offer(self, entry: Entry) -> None:
        core = self._target._core
        if core.options.when_full == "refuse":
            raise core.full()
        self._runner.refuse_closed()
        end = time.monotonic() + core.options.full_timeout
        while True:
            core.saver.notice()
            left = max(end - time.monotonic(), 0.0)
            if not await _until(core.queue, lambda: has_room(core, entry), left):
                raise core.full()
            if core.offer(entry):
                return


class AsyncWriter(Face[Writer]):
    """The async form of ``store.journal.writer``."""

    def __call__(self, options: WriterOptions = NO_OPTIONS, *, mirrors: Collection[Mirror] = ()) -> AsyncJournalWriter:
        """Open a writer, as `Writer` does. Not a coroutine.

        Mirrors are plain functions, called in the writer's thread.
        """
        return AsyncJournalWriter(self._target(options, mirrors=mirrors), self._runner)


class AsyncLineFileMirror(Face[LineFileMirror]):
    """A `LineFileMirror` for the events of an async store."""

    def __init__(self, events: Face[Events], directory: str | Path, *, sync: SyncWord = "os") -> None:
        if not isinstance(events, Face):
            raise InvalidValue("events", f"expected store.journal.events, got {type(events).__name__}")
        super().__init__(LineFileMirror(events._target, directory, sync=sync), events._runner)

    def __call__(self, events: Collection[Event]) -> None:
        """Write the lines of a batch of events, as `LineFileMirror` does. Called in the writer's thread."""
        self._target(list(events))

    catch_up = forward_read(LineFileMirror.catch_up)

    @property
    def directory(self) -> Path:
        """Return the folder that holds the files."""
        return self._target.directory

    def path_of(self, run_id: str) -> Path:
        """See `LineFileMirror.path_of`. Not a coroutine."""
        return self._target.path_of(run_id)


async def _until(queue: Queue, until: Callable[[], bool], seconds: float | None) -> bool:
    """Wait until the condition is true, at most ``seconds``. Return False if the time runs out. See `Queue.wait`."""
    loop, woken = asyncio.get_running_loop(), asyncio.Event()

    def wake() -> None:
        with suppress(RuntimeError):  # the event loop was closed
            loop.call_soon_threadsafe(woken.set)

    end = None if seconds is None else time.monotonic() + seconds
    with queue.registered_waker(wake):
        while not until():
            left = LOOK_SECONDS if end is None else end - time.monotonic()
            if left <= 0:
                return False
            with suppress(TimeoutError):
                async with asyncio.timeout(min(left, LOOK_SECONDS)):
                    await woken.wait()
            woken.clear()
        return True
