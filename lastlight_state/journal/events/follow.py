"""Following the events of runs: stored events, then new ones as they are committed, each once and in order.

A run's numbers are in the order of its commits, so that a follower cannot pass over an event that is committed late.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace
from typing import Any, TypeVar

from lastlight_state.db import valid
from lastlight_state.db.lists.pages import Window, split_damaged, window
from lastlight_state.db.news.watch import NOTHING_YET
from lastlight_state.db.runs import RUN
from lastlight_state.db.units.scope import Scope
from lastlight_state.db.units.unit import Unit
from lastlight_state.errors import NotFound
from lastlight_state.journal import models
from lastlight_state.journal.arguments import EventFilter
from lastlight_state.journal.events import checks, statements as sql
from lastlight_state.journal.records import Event
from lastlight_state.journal.shared import END, Ended, watch_for

T = TypeVar("T")

_log = logging.getLogger("lastlight_state.journal")

#: The most seconds that a follower waits before it checks again whether it must stop.
SLICE = 0.5
_STREAM = sql.STREAM.name


class Follower:
    """Follows the events of several runs, each after its own cursor: the number of the last event seen."""

    def __init__(
        self,
        scope: Scope,
        cursors: Mapping[str, int | None],
        where: EventFilter | None,
        stop_types: Collection[str],
        ended: Ended | None,
    ) -> None:
        self._scope = scope
        self._watch = watch_for(scope, ended)
        self._until_end = ended is not None
        self._cursors = dict(cursors)
        self._stop_types = frozenset(valid.several("stop_types", stop_types))
        asked = EventFilter() if where is None else valid.argument_group("where", where, EventFilter)
        if asked.types:
            asked = replace(asked, types=(*asked.types, *self._stop_types))
        self._where = asked
        for run_id in cursors:
            checks.filters(run_id, asked, None)
        if ended is not None:
            _refuse_unknown(cursors, ended)

    def events(
        self, idle_timeout: float | None, heartbeat: float | None, poll_interval: float, stop: threading.Event
    ) -> Iterator[Event | None]:
        """Yield each event once, and None after each ``heartbeat`` seconds without an event.

        Ends after an event of a stop type, after ``idle_timeout`` seconds without an event, or when ``stop`` is set.
        """
        streams = (_STREAM, END) if self._until_end else (_STREAM,)
        keys = [(run_id, stream) for run_id in self._cursors for stream in streams]
        known = dict.fromkeys(keys, NOTHING_YET)
        followed = set(self._cursors)
        heard = beat = time.monotonic()
        with self._watch.waiting_for(keys, poll_interval):
            grown = dict(self._watch.look(keys))
            while not stop.is_set():
                known.update(grown)
                for run_id in list(self._cursors):
                    has_ended = grown.get((run_id, END)) == 1
                    if has_ended or (run_id, _STREAM) in grown:
                        for event in self._read(run_id, max(known[run_id, _STREAM], 0)):
                            yield event
                            heard = beat = time.monotonic()
                            if event.type in self._stop_types:
                                return
                    if has_ended:
                        followed.discard(run_id)
                if not followed:
                    return
                now = time.monotonic()
                if idle_timeout is not None and now - heard >= idle_timeout:
                    return
                if heartbeat is not None and now - beat >= heartbeat:
                    beat = now
                    yield None
                grown = self._watch.wait_for_growth(known, _rest((heard, idle_timeout), (beat, heartbeat)))

    def _read(self, run_id: str, next_seq: int) -> Iterator[Event]:
        """Yield the run's events after its cursor, page by page. Moves the cursor to ``next_seq - 1`` at least."""
        while True:
            given = checks.filters(run_id, self._where, self._cursors[run_id])
            chosen = {name: value for name, value in given.items() if value is not None}
            found = self._scope.read(_page(chosen))
            self._check_head(run_id, next_seq)  # after the page: rows that exist now existed when it was read
            items, damaged = split_damaged(found.rows)
            for event in items:
                self._cursors[run_id] = event.seq
                yield event
            for unread in damaged:
                _log.error("a follower passed over an event that cannot be read: %s", unread.problem)
            if found.last is None:
                break
            [self._cursors[run_id]] = found.last
        cursor = self._cursors[run_id]
        if cursor is None or cursor < next_seq - 1:
            self._cursors[run_id] = next_seq - 1

    def _check_head(self, run_id: str, next_seq: int) -> None:
        """Raise `NotFound` with the first number that is left if rows after the run's cursor were pruned."""
        cursor = self._cursors[run_id]
        if cursor is None or cursor >= next_seq - 1:
            return
        values = {"run_id": run_id, "after_seq": cursor}
        first = self._scope.read(lambda unit: unit.value(sql.FIRST_AFTER, values))
        if first != cursor + 1:
            left = next_seq if first is None else first
            raise NotFound(models.EVENT, (run_id, left), reason=f"events after {cursor} were pruned; {left} comes next")


def _refuse_unknown(run_ids: Collection[str], ended: Ended) -> None:
    """Raise `NotFound` for an unknown run, because a follower would wait forever for the end of that run."""
    found = ended(sorted(run_ids))
    for run_id in run_ids:
        if run_id not in found:
            raise valid.not_found(RUN, run_id)


def _rest(*since: tuple[float, float | None]) -> float:
    """Return the seconds to sleep before the next read: at most `SLICE`, and not past any deadline.

    Each argument is a start time with a timeout in seconds. A timeout of None means no deadline.
    """
    now = time.monotonic()
    return max(0.0, min([SLICE, *(moment + seconds - now for moment, seconds in since if seconds is not None)]))


def _page(chosen: Mapping[str, Any]) -> Callable[[Unit], Window[Event]]:
    listing = sql.LISTS["oldest_first"]
    return lambda unit: window(lambda size: listing.rows_after(unit, chosen, None, size), models.PAGE)
