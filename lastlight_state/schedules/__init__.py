"""The schedules domain: crons (which start jobs by schedule), operators' overrides, and fires (each run of a cron)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lastlight_state.db.repository import Face
from lastlight_state.lazy import Part, public

if TYPE_CHECKING:
    from lastlight_state.schedules.arguments import (
        CronSpec as CronSpec,
        FireClaim as FireClaim,
        FireError as FireError,
        FireOutcome as FireOutcome,
    )
    from lastlight_state.schedules.crons import Crons
    from lastlight_state.schedules.fires import Fires, RunningFire as RunningFire
    from lastlight_state.schedules.overrides import Overrides
    from lastlight_state.schedules.records import (
        Cron as Cron,
        CronHealth as CronHealth,
        CronOverride as CronOverride,
        CronSummary as CronSummary,
        EffectiveCron as EffectiveCron,
        Fire as Fire,
        FireDay as FireDay,
        FireSummary as FireSummary,
        SyncReport as SyncReport,
    )

public(
    globals(),
    {
        "arguments": "CronSpec FireClaim FireError FireOutcome",
        "fires": "RunningFire",
        "records": "Cron CronHealth CronOverride CronSummary EffectiveCron Fire FireDay FireSummary SyncReport",
    },
    "Schedules",
)


class Schedules(Face):
    """``store.schedules``: crons, operators' overrides of them, and fires."""

    #: Crons: their definitions, next times, and taking of due crons.
    crons: Part[Crons] = Part("lastlight_state.schedules.crons.Crons")
    #: Overrides: operators' changes to single crons.
    overrides: Part[Overrides] = Part("lastlight_state.schedules.overrides.Overrides")
    #: Fires: one row for each time a cron ran.
    fires: Part[Fires] = Part("lastlight_state.schedules.fires.Fires")
