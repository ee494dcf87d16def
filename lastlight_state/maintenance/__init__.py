"""Work over many domains: looking at the whole of what is stored."""

from __future__ import annotations

from functools import cached_property

from lastlight_state.db.repository import Context
from lastlight_state.maintenance.records import (
    LineFiles,
    MessageCounts,
    SchemaFacts,
    Stats,
    StatusCount,
    TableStats,
    TimelineEntry,
)
from lastlight_state.maintenance.stats import Statistics
from lastlight_state.maintenance.timeline import Timeline

__all__ = [
    "LineFiles",
    "Maintenance",
    "MessageCounts",
    "SchemaFacts",
    "Stats",
    "StatusCount",
    "TableStats",
    "TimelineEntry",
]


class Maintenance:
    """``store.maintenance``"""

    def __init__(self, context: Context) -> None:
        self._context = context

    @cached_property
    def stats(self) -> Statistics:
        """How much of everything there is."""
        return Statistics(self._context)

    @cached_property
    def timeline(self) -> Timeline:
        """What happened to a run, whoever did it."""
        return Timeline(self._context)
