"""Instants that are due when a cron's pattern, zone or switch changes."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from lastlight_state.schedules import CronSpec
from lastlight_state.testing import Database

EIGHT = datetime(2026, 2, 3, 8, tzinfo=UTC)
LATE = EIGHT + timedelta(minutes=3)


@pytest.fixture
def due(store: Any, database: Database) -> Any:
    """The crons of a store, one of which was due three minutes ago."""
    database.clock.set(EIGHT - timedelta(minutes=30))
    store.schedules.crons.put("c", CronSpec("0 * * * *", "w", grace_seconds=0))
    database.clock.set(LATE)
    return store.schedules.crons


@pytest.mark.parametrize("catch_up", ["one", "all"])
@pytest.mark.parametrize(("pattern", "zone"), [("*/30 * * * *", "UTC"), ("0 9 * * *", "Europe/Paris")])
def test_an_instant_that_is_due_under_both_patterns_fires_once(
    store: Any, due: Any, catch_up: Any, pattern: str, zone: str
) -> None:
    """schedules C-11: after a put of another pattern or zone; then the new one is in force."""
    due.put("c", CronSpec(pattern, "w", timezone=zone, catch_up=catch_up))
    [claim] = due.take_due(owner="me")
    assert store.schedules.fires.get(claim.fire_id).scheduled_for == EIGHT
    assert due.take_due(owner="me") == ()
    assert due.get("c").next_run_at > LATE


def test_an_instant_that_is_due_under_both_patterns_is_noted_as_missed(store: Any, due: Any) -> None:
    """schedules C-11: where the cron makes up for nothing."""
    due.put("c", CronSpec("*/30 * * * *", "w", catch_up="none", grace_seconds=0))
    assert due.take_due(owner="me") == ()
    assert [fire.status for fire in store.schedules.fires.list(cron_name="c")] == ["missed"]


def test_an_instant_of_the_old_pattern_alone_is_planned_anew(due: Any) -> None:
    """schedules C-24"""
    due.put("c", CronSpec("15 * * * *", "w"))
    assert due.take_due(owner="me") == ()
    assert due.get("c").next_run_at == EIGHT + timedelta(minutes=15)


def test_a_cron_that_is_switched_off_makes_up_for_nothing(due: Any) -> None:
    """schedules C-11: it is planned from now when it is switched on again."""
    due.put("c", CronSpec("0 * * * *", "w"), enabled=False)
    due.put("c", CronSpec("*/30 * * * *", "w"), enabled=True)
    assert due.take_due(owner="me") == ()
