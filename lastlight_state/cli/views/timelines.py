"""The timeline of a run, read whole and drawn line by line."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from lastlight_state.cli.screen import Column, Screen
from lastlight_state.maintenance import TimelineEntry
from lastlight_state.store import StateStore

COLUMNS = (
    Column("AT", lambda entry: entry.at, keep=True),
    Column("SOURCE", lambda entry: entry.source),
    Column("ACTOR", lambda entry: entry.actor),
    Column("WHAT", lambda entry: entry.text),
)
#: What the clock said, where that disagrees with the order of what happened.
CLOCK = Column("CLOCK", lambda entry: entry.clock)


def whole(store: StateStore, run_id: str) -> tuple[TimelineEntry, ...]:
    """Every entry of a run's timeline, oldest first."""
    entries: list[TimelineEntry] = []
    token: str | None = None
    while True:
        page = store.maintenance.timeline.list(run_id, limit=500, page_token=token)
        entries += page.items
        token = page.next_page_token
        if token is None:
            return tuple(entries)


def lines(entries: Sequence[TimelineEntry], screen: Screen) -> Iterator[Any]:
    """The entries as a table."""
    disagrees = any(entry.clock is not None for entry in entries)
    return screen.table((*COLUMNS, CLOCK) if disagrees else COLUMNS, entries)
