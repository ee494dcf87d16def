"""Checks of what callers say about overrides, and configured crons combined with their overrides."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, TypedDict

from lastlight_state.db import valid
from lastlight_state.db.declarations import limits_of
from lastlight_state.db.repository import UNSET
from lastlight_state.errors import InvalidValue
from lastlight_state.schedules import checks as shared
from lastlight_state.schedules.arguments import CronSpec
from lastlight_state.schedules.crons import checks as cron_checks
from lastlight_state.schedules.effective import NO_OVERRIDE, OverriddenColumns, Own, effective
from lastlight_state.schedules.records import EffectiveCron
from lastlight_state.schedules.rows import CronOverrideRow
from lastlight_state.schedules.tables import SCHEDULES

_MOST = limits_of(SCHEDULES)


class Change(TypedDict):
    """A change of an override: for each field its new value, and whether the stored one is kept instead."""

    enabled: bool
    inherits_enabled: bool
    schedule: str | None
    timezone: str | None
    keeps_all: bool
    keeps_enabled: bool
    keeps_schedule: bool
    keeps_timezone: bool


class OverrideDraft(Change):
    """The row of a changed override."""

    name: str
    updated_at: datetime
    updated_by: str | None


def changes(enabled: Any, schedule: Any, timezone: Any) -> Change:
    """Return the values of a change."""
    zone = "UTC" if timezone is UNSET or timezone is None else timezone
    pattern = "* * * * *" if schedule is UNSET or schedule is None else schedule
    read = cron_checks.pattern(pattern, zone, parsed=False, where="schedule")
    inherits = enabled is UNSET or enabled is None
    return {
        "enabled": inherits or valid.flag("enabled", enabled),
        "inherits_enabled": inherits,
        "schedule": read if schedule is not UNSET and schedule is not None else None,
        "timezone": zone if timezone is not UNSET and timezone is not None else None,
        "keeps_all": enabled is UNSET and schedule is UNSET and timezone is UNSET,
        "keeps_enabled": enabled is UNSET,
        "keeps_schedule": schedule is UNSET,
        "keeps_timezone": timezone is UNSET,
    }


def defaults(given: Any) -> dict[str, CronSpec]:
    """Configured crons by name. Patterns and time zones are checked for their length, not parsed."""
    if not isinstance(given, Mapping):
        raise InvalidValue("defaults", f"expected a mapping of names to CronSpec, got {type(given).__name__}")
    for name, spec in given.items():
        where = f"defaults[{shared.name('name', name)!r}]"
        valid.group(where, spec, CronSpec)
        valid.content(f"{where}.pattern", spec.pattern, _MOST.pattern)
        valid.content(f"{where}.timezone", spec.timezone, _MOST.timezone)
        valid.flag(f"{where}.enabled", spec.enabled)
    return dict(given)


def _columns(override: CronOverrideRow | None) -> OverriddenColumns:
    """Return the columns of an override as they stand in a row of its cron."""
    if override is None:
        return NO_OVERRIDE
    return {
        "override_name": override["name"],
        "override_enabled": override["enabled"],
        "override_inherits": override["inherits_enabled"],
        "override_schedule": override["schedule"],
        "override_zone": override["timezone"],
    }


def resolved(name: str, default: CronSpec, override: CronOverrideRow | None) -> EffectiveCron:
    """Return what is in effect for a configured cron, given the row of its override, or None."""
    held = effective(Own(default.pattern, default.timezone, default.enabled), _columns(override))
    return EffectiveCron(
        name=name,
        default=default,
        **held.__dict__,
        overridden_by=override["updated_by"] if override else None,
        overridden_at=override["updated_at"] if override else None,
    )
