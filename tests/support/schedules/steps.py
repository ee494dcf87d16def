"""Steps that tests of the schedules domain share: times, crons to begin with, and what is stored of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from support.workflows.steps import Raw

from lastlight_state.schedules import Cron, CronSpec, FireClaim

HOURLY = CronSpec("0 * * * *", "deploy")


def at(text: str) -> datetime:
    """A time, as ISO 8601 has it."""
    return datetime.fromisoformat(text)


def put(store: Any, name: str = "tidy", spec: CronSpec = HOURLY, *, next_run_at: Any = None, **changed: Any) -> Cron:
    """A cron, hourly unless said otherwise; due at an instant that is given as text."""
    given = {} if next_run_at is None else {"next_run_at": at(next_run_at)}
    cron: Cron = store.schedules.crons.put(name, replace(spec, **changed), **given)
    return cron


def claimed(store: Any, **given: Any) -> list[FireClaim]:
    """What a loop gets when it asks."""
    return list(store.schedules.crons.take_due(owner="loop", **given))


def instants(claims: Sequence[FireClaim]) -> list[str]:
    """Names and instants of claims, in their order."""
    return [f"{claim.cron_name} {claim.scheduled_for:%dT%H:%M}" for claim in claims]


def stored_fires(raw: Raw, *columns: str) -> list[tuple[Any, ...]]:
    """Columns of all fires, in the order of their instants."""
    return raw(f"SELECT {', '.join(columns)} FROM cron_fires ORDER BY scheduled_for, id")


def override(raw: Raw, name: str, *, enabled: bool = True, schedule: str | None = None) -> None:
    """An override as the original program writes it: the columns of the seed, and nothing else."""
    raw(
        "INSERT INTO cron_overrides (name, enabled, schedule, updated_at) VALUES (?, ?, ?, ?)",
        name,
        enabled,
        schedule,
        at("2026-01-01T00:00Z"),
    )
