"""`store.schedules.fires`: what a fire is begun as, how it ends, and what it leaves with its schedule."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from support.refusal import refused
from support.schedules.steps import at, claimed, put
from support.workflows.steps import Raw, started, together, undone

from lastlight_state import StateStore
from lastlight_state.errors import AlreadyExists, ClaimLost, Conflict, LostRace, NotFound
from lastlight_state.schedules import Fire, FireClaim, FireError, FireOutcome
from lastlight_state.testing import FrozenClock

OK = FireOutcome()
BROKEN = FireOutcome("failed", error="the target is gone")


def begun(store: Any, name: str = "tidy", **given: Any) -> FireClaim:
    claim: FireClaim = store.schedules.fires.create(name, owner="worker-1", **given)
    return claim


def error_of(store: Any, name: str = "tidy") -> Any:
    return store.schedules.crons.get(name).error


def test_a_fire_by_hand_needs_no_schedule(store: StateStore, frozen_clock: FrozenClock) -> None:
    """schedules F-1, C-4."""
    claim = begun(store, "of a file", actor="ana", lease=timedelta(minutes=2))
    fire = store.schedules.fires.get(claim.fire_id)
    assert (fire.cron_name, fire.source, fire.actor, fire.status) == ("of a file", "manual", "ana", "running")
    assert (fire.target, fire.payload, fire.scheduled_for) == (None, None, None)
    assert (fire.owner, fire.epoch, fire.attempts) == ("worker-1", 1, 1)
    assert (fire.started_at, fire.lease_expires_at) == (frozen_clock.now(), frozen_clock.now() + timedelta(minutes=2))
    assert FireClaim.model_validate_json(claim.model_dump_json()) == claim


def test_a_fire_takes_target_and_payload_from_its_schedule_and_leaves_the_plan(
    store: StateStore, frozen_clock: FrozenClock
) -> None:
    """schedules F-1, F-2."""
    cron = put(store, target="tidy-up", target_kind="handler", payload={"deep": [1, None]})
    other = put(store, "other")
    claim = begun(store)
    assert store.schedules.crons.get("other") == other
    assert (claim.target_kind, claim.target, claim.payload) == ("handler", "tidy-up", {"deep": [1, None]})
    after = store.schedules.crons.get("tidy")
    assert (after.last_run_at, after.last_fire_id) == (frozen_clock.now(), claim.fire_id)
    assert after.next_run_at == cron.next_run_at


def test_retired_and_disabled_crons_may_be_fired_by_hand(store: StateStore) -> None:
    """schedules F-1."""
    put(store, "off", enabled=False)
    put(store, "gone")
    store.schedules.crons.retire("gone")
    assert [begun(store, name).target for name in ("off", "gone")] == ["deploy", "deploy"]


def test_an_instant_has_one_fire(store: StateStore) -> None:
    """schedules F-1."""
    instant = at("2026-02-03T12:00Z")
    begun(store, "before", source="schedule", scheduled_for=instant)
    begun(store, source="backfill", scheduled_for=instant - timedelta(hours=1))
    first = begun(store, source="schedule", scheduled_for=instant)
    with pytest.raises(AlreadyExists) as refusal:
        store.schedules.fires.create("tidy", owner="worker-2", source="backfill", scheduled_for=instant)
    error = refusal.value
    assert (error.key, error.details["status"], error.details["owner"]) == (first.fire_id, "running", "worker-1")
    assert begun(store, "another", source="schedule", scheduled_for=instant).epoch == 1


def test_ten_loops_that_begin_one_instant_get_one_fire(every_backend: StateStore) -> None:
    """schedules C-1, F-1."""
    instant = at("2026-02-03T12:00Z")
    put(every_backend)
    told = together([lambda: begun(every_backend, source="schedule", scheduled_for=instant)] * 10)
    winners = [one.fire_id for one in told if isinstance(one, FireClaim)]
    losers = [one.key for one in told if isinstance(one, AlreadyExists)]
    assert winners * 9 == losers
    assert every_backend.schedules.crons.get("tidy").last_fire_id == winners[0]


def test_fires_that_must_not_overlap_wait_for_a_live_one_only(store: StateStore, frozen_clock: FrozenClock) -> None:
    """schedules F-2, C-27."""
    put(store, overlap="skip")
    first = begun(store)
    with pytest.raises(Conflict) as refusal:
        begun(store)
    assert refusal.value.code == "overlap"
    assert refusal.value.details["fire_id"] == first.fire_id
    assert store.schedules.crons.get("tidy").last_fire_id == first.fire_id
    assert len(store.schedules.fires.list()) == 1
    frozen_clock.set(first.lease_expires_at)
    with pytest.raises(Conflict):
        begun(store)
    frozen_clock.advance(timedelta(milliseconds=1))
    begun(store, "another")
    second = begun(store)
    store.schedules.fires.finish(second, OK)
    assert begun(store).fire_id != second.fire_id


def test_of_a_fire_by_hand_and_a_claim_that_must_not_overlap_one_runs(every_backend: StateStore, raw: Raw) -> None:
    """schedules C-27."""
    for round_ in range(5):
        name = f"cron {round_}"
        put(every_backend, name, overlap="skip", next_run_at="2026-02-03T12:00Z", grace_seconds=3600)
        together([lambda: begun(every_backend, name), lambda: claimed(every_backend)])  # noqa: B023 - waited for
        running = raw("SELECT id FROM cron_fires WHERE cron_name = ? AND status = 'running'", name)
        assert len(running) == 1


def test_counts_that_are_left_out_are_unknown_and_zero_is_zero(store: StateStore) -> None:
    """schedules C-3, F-11."""
    fires = store.schedules.fires
    nothing = fires.finish(begun(store), FireOutcome(discovered=0, dispatched=0, note="nothing new"))
    assert (nothing.status, nothing.dispatched, nothing.discovered, nothing.scanned) == ("ok", 0, 0, None)
    [listed] = fires.list(status="ok")
    assert (listed.dispatched, listed.failures, listed.note) == (0, None, "nothing new")
    assert fires.health(["tidy"])["tidy"].last_ok_at == nothing.finished_at


def test_the_same_end_again_is_found_and_another_is_refused(store: StateStore, frozen_clock: FrozenClock) -> None:
    """schedules F-4."""
    fires = store.schedules.fires
    claim = begun(store)
    outcome = FireOutcome("partial", failures=2, error=FireError("two of five", "Partly", {"ids": [1.0, "x"]}))
    ended = fires.finish(claim, outcome)
    frozen_clock.advance(seconds=5)
    assert fires.finish(claim, outcome) == ended == fires.get(claim.fire_id)
    assert ended.lease_expires_at is None
    for other in (OK, FireOutcome("partial", failures=2), FireOutcome("partial", failures=3, error=outcome.error)):
        with pytest.raises(LostRace) as refusal:
            fires.finish(claim, other)
        assert refusal.value.details["found"] == "partial"
    for late in (fires.heartbeat, fires.release):
        with pytest.raises(LostRace):
            late(claim)


def test_a_claim_on_a_fire_that_is_not_there_is_refused(store: StateStore) -> None:
    """schedules F-4."""
    fires = store.schedules.fires
    stranger = begun(store).model_copy(update={"fire_id": "nobody's"})
    for attempt in (fires.heartbeat, fires.release, lambda claim: fires.finish(claim, OK)):
        with pytest.raises(NotFound):
            attempt(stranger)
    with pytest.raises(NotFound):
        fires.get("nobody's")
    assert fires.find("nobody's") is None


def test_a_schedule_tells_how_its_last_fire_ended(store: StateStore) -> None:
    """schedules F-5."""
    fires = store.schedules.fires
    put(store)
    ends = [
        (BROKEN, {"message": "the target is gone"}),
        (OK, None),
        (FireOutcome("partial", error=FireError("half of it", "Half")), {"message": "half of it", "type": "Half"}),
        (FireOutcome("partial"), None),
    ]
    for outcome, told in ends:
        fires.finish(begun(store), outcome)
        assert error_of(store) == told


def test_a_late_end_of_an_older_fire_tells_the_schedule_nothing(store: StateStore) -> None:
    """schedules F-5."""
    fires = store.schedules.fires
    put(store)
    older, newer = begun(store), begun(store)
    fires.finish(newer, BROKEN)
    fires.finish(older, OK)
    assert error_of(store) == {"message": "the target is gone"}


def test_a_fire_outlives_its_schedule(store: StateStore) -> None:
    """schedules C-16, C-5."""
    put(store)
    claim = begun(store)
    store.schedules.crons.retire("tidy")
    assert store.schedules.fires.finish(claim, BROKEN).status == "failed"
    assert error_of(store) == {"message": "the target is gone"}


def test_a_run_and_its_fires_end_are_kept_together_or_not_at_all(store: StateStore, frozen_clock: FrozenClock) -> None:
    """schedules C-23."""
    put(store)
    claim = begun(store)
    with undone(store) as tx:
        run = started(tx, id=claim.fire_id)
        tx.schedules.fires.finish(claim, FireOutcome(dispatched=1))
    with pytest.raises(NotFound):
        store.workflows.runs.get(run.id)
    assert store.schedules.fires.get(claim.fire_id).status == "running"
    frozen_clock.advance(seconds=301)
    [taken] = store.schedules.fires.take_stale(owner="worker-2")
    assert (taken.fire_id, taken.epoch) == (claim.fire_id, 2)
    with pytest.raises(ClaimLost):
        store.schedules.fires.finish(claim, OK)


def test_a_failed_call_in_a_transaction_leaves_the_rest(store: StateStore) -> None:
    """schedules F-1: a refusal takes its own write back, and no other."""
    put(store)
    instant = at("2026-02-03T12:00Z")
    first = begun(store, source="schedule", scheduled_for=instant)
    with store.transaction() as tx:
        with pytest.raises(AlreadyExists):
            begun(tx, source="schedule", scheduled_for=instant)
        kept = begun(tx, "another")
    assert store.schedules.crons.get("tidy").last_fire_id == first.fire_id
    assert store.schedules.fires.get(kept.fire_id).status == "running"


def test_the_database_keeps_fires_and_their_ends(store: StateStore, raw: Raw) -> None:
    """schedules F-12: the guards, against whoever asks."""
    running, ended = begun(store), begun(store)
    before: Fire = store.schedules.fires.finish(ended, OK)
    with refused():
        raw("DELETE FROM cron_fires WHERE id = ?", running.fire_id)
    with refused():
        raw("UPDATE cron_fires SET status = 'running' WHERE id = ?", ended.fire_id)
    with refused():
        raw("UPDATE cron_fires SET note = 'x' WHERE id = ?", ended.fire_id)
    assert store.schedules.fires.get(ended.fire_id) == before
    raw("UPDATE cron_fires SET note = 'x' WHERE id = ?", running.fire_id)
    assert store.schedules.fires.get(running.fire_id).note == "x"
