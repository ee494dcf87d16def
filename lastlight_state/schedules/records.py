"""Records of crons, overrides and fires."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Self

from lastlight_state.db.rows.records import Record
from lastlight_state.schedules.arguments import CronSpec
from lastlight_state.schedules.effective import OverrideColumns, Timing, effective, enabled_by


class CronOverride(Record):
    """An operator's changes to a cron. For a field that is None, the cron's own value applies."""

    name: str
    enabled: bool | None
    schedule: str | None
    timezone: str | None
    inherits_enabled: bool
    updated_at: datetime
    updated_by: str | None

    @classmethod
    def of(cls, values: Any) -> Self:
        values["enabled"] = enabled_by(values["enabled"], values["inherits_enabled"])
        values["inherits_enabled"] = values["enabled"] is None
        return super().of(values)


class CronSummary(Record):
    """A cron as lists show it: its definition, its plan, and the values that apply after an operator's override.

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

    _computed = frozenset({"effective_pattern", "effective_timezone", "effective_enabled", "overridden"})
    _consumed = frozenset(OverrideColumns._fields)

    @classmethod
    def of(cls, values: Any) -> Self:
        own = Timing(values["pattern"], values["timezone"], values["enabled"])
        held = effective(own, OverrideColumns.pop_from(values))
        values["effective_pattern"] = held.pattern
        values["effective_timezone"] = held.timezone
        values["effective_enabled"] = held.enabled and values["retired_at"] is None
        values["overridden"] = held.overridden
        return super().of(values)


class Cron(CronSummary):
    """A cron with its payload and its error: the error of its last fire, or the reason why it cannot be planned."""

    error: Any
    payload: Any


class EffectiveCron(Record):
    """The values that apply to a configured cron, and for each whether an operator changed it.

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
    """The result of `sync`: five sorted lists of cron names. Each name is in exactly one of them."""

    added: tuple[str, ...]
    changed: tuple[str, ...]
    retired: tuple[str, ...]
    revived: tuple[str, ...]
    unchanged: tuple[str, ...]


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


class Fire(FireSummary):
    """A fire with its payload, and the error that it ended with."""

    error: Any
    payload: Any


class CronHealth(Record):
    """The health of a cron, derived from how its newest fires ended.

    ``failure_streak`` is the number of its latest finished fires that did not end ``ok``, at most 10.
    """

    cron_name: str
    latest: FireSummary | None
    failure_streak: int
    last_ok_at: datetime | None
    last_finished_at: datetime | None
    running: bool


class FireDay(Record):
    """The number of fires that began on a day in UTC, by status. A status without fires is left out."""

    start: datetime
    counts: dict[str, int]
