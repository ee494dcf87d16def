"""What is left of a holder: transitions, executions in flight, a request to cancel."""

from __future__ import annotations

from datetime import timedelta

import pytest
from support.workflows.claim_steps import LEASE, MILLI
from support.workflows.steps import Raw, started

from lastlight_state import StateStore
from lastlight_state.errors import ClaimLost
from lastlight_state.testing import FrozenClock
from lastlight_state.workflows import PhaseEntry


def test_releases_and_hand_overs_leave_a_transition(store: StateStore, raw: Raw, frozen_clock: FrozenClock) -> None:
    """workflows W-121: so a history never ends with a takeover that was given back."""
    claims = store.workflows.claims
    a = claims.take(started(store).id, owner="a")
    frozen_clock.advance(LEASE + MILLI)
    b = claims.take(a.run_id, owner="b")
    c = claims.transfer(b, owner="c")
    claims.release(c)
    told = raw("SELECT reason, actor, claim_epoch FROM run_transitions WHERE run_id = ? ORDER BY seq", a.run_id)
    assert told[1:] == [
        ("claim.taken_over", "b", b.epoch),
        ("claim.transferred", "b", b.epoch),
        ("claim.released", "c", c.epoch),
    ]
    raw.check_history(a.run_id)
    with pytest.raises(ClaimLost):
        claims.transfer(c, owner="d")


def test_a_take_says_what_the_earlier_holder_left_in_flight(store: StateStore, frozen_clock: FrozenClock) -> None:
    """workflows W-122."""
    claims, executions = store.workflows.claims, store.workflows.executions
    a = claims.take(started(store).id, owner="a")
    ended, _ = (executions.start("deploy:plan", run_id=a.run_id, claim=a).id for _ in range(2))
    executions.finish(ended, "succeeded", claim=a)
    frozen_clock.advance(LEASE + MILLI)
    b = claims.take(a.run_id, owner="b")
    assert (a.left_in_flight, b.left_in_flight) == (0, 1)
    assert executions.interrupt(a.run_id, reason="its worker is gone", claim=b) == 1
    claims.release(b)
    assert claims.take_next(owner="c")[0].left_in_flight == 0


def test_a_write_without_a_claim_is_told_so(store: StateStore) -> None:
    """workflows W-123."""
    claim = store.workflows.claims.take(started(store).id, owner="a")
    with pytest.raises(ClaimLost, match="and no claim was given"):
        store.workflows.runs.append_phase(claim.run_id, PhaseEntry("x", True))


@pytest.mark.parametrize("restarts", [0, 3])
def test_a_run_to_be_cancelled_whose_worker_died_is_cancelled(
    store: StateStore, raw: Raw, frozen_clock: FrozenClock, restarts: int
) -> None:
    """workflows W-124: by a sweep, or by who takes it; that is no restart, and no limit stands in the way."""
    claims, runs = store.workflows.claims, store.workflows.runs
    swept, taken = (started(store, max_restarts=restarts).id for _ in range(2))
    for run_id in (swept, taken):
        claims.take(run_id, owner="a")
        runs.request_cancel(run_id, by="ana", reason="enough")
    assert claims.give_up() == ()
    frozen_clock.advance(LEASE + MILLI)
    assert [(found.cancel_requested, found.at_limit) for found in claims.list_claimable()] == [(True, False)] * 2
    claim = claims.take(taken, owner="b")
    assert (claim.cancel_requested, claim.restart_count) == (True, 0)
    runs.finish(taken, "cancelled", claim=claim)
    assert claims.give_up() == (swept,)
    assert {runs.get(run_id).status for run_id in (swept, taken)} == {"cancelled"}
    assert runs.get(swept).restart_count == 0
    for run_id in (swept, taken):
        raw.check_history(run_id)


def test_a_fires_claim_carries_its_lease(store: StateStore, frozen_clock: FrozenClock) -> None:
    """schedules C-36: a heartbeat renews by it, as that of a run's claim does."""
    fires, hour = store.schedules.fires, timedelta(hours=1)
    claim = fires.create("tidy", owner="a", lease=hour)
    assert claim.lease == hour
    frozen_clock.advance(timedelta(minutes=30))
    assert fires.heartbeat(claim).lease_expires_at == frozen_clock.now() + hour
    longer = fires.heartbeat(claim, lease=2 * hour)
    assert (longer.lease, longer.lease_expires_at) == (2 * hour, frozen_clock.now() + 2 * hour)
    frozen_clock.advance(timedelta(hours=3))
    [stale] = fires.take_stale(owner="b", lease=hour)
    assert (stale.lease, stale.lease_expires_at) == (hour, frozen_clock.now() + hour)
