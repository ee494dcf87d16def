"""When things run: crons, what operators changed about them, and what each fire did."""

from __future__ import annotations

from lastlight_state.db.repository import Context
from lastlight_state.schedules.arguments import CronSpec, FireClaim, FireError, FireOutcome
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
    "Schedules",
    "SyncReport",
]


class Schedules:
    """``store.schedules``"""

    def __init__(self, context: Context) -> None:
        self._context = context
