"""``store.maintenance`` from coroutines."""

from __future__ import annotations

from functools import cached_property

from lastlight_state.aio.forward import Face, reading
from lastlight_state.maintenance import Maintenance
from lastlight_state.maintenance.stats import Statistics
from lastlight_state.maintenance.timeline import Timeline


class AsyncStatistics(Face[Statistics]):
    """``store.maintenance.stats``"""

    collect = reading(Statistics.collect)


class AsyncTimeline(Face[Timeline]):
    """``store.maintenance.timeline``"""

    list = reading(Timeline.list)


class AsyncMaintenance(Face[Maintenance]):
    """``store.maintenance``"""

    @cached_property
    def stats(self) -> AsyncStatistics:
        """How much of everything there is."""
        return AsyncStatistics(self._target.stats, self._runner)

    @cached_property
    def timeline(self) -> AsyncTimeline:
        """What happened to a run, whoever did it."""
        return AsyncTimeline(self._target.timeline, self._runner)
