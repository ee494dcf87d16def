"""The parts of a queued writer that never block, shared by the version for threads and the one for coroutines."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

from lastlight_state.db import valid
from lastlight_state.db.repository import Context
from lastlight_state.db.schema.declarations import limits_of
from lastlight_state.errors import BackendBusy, MisuseError, StoreClosed
from lastlight_state.ids import new_id
from lastlight_state.journal.arguments import NewEvent, WriterOptions
from lastlight_state.journal.events import checks as event_checks
from lastlight_state.journal.models import EVENTS
from lastlight_state.journal.records import QueuedEvent, WriterStats
from lastlight_state.journal.writer.mirrors import Mirror, Mirrors
from lastlight_state.journal.writer.queue import Entry, Queue
from lastlight_state.journal.writer.saver import Batches, Saver, Unreported, event_of

_LIMITS = limits_of(EVENTS)

Listener = Callable[[QueuedEvent], Any]


class Core:
    """A queued writer's queue, saver, mirrors and listeners, put together."""

    def __init__(self, context: Context, options: WriterOptions, mirrors: Sequence[Mirror]) -> None:
        self.options = options
        self.queue = Queue(options.max_queued, options.max_queued_bytes)
        self._clock = context.clock
        self._mirrors = Mirrors(mirrors)
        self._unreported = Unreported(options.max_queued)
        self.saver = Saver(self.queue, Batches(context), options, self._mirrors, self._unreported)
        self._listeners: list[tuple[Listener, frozenset[str]]] = []
        self.is_over = False

    def entry(self, run_id: str, given: NewEvent) -> Entry:
        """Return a queue entry for an event after checking and encoding it. The entry has a key and a time."""
        found = valid.identifier("run_id", run_id, _LIMITS.run_id)
        row = event_checks.event(found, given, self._clock.now())
        is_keyed = row["event_id"] is not None
        if not is_keyed:
            row["event_id"] = new_id()
        return Entry(row, is_keyed=is_keyed)

    def offer(self, entry: Entry) -> bool:
        """Append the entry to the queue and call the listeners. Returns False if the queue has no room."""
        if not self.queue.offer(entry):
            return False
        self.saver.notice()
        if self._listeners:
            self._tell(event_of(entry))
        return True

    def full(self) -> BackendBusy:
        """Return the error that an append to a full queue raises."""
        queue = self.queue
        return BackendBusy(f"the queue of events is full: {len(queue)} events with {queue.bytes} bytes of payloads")

    def subscribe(self, listener: Listener, types: frozenset[str]) -> None:
        """Call the listener with every event of these types from now on. An empty set means all types."""
        self._listeners.append((listener, types))

    def unsubscribe(self, listener: Listener) -> None:
        """Stop calling the listener."""
        self._listeners = [subscribed for subscribed in self._listeners if subscribed[0] != listener]

    def stats(self) -> WriterStats:
        """Return figures of the queued events, and counts of the stored, duplicate and failed ones."""
        first = next(iter(self.queue.head(1)), None)
        age = None if first is None else timedelta(seconds=time.monotonic() - first.queued_at)
        return WriterStats(
            queued=len(self.queue),
            queued_bytes=self.queue.bytes,
            oldest_age=age,
            stored=self.saver.stored,
            duplicates=self.saver.duplicates,
            failed=self._unreported.failed,
            mirror_failures=self._mirrors.failures,
            last_mirror_error=self._mirrors.last_error,
        )

    def flush(self, run_id: str | None = None) -> Flush:
        """Return a `Flush` of all events that are queued now, or only of those up to the given run's last event."""
        self.refuse_mirrors()
        of_run = (entry for entry in reversed(self.queue.entries()) if entry.row["run_id"] == run_id)
        return Flush(self, self.queue.last if run_id is None else next(of_run, None))

    def report(self, flush: Flush) -> None:
        """Raise `UnsavedEvents` for events of the flush that are not stored, and for failures not reported before."""
        waiting = [] if flush.is_done else flush.undecided_entries()
        cause = self.saver.error if waiting else None
        self._unreported.report(waiting, cause or (self._late() if waiting else None))

    def close(self) -> None:
        """Refuse further events."""
        self.queue.refuse(StoreClosed("the queued writer is closed"))

    def report_last(self, flush: Flush) -> None:
        """Raise errors like `report`, and end the writer. Events that are not stored by now never will be."""
        try:
            self.report(flush)
        finally:
            self.end()

    def end(self) -> None:
        """Drop all queued events. Callers that wait for a dropped event get `StoreClosed`."""
        self.is_over = True
        for entry in self.queue.entries():
            entry.error = StoreClosed("the queued writer was closed before the event was stored")
            self.queue.remove(entry)
        self.queue.wake()

    def after_fork(self) -> None:
        """Drop the queued events in a child process after ``fork()``: the parent stores them."""
        self.is_over = True
        self.queue.after_fork(MisuseError("this writer was made before fork(): make one in the child"))
        self.saver.after_fork()

    def refuse_mirrors(self) -> None:
        """Raise `MisuseError` inside a mirror: the saver waits for the mirror, so a wait there would deadlock."""
        if self.saver.is_this_thread:
            raise MisuseError("a mirror cannot wait for the events that come after those that it gets")

    def _late(self) -> BackendBusy:
        return BackendBusy("the events were not stored in time")

    def _tell(self, event: QueuedEvent) -> None:
        for listener, types in tuple(self._listeners):
            if not types or event.type in types:
                try:
                    listener(event)
                except Exception as error:  # noqa: BLE001 - the event is queued; the others must hear of it
                    self._unreported.listener_failed(listener, error)


class Flush:
    """A wait until a queue entry and all entries before it are stored or given up."""

    def __init__(self, core: Core, last: Entry | None) -> None:
        self._core = core
        self._last = last
        self._begun = core.saver.begun
        if last is not None:
            core.saver.hurry()

    @property
    def is_done(self) -> bool:
        """True if all entries of the flush are stored or given up, and the mirrors have been called with them."""
        return self._last is None or self._last.has_left

    def is_over(self) -> bool:
        """True if further waiting is useless: the flush is done, an attempt has failed, or the writer has ended."""
        if not (self.is_done or self._core.saver.is_at_work):
            self._core.saver.hurry()
        return self.is_done or self._core.saver.failed > self._begun or self._core.is_over

    def undecided_entries(self) -> list[Entry]:
        """Return the entries of the flush that are neither stored nor given up."""
        found = []
        for entry in self._core.queue.entries():
            if not entry.is_decided:
                found.append(entry)
            if entry is self._last:
                break
        return found
