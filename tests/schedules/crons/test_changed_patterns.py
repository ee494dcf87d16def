"""Instants that are due when a cron's pattern, zone or switch changes."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from lastlight_state.schedules import CronSpec
from lastlight_state.testing import Database, racing

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


#: Changes of an override after which the instant is one of both patterns.
OVERRIDES: dict[str, Any] = {
    "pattern": lambda overrides: overrides.put("c", schedule="*/30 * * * *"),
    "zone": lambda overrides: overrides.put("c", timezone="Europe/Paris"),
    "cleared": lambda overrides: overrides.clear("c"),
    "given back": lambda overrides: overrides.put("c", schedule=None),
}


@pytest.mark.parametrize("change", OVERRIDES)
@pytest.mark.parametrize("catch_up", ["one", "all", "none"])
def test_an_override_leaves_an_instant_that_is_due_under_both_patterns(
    store: Any, database: Database, change: str, catch_up: Any
) -> None:
    """schedules C-24: it fires once, or is noted as missed; then the override is in force."""
    schedules = store.schedules
    database.clock.set(EIGHT - timedelta(minutes=30))
    schedules.crons.put("c", CronSpec("0 * * * *", "w", catch_up=catch_up, grace_seconds=0))
    if change in ("cleared", "given back"):
        schedules.overrides.put("c", schedule="0 */2 * * *")
    database.clock.set(LATE)
    OVERRIDES[change](schedules.overrides)
    claims = schedules.crons.take_due(owner="me")
    assert len(claims) == (catch_up != "none")
    [fire] = schedules.fires.list(cron_name="c")
    assert (fire.scheduled_for, fire.status) == (EIGHT, "missed" if catch_up == "none" else "running")
    assert schedules.crons.take_due(owner="me") == ()
    assert schedules.crons.get("c").next_run_at > LATE


def test_an_override_does_not_bring_back_an_instant_that_was_taken_meanwhile(database: Database) -> None:
    """schedules C-24: somebody takes it between the look at the plan and the change."""
    store, rival = database.open(), database.open()
    database.clock.set(EIGHT - timedelta(minutes=30))
    store.schedules.crons.put("c", CronSpec("0 * * * *", "w", grace_seconds=0))
    database.clock.set(LATE)
    with racing(store) as race:
        race.before_unit(1, lambda: rival.schedules.crons.take_due(owner="rival"))
        store.schedules.overrides.put("c", schedule="*/30 * * * *")
    assert store.schedules.crons.take_due(owner="me") == ()
    assert [fire.owner for fire in store.schedules.fires.list(cron_name="c")] == ["rival"]
