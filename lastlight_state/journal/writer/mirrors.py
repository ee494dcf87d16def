"""Mirrors: callables that get the events of a writer once they are stored, such as a log file."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from lastlight_state import codec
from lastlight_state.db.told import message_of
from lastlight_state.journal.records import Appended, Event
from lastlight_state.journal.writer.queue import Entry

#: Gets the events of a batch after its commit, in the order in which they were appended.
Mirror: TypeAlias = Callable[[Sequence[Event]], Any]

_log = logging.getLogger("lastlight_state.journal")


class Mirrors:
    """The mirrors of one writer. One that fails undoes and stops nothing; it is counted, and logged the first time."""

    def __init__(self, mirrors: Sequence[Mirror]) -> None:
        self.failures = 0
        self.last_error: str | None = None
        self._mirrors = tuple(mirrors)
        self._logged: set[int] = set()

    def show(self, stored: Sequence[tuple[Entry, Appended]]) -> None:
        """Give these events to each mirror."""
        if not (stored and self._mirrors):
            return
        events = [_event(entry, outcome) for entry, outcome in stored]
        for number, mirror in enumerate(self._mirrors):
            try:
                mirror(events)
            except Exception as error:  # noqa: BLE001 - the events are stored
                self.failures += 1
                self.last_error = message_of(error)
                if number not in self._logged:
                    self._logged.add(number)
                    _log.exception("the mirror %r failed; further failures of it are only counted", mirror)


def _event(entry: Entry, outcome: Appended) -> Event:
    payload = codec.decode(entry.row["payload"])
    return Event.of({**entry.row, "seq": outcome.seq, "occurred_at": outcome.occurred_at, "payload": payload})
