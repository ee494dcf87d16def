"""What went wrong in a writer and was not reported yet. Each error is reported once, also after an interruption."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from itertools import count

from lastlight_state import codec
from lastlight_state.errors import UnsavedEvents
from lastlight_state.journal.records import QueuedEvent
from lastlight_state.journal.writer.queue import Entry

_log = logging.getLogger("lastlight_state.journal")


class Unreported:
    """Events that were given up, and errors of listeners: the first ``most`` of each. All of them are logged."""

    def __init__(self, most: int) -> None:
        self.failed = 0
        self._most = most
        self._number = count()
        self._failures: dict[int, tuple[QueuedEvent, Exception]] = {}
        self._listener_errors: dict[int, Exception] = {}

    def give_up(self, entry: Entry, error: Exception) -> None:
        """Note an event that cannot be stored."""
        self.failed += 1
        row = entry.row
        _log.error("event %r of run %r cannot be stored: %s", row["event_id"], row["run_id"], error)
        if len(self._failures) < self._most:
            self._failures[next(self._number)] = event_of(entry), error

    def listener_failed(self, listener: Callable[..., object], error: Exception) -> None:
        """Note what a listener raised."""
        _log.error("a listener of events failed: %r", listener, exc_info=error)
        if len(self._listener_errors) < self._most:
            self._listener_errors[next(self._number)] = error

    def report(self, waiting: Sequence[Entry], cause: Exception | None) -> None:
        """Raise `UnsavedEvents` with everything that is not reported, and these entries that are not stored yet."""
        failures, errors = list(self._failures.items()), list(self._listener_errors.items())
        if not (failures or errors or waiting):
            return
        unsaved = UnsavedEvents(
            f"events given up: {len(failures)}, still queued: {len(waiting)}, failed listeners: {len(errors)}",
            failures=tuple(failure for _, failure in failures),
            waiting=tuple(event_of(entry) for entry in waiting),
            listener_errors=tuple(error for _, error in errors),
        )
        first = next((error for _, (_, error) in failures), cause) or next((error for _, error in errors), None)
        for number, _ in failures:
            self._failures.pop(number, None)
        for number, _ in errors:
            self._listener_errors.pop(number, None)
        raise unsaved from first


def event_of(entry: Entry) -> QueuedEvent:
    """The event of an entry, for callers."""
    return QueuedEvent.of({**entry.row, "payload": codec.decode(entry.row["payload"])})
