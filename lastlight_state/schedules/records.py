"""What callers of this domain get."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Self

from lastlight_state.db.records import Record
from lastlight_state.schedules.arguments import CronSpec
from lastlight_state.schedules.effective import Own, effective, enabled_by


class CronOverride(Record):
    """What an operator changed about a cron. None stands for the default: of ``enabled`` too."""

    name: str
    enabled: bool | None
    schedule: str | None
    timezone: str | None
    inherits_enabled: bool
    updated_at: datetime
    updated_by: str | None

    @classmethod
    def of(cls, values: dict[str, Any]) -> Self:
        values["enabled"] = enabled_by(values["enabled"], values["inherits_enabled"])
        values["inherits_enabled"] = values["enabled"] is None
        return super().of(values)


class CronSummary(Record):
    """A cron as lists show it: its definition, its plan, and what of it holds after an operator's override.

    ``next_run_at`` is None for one that is never due. A retired cron is not in effect, whatever its switch says.
    """

    name: str
    pattern: str
    timezone: str
    target_kind: str
    target: str
    catch_up: str
    grace_seconds: int
    overlap: str
    origin: str
    enabled: bool
    created_at: datetime
    updated_at: datetime
    last_run_at: datetime | None
    next_run_at: datetime | None
    planned_with: str | None
    last_fire_id: str | None
    retired_at: datetime | None
    effective_pattern: str
    effective_timezone: str
    effective_enabled: bool
    overridden: bool

    @classmethod
    def of(cls, values: dict[str, Any]) -> Self:
        held = effective(Own.of(values), values)
        for taken in ("override_name", "override_enabled", "override_inherits", "override_schedule", "override_zone"):
            del values[taken]
        values["effective_pattern"] = held.pattern
        values["effective_timezone"] = held.timezone
        values["effective_enabled"] = held.enabled and values["retired_at"] is None
        values["overridden"] = held.overridden
        return super().of(values)


class Cron(CronSummary):
    """A cron with everything: also its payload, and the error of its last fire or why it cannot be planned."""

    error_json: Any
    payload: Any


class EffectiveCron(Record):
    """What holds for a configured cron after its override, and for each field whether an operator changed it.

    ``overridden_by`` and ``overridden_at`` are of the override; both None where there is none.
    """

    name: str
    default: CronSpec
    pattern: str
    timezone: str
    enabled: bool
    pattern_overridden: bool
    timezone_overridden: bool
    enabled_overridden: bool
    overridden_by: str | None
    overridden_at: datetime | None


class SyncReport(Record):
    """What `sync` found of each name: the five are ascending and have no name in common."""

    added: tuple[str, ...]
    changed: tuple[str, ...]
    retired: tuple[str, ...]
    revived: tuple[str, ...]
    unchanged: tuple[str, ...]


class FireSummary(Record):
    """A fire as lists show it. Counts are None where they do not apply, 0 for looked and found none."""

    id: str
    cron_name: str
    scheduled_for: datetime | None
    source: str
    actor: str | None
    target_kind: str | None
    target: str | None
    status: str
    owner: str | None
    lease_until: datetime | None
    epoch: int
    attempts: int
    started_at: datetime
    finished_at: datetime | None
    eligible: int | None
    scanned: int | None
    discovered: int | None
    dispatched: int | None
    failures: int | None
    note: str | None


class Fire(FireSummary):
    """A fire with everything: also its payload, and the error it ended with."""

    error_json: Any
    payload: Any


class CronHealth(Record):
    """How a cron has been doing, judged by the newest of its fires.

    ``failure_streak`` counts, back from its last finished fire, those that did not end ``ok``: at most 10.
    """

    cron_name: str
    latest: FireSummary | None
    failure_streak: int
    last_ok_at: datetime | None
    last_finished_at: datetime | None
    running: bool
