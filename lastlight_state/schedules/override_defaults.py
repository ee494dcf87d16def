"""Defaults of a configuration under the overrides that there are. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lastlight_state.schedules.arguments import CronSpec
from lastlight_state.schedules.effective import Own, effective
from lastlight_state.schedules.records import EffectiveCron

_NONE = {"enabled": None, "inherits_enabled": None, "schedule": None, "timezone": None}


def resolved(name: str, default: CronSpec, override: Mapping[str, Any] | None) -> EffectiveCron:
    """What holds for a configured cron whose override has this row, or none."""
    row = override or _NONE
    columns = {
        "override_enabled": row["enabled"],
        "override_inherits": row["inherits_enabled"],
        "override_schedule": row["schedule"],
        "override_zone": row["timezone"],
    }
    held = effective(Own(default.pattern, default.timezone, default.enabled), columns)
    return EffectiveCron(
        name=name,
        default=default,
        **held.__dict__,
        overridden_by=row["updated_by"] if override else None,
        overridden_at=row["updated_at"] if override else None,
    )
