"""Services that share a database take their own crons and fires."""

from __future__ import annotations

from datetime import timedelta

from lastlight_state import StateStore
from lastlight_state.schedules import CronSpec, FireOutcome
from lastlight_state.testing import FrozenClock


def test_each_service_takes_what_is_its_own(every_backend: StateStore, frozen_clock: FrozenClock) -> None:
    """schedules C-35: by name, by target, or by both; nothing for no names."""
    crons, fires = every_backend.schedules.crons, every_backend.schedules.fires
    due = frozen_clock.now()
    for name, target in (("a", "ours"), ("b", "theirs"), ("c", "ours")):
        crons.put(name, CronSpec("0 * * * *", target=target), next_run_at=due)
    frozen_clock.advance(timedelta(seconds=1))
    assert crons.take_due(owner="w", names=()) == fires.take_stale(owner="w", targets=()) == ()
    assert crons.next_due_at(names=["absent"]) is crons.next_due_at(targets=()) is None
    assert crons.next_due_at(targets=["ours"]) == due
    assert [claim.cron_name for claim in crons.take_due(owner="w", names=["a", "b"], targets=["ours"])] == ["a"]
    assert [claim.cron_name for claim in crons.take_due(owner="w", targets=["ours"])] == ["c"]
    assert crons.next_due_at(targets=["ours"]) != due
    assert [claim.cron_name for claim in crons.take_due(owner="w")] == ["b"]
    frozen_clock.advance(timedelta(minutes=30))
    assert [claim.cron_name for claim in fires.take_stale(owner="v", targets=["theirs"])] == ["b"]
    assert [claim.cron_name for claim in fires.take_stale(owner="v", names=["c"])] == ["c"]
    assert [claim.cron_name for claim in fires.take_stale(owner="v")] == ["a"]


def test_a_cron_of_a_workflow_that_is_switched_off_fires_and_dispatches_nothing(
    every_backend: StateStore, frozen_clock: FrozenClock
) -> None:
    """schedules C-6: its dispatcher asks the workflow's own switch."""
    store, crons = every_backend, every_backend.schedules.crons
    crons.put("c", CronSpec("0 * * * *", target="wf"), next_run_at=frozen_clock.now())
    store.workflows.overrides.put("wf", enabled=False)
    [claim] = crons.take_due(owner="w")
    assert (claim.target, crons.get("c").enabled, store.workflows.overrides.is_enabled("wf")) == ("wf", True, False)
    fire = store.schedules.fires.finish(claim, FireOutcome(dispatched=0, note="workflow disabled"))
    assert (fire.status, fire.dispatched, fire.note) == ("ok", 0, "workflow disabled")
    assert store.schedules.fires.health(["c"])["c"].failure_streak == 0
