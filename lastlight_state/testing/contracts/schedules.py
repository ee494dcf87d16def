"""Contract tests of crons, their overrides and their fires."""

from __future__ import annotations

from datetime import timedelta

import pytest

from lastlight_state import AlreadyExists, ClaimLost, LostRace, StateStore
from lastlight_state.schedules import CronSpec, FireOutcome
from lastlight_state.testing.clock import FrozenClock
from lastlight_state.testing.contracts.steps import fresh

NO_PARSER = CronSpec("0 * * * *", "contract")
LEASE = timedelta(minutes=5)


class SchedulesContract:
    """Tests of ``store.schedules``. They need no extra, because the tests provide the plans themselves."""

    def test_an_instant_is_fired_once(self, store: StateStore, frozen_clock: FrozenClock) -> None:
        name, due = fresh("cron"), frozen_clock.now()
        first = store.schedules.fires.create(name, owner="ana", source="schedule", scheduled_for=due, lease=LEASE)
        with pytest.raises(AlreadyExists) as caught:
            store.schedules.fires.create(name, owner="bo", source="schedule", scheduled_for=due, lease=LEASE)
        assert caught.value.details["key"] == first.fire_id

    def test_a_loop_of_its_own_wins_an_instant_by_advancing_it(
        self, store: StateStore, frozen_clock: FrozenClock
    ) -> None:
        name, due = fresh("cron"), frozen_clock.now()
        store.schedules.crons.put(name, NO_PARSER, next_run_at=due)
        after = due + timedelta(hours=1)
        store.schedules.crons.update_run(name, expected_next_run_at=due, last_run_at=due, next_run_at=after)
        with pytest.raises(LostRace):
            store.schedules.crons.update_run(name, expected_next_run_at=due, last_run_at=due, next_run_at=after)
        assert store.schedules.crons.get(name).next_run_at == after

    def test_a_fire_that_nobody_holds_is_taken_over_and_its_old_owner_fenced(
        self, store: StateStore, frozen_clock: FrozenClock
    ) -> None:
        fires = store.schedules.fires
        lost = fires.create(fresh("cron"), owner="ana", lease=LEASE)
        frozen_clock.advance(LEASE + timedelta(milliseconds=1))
        [taken] = [claim for claim in fires.take_stale(owner="bo", limit=100) if claim.fire_id == lost.fire_id]
        with pytest.raises(ClaimLost):
            fires.finish(lost, FireOutcome())
        assert fires.finish(taken, FireOutcome(dispatched=0, note="nothing new")).status == "ok"

    def test_an_override_holds_until_it_is_cleared(self, store: StateStore) -> None:
        name = fresh("cron")
        store.schedules.overrides.put(name, enabled=False, by="ana")
        resolved = store.schedules.overrides.resolve({name: NO_PARSER})[name]
        assert (resolved.enabled, resolved.pattern) == (False, NO_PARSER.pattern)
        assert store.schedules.overrides.clear(name)
        assert store.schedules.overrides.resolve({name: NO_PARSER})[name].enabled
