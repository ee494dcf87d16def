"""Records of crons, overrides and fires."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Self, TypedDict

from lastlight_state.db.rows.records import Record
from lastlight_state.schedules.arguments import CronSpec
from lastlight_state.schedules.effective import OverriddenColumns, Own, effective, enabled_by
from lastlight_state.schedules.rows import CronOverrideRow


class CronOverride(Record):
    """An operator's changes to a cron. A field that is None keeps the cron's own value."""

    name: str
    enabled: bool | None
    schedule: str | None
    timezone: str | None
    inherits_enabled: bool
    updated_at: datetime
    updated_by: str | None

    @classmethod
    def of(cls, values: CronOverrideRow) -> Self:
        fields: Any = values
        fields["enabled"] = enabled_by(values["enabled"], values["inherits_enabled"])
        fields["inherits_enabled"] = fields["enabled"] is None
        return super().of(fields)


class ScheduleSummaryRow(TypedDict):
    """What a `CronSummary` shows of the row of its schedule."""

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


class ScheduleRow(ScheduleSummaryRow):
    """What a `Cron` shows of the row of its schedule."""

    error: Any
    payload: Any


class CronSummaryRow(ScheduleSummaryRow, OverriddenColumns):
    """The columns of a `CronSummary`."""


class CronRow(ScheduleRow, OverriddenColumns):
    """The columns of a `Cron`."""


class CronSummary(Record):
    """A cron as lists show it: its definition, its plan, and its values in effect after an operator's override.

    ``next_run_at`` is None for a cron that is never due. It is also None if ``planned_with`` is ``unplanned``: another
    program changed the override, and the next `take_due` plans the cron. ``effective_enabled`` of a retired cron is
    False.
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
    def of(cls, values: CronSummaryRow) -> Self:
        held = effective(Own.of(values), values)
        fields: Any = values
        for taken in ("override_name", "override_enabled", "override_inherits", "override_schedule", "override_zone"):
            del fields[taken]
        fields["effective_pattern"] = held.pattern
        fields["effective_timezone"] = held.timezone
        fields["effective_enabled"] = held.enabled and values["retired_at"] is None
        fields["overridden"] = held.overridden
        return super().of(fields)


class Cron(CronSummary):
    """A cron with its payload and its error: the error of its last fire, or the reason why it cannot be planned."""

    error: Any
    payload: Any

    @classmethod
    def of(cls, values: CronRow) -> Self:  # type: ignore[override]
        return super().of(values)


class EffectiveCron(Record):
    """The values in effect for a configured cron, and for each whether an operator changed it.

    ``overridden_by`` and ``overridden_at`` are the author and time of the override's last change; None without an
    override.
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
    """The result of `sync`: five sorted lists of cron names. Each name is in one of them."""

    added: tuple[str, ...]
    changed: tuple[str, ...]
    retired: tuple[str, ...]
    revived: tuple[str, ...]
    unchanged: tuple[str, ...]


class FireSummaryRow(TypedDict):
    """The columns of a `FireSummary`."""

    id: str
    cron_name: str
    scheduled_for: datetime | None
    source: str
    actor: str | None
    target_kind: str | None
    target: str | None
    status: str
    owner: str | None
    lease_expires_at: datetime | None
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


class FireRow(FireSummaryRow):
    """The columns of a `Fire`."""

    error: Any
    payload: Any


class FireSummary(Record):
    """A fire as lists show it. A count is None if it does not apply, 0 if nothing was found."""

    id: str
    cron_name: str
    scheduled_for: datetime | None
    source: str
    actor: str | None
    target_kind: str | None
    target: str | None
    status: str
    owner: str | None
    lease_expires_at: datetime | None
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

    @classmethod
    def of(cls, values: FireSummaryRow) -> Self:
        return super().of(values)


class Fire(FireSummary):
    """A fire with its payload, and the error that it ended with."""

    error: Any
    payload: Any

    @classmethod
    def of(cls, values: FireRow) -> Self:  # type: ignore[override]
        return super().of(values)


class CronHealth(Record):
    """The health of a cron, judged by how its newest fires ended.

    ``failure_streak`` is the number of its latest finished fires that did not end ``ok``, at most 10.
    """

    cron_name: str
    latest: FireSummary | None
    failure_streak: int
    last_ok_at: datetime | None
    last_finished_at: datetime | None
    running: bool


class FireDay(Record):
    """How many fires began on a day in UTC, by status. A status without fires is absent."""

    start: datetime
    counts: dict[str, int]
