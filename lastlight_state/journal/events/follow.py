"""Following the events of runs: those that are stored, then new ones as they are committed, each once and in order.

The numbers of a run are in the order of its commits, so that an event which is committed late cannot be passed over.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace
from typing import Any, TypeVar

from lastlight_state.db import valid
from lastlight_state.db.scope import Scope
from lastlight_state.db.unit import Unit
from lastlight_state.db.watch import NOTHING_YET
from lastlight_state.db.windows import Window, parted, window
from lastlight_state.errors import NotFound
from lastlight_state.journal import words
from lastlight_state.journal.arguments import EventFilter
from lastlight_state.journal.events import checks, statements as sql
from lastlight_state.journal.kernel.watching import watch_for
from lastlight_state.journal.records import Event
from lastlight_state.journal.rows import RunEventRow

T = TypeVar("T")

_log = logging.getLogger("lastlight_state.journal")

#: The longest wait after which a follower looks whether it was told to stop.
SLICE = 0.5
_STREAM = sql.STREAM.name


class Follower:
    """The events of runs after a number each, as long as they are followed."""

    def __init__(
        self,
        scope: Scope,
        cursors: Mapping[str, int | None],
        where: EventFilter | None,
        stop_types: Collection[str],
    ) -> None:
        self._scope = scope
        self._watch = watch_for(scope)
        self._cursors = dict(cursors)
        self._stop_types = frozenset(valid.several("stop_types", stop_types))
        asked = EventFilter() if where is None else valid.group("where", where, EventFilter)
        if asked.types:
            asked = replace(asked, types=(*asked.types, *self._stop_types))
        self._where = asked
        for run_id in cursors:
            checks.filters(run_id, asked, None)

    def events(self, idle_timeout: float | None, poll_interval: float, stop: threading.Event) -> Iterator[Event]:
        """Each event once; ends after one of the stop types, in silence, or when told to stop."""
        keys = [(run_id, _STREAM) for run_id in self._cursors]
        known = dict.fromkeys(keys, NOTHING_YET)
        heard = time.monotonic()
        with self._watch.waiting_for(keys, poll_interval):
            grown = dict(self._watch.look(keys))
            while not stop.is_set():
                for key in keys:
                    if key in grown:
                        known[key] = grown[key]
                        for event in self._read(key[0], grown[key]):
                            yield event
                            heard = time.monotonic()
                            if event.type in self._stop_types:
                                return
                if idle_timeout is not None and time.monotonic() - heard >= idle_timeout:
                    return
                left = SLICE if idle_timeout is None else min(SLICE, heard + idle_timeout - time.monotonic())
                grown = self._watch.grown(known, max(left, 0.0))

    def _read(self, run_id: str, next_seq: int) -> Iterator[Event]:
        """What the run has after the cursor, up to ``next_seq`` at least, page after page."""
        while True:
            given = checks.filters(run_id, self._where, self._cursors[run_id])
            chosen = {name: value for name, value in given.items() if value is not None}
            found = self._scope.reading(_page(chosen))
            self._check_head(run_id, next_seq)  # after the page: what is there now was there when it was read
            items, damaged = parted(found.rows, _as_it_is)
            for row in items:
                self._cursors[run_id] = row["seq"]
                yield Event.of(row)
            for event in damaged:
                _log.error("a follower passed over an event that cannot be read: %s", event.problem)
            if found.last is None:
                break
            [self._cursors[run_id]] = found.last
        cursor = self._cursors[run_id]
        if cursor is None or cursor < next_seq - 1:
            self._cursors[run_id] = next_seq - 1

    def _check_head(self, run_id: str, next_seq: int) -> None:
        """Raise `NotFound` where rows after the cursor were pruned, with the first number that is still there."""
        cursor = self._cursors[run_id]
        if cursor is None or cursor >= next_seq - 1:
            return
        values = {"run_id": run_id, "after_seq": cursor}
        first = self._scope.reading(lambda unit: unit.value(sql.FIRST_AFTER, values))
        if first != cursor + 1:
            left = next_seq if first is None else first
            raise NotFound(words.EVENT, (run_id, left), reason=f"events after {cursor} were pruned; {left} comes next")


def _as_it_is(row: RunEventRow) -> RunEventRow:
    return row


def _page(chosen: Mapping[str, Any]) -> Callable[[Unit], Window[RunEventRow]]:
    listing = sql.LISTS["oldest_first"]
    return lambda unit: window(lambda size: listing.placed(unit, chosen, None, size), words.PAGE)
