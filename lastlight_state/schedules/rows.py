"""The rows of the tables of schedules, written by ``make docs`` from the models. JSON is given as text."""

from __future__ import annotations

from datetime import datetime
from typing import Any, TypedDict


class CronOverrideRow(TypedDict):
    """A row of ``cron_overrides``."""

    name: str
    enabled: bool
    schedule: str | None
    updated_at: datetime
    updated_by: str | None
    timezone: str | None
    inherits_enabled: bool


class CronScheduleRow(TypedDict):
    """A row of ``cron_schedules``."""

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
    error_json: Any
    payload: Any


class CronFireRow(TypedDict):
    """A row of ``cron_fires``."""

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
    error_json: Any
    payload: Any
