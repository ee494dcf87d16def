"""When things run: crons, what operators changed about them, and what each fire did."""

from __future__ import annotations

from functools import cached_property

from lastlight_state.db.repository import Context
from lastlight_state.schedules.arguments import CronSpec, FireClaim, FireError, FireOutcome
from lastlight_state.schedules.crons import Crons
from lastlight_state.schedules.fire_running import RunningFire
from lastlight_state.schedules.fires import Fires
from lastlight_state.schedules.overrides import Overrides
from lastlight_state.schedules.records import (
    Cron,
    CronHealth,
    CronOverride,
    CronSummary,
    EffectiveCron,
    Fire,
    FireSummary,
    SyncReport,
)

__all__ = [
    "Cron",
    "CronHealth",
    "CronOverride",
    "CronSpec",
    "CronSummary",
    "EffectiveCron",
    "Fire",
    "FireClaim",
    "FireError",
    "FireOutcome",
    "FireSummary",
    "RunningFire",
    "Schedules",
    "SyncReport",
]


class Schedules:
    """``store.schedules``"""

    def __init__(self, context: Context) -> None:
        self._context = context

    @cached_property
    def crons(self) -> Crons:
        """What runs when."""
        return Crons(self._context)

    @cached_property
    def overrides(self) -> Overrides:
        """What operators changed about crons."""
        return Overrides(self._context)

    @cached_property
    def fires(self) -> Fires:
        """What happened: one row for each fire."""
        return Fires(self._context)
