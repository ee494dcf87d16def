"""``store.schedules`` from coroutines."""

from __future__ import annotations

from functools import cached_property

from lastlight_state.aio.forward import Face, reading, writing
from lastlight_state.schedules import Schedules
from lastlight_state.schedules.crons import Crons
from lastlight_state.schedules.overrides import Overrides


class AsyncCrons(Face[Crons]):
    """``store.schedules.crons``"""

    put = writing(Crons.put)
    sync = writing(Crons.sync)
    get = reading(Crons.get)
    find = reading(Crons.find)
    list = reading(Crons.list)
    retire = writing(Crons.retire)
    update_run = writing(Crons.update_run)
    claim_due = writing(Crons.claim_due)
    next_due_at = reading(Crons.next_due_at)
    replan = writing(Crons.replan)


class AsyncOverrides(Face[Overrides]):
    """``store.schedules.overrides``"""

    put = writing(Overrides.put)
    get = reading(Overrides.get)
    find = reading(Overrides.find)
    list = reading(Overrides.list)
    clear = writing(Overrides.clear)
    resolve = reading(Overrides.resolve)


class AsyncSchedules(Face[Schedules]):
    """``store.schedules``"""

    @cached_property
    def crons(self) -> AsyncCrons:
        """What runs when."""
        return AsyncCrons(self._target.crons, self._runner)

    @cached_property
    def overrides(self) -> AsyncOverrides:
        """What operators changed about crons."""
        return AsyncOverrides(self._target.overrides, self._runner)
