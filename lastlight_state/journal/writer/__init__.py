"""Queued writer of events: listeners get an event at once, and a thread stores the event soon after.

The stored events of each run are always the first ones that were appended to this writer, in that order and without
gaps.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from datetime import datetime
from functools import partial
from types import TracebackType
from typing import Any, Self

from lastlight_state.db import valid
from lastlight_state.db.gate import guard_arguments
from lastlight_state.db.repository import Context
from lastlight_state.db.schema.declarations import limits_of
from lastlight_state.db.units.scope import StoreScope
from lastlight_state.errors import BackendBusy, NestedTransaction, UnsavedEvents
from lastlight_state.journal import models
from lastlight_state.journal.arguments import NewEvent, WriterOptions
from lastlight_state.journal.models import EVENTS
from lastlight_state.journal.records import WriterStats
from lastlight_state.journal.writer.core import Core, Listener
from lastlight_state.journal.writer.mirrors import Mirror
from lastlight_state.journal.writer.queue import Entry

# Checks of a queued writer's arguments.

_LIMITS = limits_of(EVENTS)


def check_options(given: Any) -> WriterOptions:
    """Check the options of a writer, and return them. Raises `InvalidValue` for an option that is out of its range."""
    found = valid.argument_group("options", given, WriterOptions)
    valid.number("options.max_queued", found.max_queued, least=1)
    valid.number("options.max_queued_bytes", found.max_queued_bytes, least=1)
    valid.number("options.max_batch", found.max_batch, least=1, most=models.BATCH)
    valid.seconds("options.linger", found.linger)
    valid.seconds("options.full_timeout", found.full_timeout)
    valid.word("options.when_full", found.when_full, models.WHEN_FULL)
    return found


def check_timeout(value: Any) -> float | None:
    """Check a timeout, and return its seconds. None means to wait without end."""
    return None if value is None else valid.seconds("timeout", value)


def callables(where: str, given: Any) -> list[Callable[..., Any]]:
    """Check that all given values are callables, and return them.

    Raises `InvalidValue` for one that cannot be called.
    """
    found = valid.several(where, given)
    for i, one in enumerate(found):
        valid.callback(f"{where}[{i}]", one)
    return found


def check_types(given: Any) -> frozenset[str]:
    """Check the given types of events, and return them. An empty set stands for all types."""
    return frozenset(valid.identifier("types", one, _LIMITS.type) for one in valid.several("types", given))


#: The most seconds that closing a writer waits for queued events to be stored.
CLOSE_SECONDS = 30.0
NO_OPTIONS = WriterOptions()


class PendingEvent:
    """An event that was given to a queued writer. ``seq`` is its number, or None until the event is stored."""

    def __init__(self, core: Core, entry: Entry, refuse_waiting: Callable[[], None]) -> None:
        self._core = core
        self._entry = entry
        self._refuse_waiting = refuse_waiting

    @property
    def run_id(self) -> str:
        """Return the id of the event's run."""
        return self._entry.row["run_id"]

    @property
    def event_id(self) -> str:
        """Return the key of the event: the caller's, or a generated one."""
        return str(self._entry.row["event_id"])

    @property
    def occurred_at(self) -> datetime:
        """Return the time of the event: the one that the caller gave, or the time of the append."""
        return self._entry.row["occurred_at"]

    @property
    def seq(self) -> int | None:
        """Return the number of the event, or None until it is stored."""
        return self._entry.seq

    @guard_arguments
    def wait(self, timeout: float | None = None) -> int:
        """Wait until the event is stored, and return its number.

        Raises the error because of which the event was given up, `BackendBusy` if the timeout is over, `StoreClosed` if
        the writer was closed before, and `MisuseError` inside a transaction's block.
        """
        entry, seconds = self._entry, check_timeout(timeout)
        if not entry.is_decided:
            self._refuse_waiting()
            self._core.saver.hurry()
            self._core.queue.wait(lambda: entry.is_decided, seconds)
        return number_of(entry)


class JournalWriter:
    """Appends events through a queue, for any number of runs. Thread-safe; a context manager.

    Each event has a key, so that a batch can be stored again without duplicates if the outcome of the first try is
    unknown. If events cannot be stored, `flush` and `close` raise `UnsavedEvents` with them. While the database is
    unavailable, events stay queued and are retried. A process that is killed loses events that were not flushed.
    """

    def __init__(self, context: Context, options: WriterOptions, mirrors: Collection[Mirror]) -> None:
        self._scope = context.scope
        self._core = Core(context, check_options(options), callables("mirrors", mirrors))
        self._core.saver.owner = self

    @guard_arguments
    def append(
        self,
        run_id: str,
        type: str,  # noqa: A002 - the column's name
        payload: dict[str, Any] | None = None,
        *,
        at: datetime | None = None,
        event_id: str | None = None,
        node_id: str | None = None,
    ) -> PendingEvent:
        """Queue an event, and call the listeners in this thread before returning. Arguments as in `Events.append`.

        An invalid event is refused here. If the queue is full, the call waits for room up to ``full_timeout``, unless
        the options say that a full queue refuses events. Raises `BackendBusy` if there is no room, and `StoreClosed`.
        """
        entry = self._core.entry(run_id, NewEvent(type, payload, at, event_id, node_id))
        if not self._core.offer(entry):
            self._wait_and_offer(entry)
        return self._pending_event(entry)

    @guard_arguments
    def append_nowait(
        self,
        run_id: str,
        type: str,  # noqa: A002 - the column's name
        payload: dict[str, Any] | None = None,
        *,
        at: datetime | None = None,
        event_id: str | None = None,
        node_id: str | None = None,
    ) -> PendingEvent:
        """Queue an event like `append`, but raise `BackendBusy` at once if the queue is full."""
        entry = self._core.entry(run_id, NewEvent(type, payload, at, event_id, node_id))
        if not self._core.offer(entry):
            raise self._core.full()
        return self._pending_event(entry)

    @guard_arguments
    def flush(self, timeout: float | None = None) -> None:
        """Wait until all events that were appended before this call are stored and the mirrors have them.

        Raises `UnsavedEvents` if an event is not stored or a listener raised. The error holds the events that were
        given up since the last report, the events that are still queued, and the errors of listeners. If the timeout is
        over or an attempt has failed, events stay queued and are retried: a later flush may succeed. Raises
        `MisuseError` inside a transaction's block.
        """
        seconds = check_timeout(timeout)
        self._refuse_waiting()
        self._core.queue.refuse_if_over()
        flush = self._core.flush()
        self._core.queue.wait(flush.is_over, seconds)
        self._core.report(flush)

    @guard_arguments
    def close(self, timeout: float | None = CLOSE_SECONDS) -> None:
        """Refuse further events, store the queued ones, and end. Closing again does nothing.

        Raises `UnsavedEvents` like `flush`. Events that this error lists as still queued will never be stored.
        """
        seconds = check_timeout(timeout)
        core = self._core
        if core.is_over:
            return
        self._refuse_waiting()
        core.close()
        end = None if seconds is None else time.monotonic() + seconds
        flush = core.flush()
        core.queue.wait(flush.is_over, seconds)
        core.saver.end()
        core.queue.wait(lambda: not core.saver.is_at_work, None if end is None else max(end - time.monotonic(), 0.1))
        core.report_last(flush)

    @guard_arguments
    def subscribe(self, listener: Listener, types: Collection[str] = ()) -> None:
        """Call ``listener`` with each event of these types as soon as it is queued. No types mean all types.

        Listeners are called in the thread that appends, before ``append`` returns, in the order of their subscription.
        An exception of a listener stops nothing; `flush` reports it.
        """
        self._core.subscribe(valid.callback("listener", listener), check_types(types))

    def unsubscribe(self, listener: Listener) -> None:
        """Stop calling the listener. Does nothing if it is not subscribed."""
        self._core.unsubscribe(listener)

    def stats(self) -> WriterStats:
        """Return how many events are queued, and how many were stored or given up."""
        return self._core.stats()

    def __repr__(self) -> str:
        """Return a text that states the number of queued events, or that the writer is closed. It contains no event."""
        return f"{type(self).__name__}({'closed' if self._core.is_over else f'{len(self._core.queue)} queued'})"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.close()
        except UnsavedEvents as unsaved:
            if error is None:
                raise
            error.add_note(f"the writer was closed, too: {unsaved}")

    def _pending_event(self, entry: Entry) -> PendingEvent:
        return PendingEvent(self._core, entry, self._refuse_waiting)

    def _wait_and_offer(self, entry: Entry) -> None:
        core = self._core
        if core.options.when_full == "refuse":
            raise core.full()
        self._refuse_waiting()
        end = time.monotonic() + core.options.full_timeout
        while True:
            core.saver.notice()
            if not core.queue.wait(partial(has_room, core, entry), max(end - time.monotonic(), 0.0)):
                raise core.full()
            if core.offer(entry):
                return

    def _refuse_waiting(self) -> None:
        """Raise `MisuseError` if a wait would never end, because it is in a mirror or inside a transaction's block."""
        self._core.refuse_mirrors()
        if isinstance(self._scope, StoreScope) and self._scope.inside_block():
            raise NestedTransaction("inside a transaction's block: the writer waits for what the block holds")


def has_room(core: Core, entry: Entry) -> bool:
    """True if the queue has room for the entry or refuses all entries: another append of the entry need not wait."""
    return core.queue.refusal is not None or core.queue.has_room(entry.size)


def number_of(entry: Entry) -> int:
    """Return the number of a queued event.

    Raises the event's error, or `BackendBusy` if the event has no number yet.
    """
    if entry.error is not None:
        raise entry.error
    if entry.seq is None:
        raise BackendBusy("the event was not stored in time")
    return entry.seq
