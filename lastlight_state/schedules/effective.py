"""The effective pattern, time zone and switch of a cron: its own definition, changed by an operator's override."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self, TypedDict


class OwnColumns(TypedDict):
    """What a cron's own row, or its definition, says of what can be overridden."""

    pattern: str
    timezone: str
    enabled: bool


class OverriddenColumns(TypedDict):
    """The columns of an override in a row of its cron; each is None without an override."""

    override_name: str | None
    override_enabled: bool | None
    override_inherits: bool | None
    override_schedule: str | None
    override_zone: str | None


class EffectiveColumns(OwnColumns, OverriddenColumns):
    """What decides what is in effect."""


#: The columns of a cron without an override.
NO_OVERRIDE: OverriddenColumns = {
    "override_name": None,
    "override_enabled": None,
    "override_inherits": None,
    "override_schedule": None,
    "override_zone": None,
}


@dataclass(frozen=True)
class Own:
    """The fields of a cron's own definition that an override can change."""

    pattern: str
    timezone: str
    enabled: bool

    @classmethod
    def of(cls, row: OwnColumns) -> Self:
        """Return the pattern, time zone and switch of a schedule's row."""
        return cls(row["pattern"], row["timezone"], row["enabled"])


@dataclass(frozen=True)
class Effective:
    """A cron's pattern, time zone and switch in effect, and which of them come from an override."""

    pattern: str
    timezone: str
    enabled: bool
    pattern_overridden: bool
    timezone_overridden: bool
    enabled_overridden: bool

    @property
    def overridden(self) -> bool:
        """True if an override changes any of the three values."""
        return self.pattern_overridden or self.timezone_overridden or self.enabled_overridden

    @property
    def plan(self) -> str:
        """Return the zone and pattern from which next instants are computed, as ``planned_with`` stores them."""
        return f"{self.timezone} {self.pattern}"


def enabled_by(enabled: bool | None, inherits: bool | None) -> bool | None:
    """Return the switch that an override's row sets; None if it keeps the cron's own switch.

    A row that keeps it has ``inherits_enabled = 1`` and, for programs that know only ``enabled``, ``enabled = 1``. If
    such a row has ``enabled = 0``, a program of that kind has switched the cron off.
    """
    return None if enabled is None or (enabled and inherits) else enabled


def effective(own: Own, override: OverriddenColumns) -> Effective:
    """Return a cron's values in effect under an override's columns.

    The columns are named as in `lastlight_state.schedules.models.OVERRIDDEN`. An override that changes only the pattern
    keeps the cron's own time zone.
    """
    switch = enabled_by(override["override_enabled"], override["override_inherits"])
    pattern, zone = override["override_schedule"], override["override_zone"]
    return Effective(
        pattern=own.pattern if pattern is None else pattern,
        timezone=own.timezone if zone is None else zone,
        enabled=own.enabled if switch is None else switch,
        pattern_overridden=pattern is not None,
        timezone_overridden=zone is not None,
        enabled_overridden=switch is not None,
    )
