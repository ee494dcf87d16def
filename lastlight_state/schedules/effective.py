"""The effective pattern, time zone and switch (on or off) of a cron: its definition, changed by an override."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple, Self


class OverrideColumns(NamedTuple):
    """The columns of an override in a row of its cron; each is None without an override."""

    override_name: str | None = None
    override_enabled: bool | None = None
    override_inherits: bool | None = None
    override_schedule: str | None = None
    override_zone: str | None = None

    @classmethod
    def pop_from(cls, values: dict[str, Any]) -> Self:
        """Return the columns of an override, and remove them from the values of a row."""
        return cls._make(map(values.pop, cls._fields))


#: The columns of a cron without an override.
NO_OVERRIDE = OverrideColumns()


@dataclass(frozen=True)
class Timing:
    """The part of a cron's definition that can be overridden."""

    pattern: str
    timezone: str
    enabled: bool

    @property
    def plan(self) -> str:
        """Return the zone and pattern that instants are computed from, as ``planned_with`` keeps them."""
        return f"{self.timezone} {self.pattern}"


@dataclass(frozen=True)
class Effective(Timing):
    """The values in effect, and which of them come from an override."""

    pattern_overridden: bool
    timezone_overridden: bool
    enabled_overridden: bool

    @property
    def overridden(self) -> bool:
        """True if an override changes any of the three values."""
        return self.pattern_overridden or self.timezone_overridden or self.enabled_overridden


def enabled_by(enabled: bool | None, inherits: bool | None) -> bool | None:
    """Return True or False if an override's row switches the cron on or off; None if it does neither.

    A row that does neither has ``inherits_enabled = 1`` and, for programs that know only ``enabled``, ``enabled = 1``.
    If such a row has ``enabled = 0``, one of those programs has switched the cron off.
    """
    return None if enabled is None or (enabled and inherits) else enabled


def effective(own: Timing, override: OverrideColumns) -> Effective:
    """Return the pattern, time zone and switch that are in effect under an override's columns.

    An override that changes only the pattern keeps the cron's own time zone.
    """
    switch = enabled_by(override.override_enabled, override.override_inherits)
    pattern, zone = override.override_schedule, override.override_zone
    return Effective(
        pattern=own.pattern if pattern is None else pattern,
        timezone=own.timezone if zone is None else zone,
        enabled=own.enabled if switch is None else switch,
        pattern_overridden=pattern is not None,
        timezone_overridden=zone is not None,
        enabled_overridden=switch is not None,
    )
