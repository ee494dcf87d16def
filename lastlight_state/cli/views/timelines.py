"""The timeline of a run, read whole and drawn line by line."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from lastlight_state.cli.screen import Screen
from lastlight_state.cli.tables import GAP, Column
from lastlight_state.db.iterating import pages_of
from lastlight_state.maintenance import TimelineEntry
from lastlight_state.store import StateStore

COLUMNS = (
    Column("AT", lambda entry: entry.at, keep=True),
    Column("SOURCE", lambda entry: entry.source),
    Column("ACTOR", lambda entry: entry.actor, rank=1),
    Column("WHAT", lambda entry: entry.text, below=True),
)
#: What the clock said, where that disagrees with the order of what happened.
CLOCK = Column("CLOCK", lambda entry: entry.clock)


def whole(store: StateStore, run_id: str) -> tuple[TimelineEntry, ...]:
    """Return every entry of a run's timeline, oldest first."""
    pages = pages_of(store.maintenance.timeline.list, run_id, limit=500)
    return tuple(entry for page in pages for entry in page.items)


def lines(entries: Sequence[TimelineEntry], screen: Screen) -> Iterator[Any]:
    """Return the entries as a table."""
    disagrees = any(entry.clock is not None for entry in entries)
    return screen.table((*COLUMNS, CLOCK) if disagrees else COLUMNS, entries)


def line(entry: TimelineEntry, screen: Screen) -> str:
    """Return one entry as a line."""
    return GAP.join(screen.shown(value) for value in (entry.at, entry.source, entry.actor, entry.text))
