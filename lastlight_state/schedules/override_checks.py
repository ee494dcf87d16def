"""What callers say about overrides, checked and as statements name it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lastlight_state.db import checks
from lastlight_state.db.repository import UNSET
from lastlight_state.errors import InvalidValue
from lastlight_state.schedules import checks as common
from lastlight_state.schedules import cron_checks, words
from lastlight_state.schedules.arguments import CronSpec


def changes(enabled: Any, schedule: Any, timezone: Any) -> dict[str, Any]:
    """What a call changes: each field with its value, and whether the stored one is kept."""
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
        "enabled": inherits or checks.flag("enabled", enabled),
        "inherits_enabled": inherits,
        "schedule": read if schedule is not UNSET and schedule is not None else None,
        "timezone": zone if timezone is not UNSET and timezone is not None else None,
        "says_nothing": all(kept.values()),
        **kept,
    }


def defaults(given: Any) -> dict[str, CronSpec]:
    """Configured crons by name. Of each, what can be overridden is measured; it is not read."""
    if not isinstance(given, Mapping):
        raise InvalidValue("defaults", f"a mapping of names is needed, not {type(given).__name__}")
    for name, spec in given.items():
        where = f"defaults[{common.name('name', name)!r}]"
        if not isinstance(spec, CronSpec):
            raise InvalidValue(where, f"a CronSpec is needed, not {type(spec).__name__}")
        checks.content(f"{where}.pattern", spec.pattern, words.PATTERN)
        checks.content(f"{where}.timezone", spec.timezone, words.ZONE)
        checks.flag(f"{where}.enabled", spec.enabled)
    return dict(given)
