"""The events of a run, read page by page from the database, and each as one line for people."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator
from typing import Any

from rich.text import Text

from lastlight_state.cli.call import Call
from lastlight_state.cli.opening import look
from lastlight_state.cli.screen import Screen
from lastlight_state.cli.tables import GAP
from lastlight_state.cli.views.log_sources import POLL_SECONDS
from lastlight_state.db.records import Page
from lastlight_state.journal import Event, EventFilter
from lastlight_state.store import StateStore
from lastlight_state.workflows.words import TERMINAL

PAGE = 500
SHORT = 160
SEQ_WIDTH = 6


class Events:
    """The events of a run. ``damaged`` counts those that could not be read."""

    def __init__(
        self, call: Call, run_id: str, types: Collection[str], *, pause: Callable[[float], object] = time.sleep
    ) -> None:
        self._call = call
        self._run_id = run_id
        self._where = EventFilter(types=types)
        self._pause = pause
        self._last = -1
        self.damaged = 0

    def read(self, *, last: int | None, follow: bool) -> Iterator[Event]:
        """Return the stored events, or the ``last``. With ``follow``, go on until the run has ended.

        Raises `NotFound` for an unknown run.
        """
        ended = self._has_ended()
        if last is not None:
            yield from self._newest(last)
        yield from self._stored()
        while follow and not ended:
            self._pause(POLL_SECONDS)
            ended = self._has_ended()
            yield from self._stored()

    def _newest(self, count: int) -> Iterator[Event]:
        yield from self._page(limit=count, order="newest_first").items[::-1]

    def _stored(self) -> Iterator[Event]:
        """Return what comes after the last event that was read."""
        more = True
        while more:
            found = self._page(limit=PAGE, after_seq=self._last)
            more = found.next_page_token is not None
            yield from found.items

    def _page(self, **given: Any) -> Page[Event]:
        def work(store: StateStore) -> Page[Event]:
            return store.journal.events.list(self._run_id, where=self._where, **given)

        found = look(self._call, work)
        self.damaged += len(found.damaged)
        read = [event.seq for event in found.items] + [row.key[-1] for row in found.damaged]
        self._last = max([self._last, *read])
        return found

    def _has_ended(self) -> bool:
        return look(self._call, lambda store: store.workflows.runs.get(self._run_id).status in TERMINAL)


def text_of(event: Event, screen: Screen) -> Text:
    """Return the line of an event."""
    payload = screen.shown(event.payload) if event.payload else ""
    shown = payload if len(payload) <= SHORT else f"{payload[:SHORT]}… [{len(payload):,} characters]"
    return Text.assemble(
        (screen.shown(event.occurred_at), "dim"),
        f"{GAP}{event.seq:>{SEQ_WIDTH}}{GAP}",
        (screen.shown(event.type), "bold"),
        GAP + shown if shown else "",
    )
