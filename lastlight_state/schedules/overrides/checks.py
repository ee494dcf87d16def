"""Checks of what callers say about overrides, and configured crons combined with their overrides."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lastlight_state.db import valid
from lastlight_state.db.repository import UNSET
from lastlight_state.errors import InvalidValue
from lastlight_state.schedules import checks as shared, words
from lastlight_state.schedules.arguments import CronSpec
from lastlight_state.schedules.crons import checks as cron_checks
from lastlight_state.schedules.effective import Own, effective
from lastlight_state.schedules.records import EffectiveCron


def changes(enabled: Any, schedule: Any, timezone: Any) -> dict[str, Any]:
    """The values of a change: for each field its new value, and whether the stored one is kept instead."""
    zone = "UTC" if timezone is UNSET or timezone is None else timezone
    pattern = "* * * * *" if schedule is UNSET or schedule is None else schedule
    read = cron_checks.pattern(pattern, zone, parsed=False, where="schedule")
    inherits = enabled is UNSET or enabled is None
    kept = {
        "keeps_enabled": enabled is UNSET,
        "keeps_schedule": schedule is UNSET,
        "keeps_timezone": timezone is UNSET,
    }
    return {
        "enabled": inherits or valid.flag("enabled", enabled),
        "inherits_enabled": inherits,
        "schedule": read if schedule is not UNSET and schedule is not None else None,
        "timezone": zone if timezone is not UNSET and timezone is not None else None,
        "keeps_all": all(kept.values()),
        **kept,
    }


def defaults(given: Any) -> dict[str, CronSpec]:
    """Configured crons by name. Patterns and time zones are checked for their length, not parsed."""
    if not isinstance(given, Mapping):
        raise InvalidValue("defaults", f"expected a mapping of names to CronSpec, got {type(given).__name__}")
    for name, spec in given.items():
        where = f"defaults[{shared.name('name', name)!r}]"
        valid.group(where, spec, CronSpec)
        valid.content(f"{where}.pattern", spec.pattern, words.PATTERN)
        valid.content(f"{where}.timezone", spec.timezone, words.ZONE)
        valid.flag(f"{where}.enabled", spec.enabled)
    return dict(given)


#: The row of a cron without an override.
_NONE = {"enabled": None, "inherits_enabled": None, "schedule": None, "timezone": None}


def resolved(name: str, default: CronSpec, override: Mapping[str, Any] | None) -> EffectiveCron:
    """What is in effect for a configured cron, given the row of its override, or None."""
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
