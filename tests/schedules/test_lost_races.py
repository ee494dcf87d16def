"""What a call of this domain decides although something changed between its look and its write."""

from __future__ import annotations

from datetime import timedelta

import pytest
from support.schedules.steps import put, stored_fires
from support.workflows.steps import Raw

from lastlight_state import StateStore
from lastlight_state.errors import Conflict
from lastlight_state.schedules import FireOutcome
from lastlight_state.testing import Database, FrozenClock, racing

MILLISECOND = timedelta(milliseconds=1)


@pytest.fixture
def other(database: Database) -> StateStore:
    """Another process's store on the same database."""
    return database.open()


@pytest.mark.parametrize("max_attempts", [1, 3])
def test_a_fire_renewed_after_the_look_is_neither_taken_nor_given_up(
    store: StateStore, other: StateStore, frozen_clock: FrozenClock, max_attempts: int
) -> None:
    """schedules F-7."""
    fires = store.schedules.fires
    claim = fires.create("tidy", owner="worker-1")
    frozen_clock.set(claim.lease_expires_at + MILLISECOND)
    with racing(store) as race:
        race.before_unit(2, lambda: other.schedules.fires.heartbeat(claim))
        assert fires.take_stale(owner="worker-2", max_attempts=max_attempts) == ()
    assert race.left == 0
    stored = fires.get(claim.fire_id)
    assert (stored.owner, stored.epoch, stored.status) == ("worker-1", 1, "running")
    fires.finish(claim, FireOutcome())


def test_a_cron_changed_after_the_look_is_not_fired_by_the_old_decision(
    store: StateStore, other: StateStore, raw: Raw
) -> None:
    """schedules C-21, C-24: the row that is locked must be the row that was decided about."""
    put(store, next_run_at="2026-02-03T12:00Z")
    with racing(store) as race:
        race.before_unit(2, lambda: put(other, pattern="30 3 * * *"))
        assert store.schedules.crons.take_due(owner="loop") == ()
    assert race.left == 0
    assert stored_fires(raw, "id") == []
    cron = store.schedules.crons.get("tidy")
    assert cron.next_run_at is not None
    assert (cron.pattern, cron.next_run_at.strftime("%H:%M")) == ("30 3 * * *", "03:30")


def test_a_cron_claimed_after_the_look_is_claimed_once(store: StateStore, other: StateStore, raw: Raw) -> None:
    """schedules C-1, C-21."""
    put(store, next_run_at="2026-02-03T12:00Z")
    with racing(store) as race:
        race.before_unit(2, lambda: other.schedules.crons.take_due(owner="faster"))
        assert store.schedules.crons.take_due(owner="loop") == ()
    assert race.left == 0
    assert stored_fires(raw, "owner") == [("faster",)]


def test_fires_overlap_until_the_very_end_of_a_lease(store: StateStore, frozen_clock: FrozenClock) -> None:
    """schedules F-2: a lease that ends now still runs; a millisecond later it is over."""
    put(store, overlap="skip")
    fires = store.schedules.fires
    running = fires.create("tidy", owner="worker-1")
    frozen_clock.set(running.lease_expires_at)
    with pytest.raises(Conflict) as refusal:
        fires.create("tidy", owner="worker-2")
    assert refusal.value.code == "overlap"
    frozen_clock.advance(MILLISECOND)
    assert fires.create("tidy", owner="worker-2").owner == "worker-2"
