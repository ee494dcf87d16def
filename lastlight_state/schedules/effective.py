"""What holds for a cron: its own definition, under an operator's override. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self


@dataclass(frozen=True)
class Own:
    """Of a cron's own definition, what can be overridden."""

    pattern: str
    timezone: str
    enabled: bool

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> Self:
        """That of a schedule's row."""
        return cls(row["pattern"], row["timezone"], row["enabled"])


@dataclass(frozen=True)
class Effective:
    """What holds of it, and what of that an operator said."""

    pattern: str
    timezone: str
    enabled: bool
    pattern_overridden: bool
    timezone_overridden: bool
    enabled_overridden: bool

    @property
    def overridden(self) -> bool:
        """Whether an operator said anything."""
        return self.pattern_overridden or self.timezone_overridden or self.enabled_overridden

    @property
    def plan(self) -> str:
        """The zone and pattern that instants are computed from, as ``planned_with`` keeps them."""
        return f"{self.timezone} {self.pattern}"


def enabled_by(enabled: bool | None, inherits: bool | None) -> bool | None:
    """What an override's row says of the switch; None for nothing.

    A row that inherits holds ``enabled = 1`` for old readers. One that says 0 was switched off by an old writer, which
    leaves the other column as it is.
    """
    return None if enabled is None or (enabled and inherits) else enabled


def effective(own: Own, override: Mapping[str, Any]) -> Effective:
    """What holds under an override's columns, as `lastlight_state.schedules.tables.OVERRIDDEN` names them.

    An override's pattern without a zone of its own is read in the cron's.
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
