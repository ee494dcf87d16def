"""Claims given back, handed over, or given up."""

from __future__ import annotations

from datetime import timedelta

import pytest
from support.workflows.claim_steps import LEASE, MILLI, abandoned, listed, offered, sleeping, stand
from support.workflows.steps import TRIGGER, Raw, started

from lastlight_state import StateStore
from lastlight_state.errors import ClaimLost, Conflict
from lastlight_state.testing import FrozenClock
from lastlight_state.workflows import PhaseEntry, WorkflowRun


def test_a_release_puts_back_what_was_before_the_take(store: StateStore, raw: Raw, frozen_clock: FrozenClock) -> None:
    """workflows W-46: A's values are there again, the run is claimable at once, and A stays fenced."""
    a = abandoned(store, frozen_clock, "a")
    before = stand(store, a.run_id)
    b = store.workflows.claims.take(a.run_id, owner="b")
    store.workflows.claims.release(b)
    assert stand(store, a.run_id) == before
    assert store.workflows.runs.get(a.run_id).claim_epoch == b.epoch + 1
    for lost in (a, b):
        with pytest.raises(ClaimLost):
            store.workflows.runs.append_phase(a.run_id, PhaseEntry("x", True), claim=lost)
    assert listed(store) == [a.run_id]
    assert store.workflows.claims.take(a.run_id, owner="c").restart_count == 1
    raw.check_history(a.run_id)


def test_the_next_take_of_a_run_that_was_given_back_is_no_takeover(
    store: StateStore, raw: Raw, frozen_clock: FrozenClock
) -> None:
    """workflows W-42, W-43: nothing of it is recorded, and the run was not changed."""
    run = started(store)
    store.workflows.claims.release(store.workflows.claims.take(run.id, owner="a"))
    frozen_clock.advance(MILLI)
    before, changes = store.workflows.runs.get(run.id), raw.transitions(run.id)
    [taken] = store.workflows.claims.take_next(owner="b")
    assert (taken.run_id, taken.restart_count) == (run.id, 0)
    assert raw.transitions(run.id) == changes
    assert store.workflows.runs.get(run.id).updated_at == before.updated_at


def test_only_the_holder_can_release(store: StateStore, frozen_clock: FrozenClock) -> None:
    """workflows W-46."""
    a = abandoned(store, frozen_clock, "a")
    b = store.workflows.claims.take(a.run_id, owner="b")
    frozen_clock.advance(LEASE + MILLI)
    c = store.workflows.claims.take(a.run_id, owner="c")
    before = stand(store, a.run_id)
    with pytest.raises(ClaimLost) as caught:
        store.workflows.claims.release(b)
    assert (caught.value.held_by, caught.value.current_epoch) == ("c", c.epoch)
    assert stand(store, a.run_id) == before
    store.workflows.claims.release(c)
    with pytest.raises(ClaimLost):
        store.workflows.claims.release(c)


def test_a_run_that_nobody_owned_is_offered_after_a_release(store: StateStore) -> None:
    """workflows W-46: an orderly shutdown in the grace after the start costs no restart either."""
    claim = store.workflows.claims.take(started(store).id, owner="a")
    store.workflows.claims.release(claim)
    [found] = store.workflows.claims.list_claimable()
    assert (found.kind, found.epoch, found.last_owner) == ("offered", claim.epoch + 1, "a")
    assert store.workflows.claims.take(claim.run_id, owner="b").restart_count == 0


def test_a_due_run_is_paused_again_by_a_release(store: StateStore, raw: Raw, frozen_clock: FrozenClock) -> None:
    """workflows W-46: what it waits for is still there, and so it is due at once."""
    run = sleeping(store, frozen_clock.now())
    claim = store.workflows.claims.take(run.id, owner="a")
    store.workflows.claims.release(claim)
    again = store.workflows.runs.get(run.id)
    same = ("status", "wake_at", "pause_reason", "claim_owner", "heartbeat_at", "lease_expires_at", "restart_count")
    assert [getattr(again, name) for name in same] == [getattr(run, name) for name in same]
    assert raw.transitions(run.id)[-1] == ("running", "paused", "claim.released")
    raw.check_history(run.id)
    assert listed(store) == [run.id]


def test_take_and_release_again_and_again_count_nothing(store: StateStore, raw: Raw, frozen_clock: FrozenClock) -> None:
    """workflows W-46, case 13."""
    old = abandoned(store, frozen_clock)
    for turn in range(10):
        store.workflows.claims.release(store.workflows.claims.take(old.run_id, owner=f"b-{turn}"))
    assert store.workflows.runs.get(old.run_id).restart_count == 0
    raw.check_history(old.run_id)


@pytest.mark.parametrize("kind", ["offered", "abandoned", "due"])
def test_a_run_that_is_put_off_is_not_claimable_before_its_time(
    store: StateStore, raw: Raw, frozen_clock: FrozenClock, kind: str
) -> None:
    """workflows W-46, case 13."""
    if kind == "abandoned":
        run_id = abandoned(store, frozen_clock).run_id
    else:
        run_id = (offered(store) if kind == "offered" else sleeping(store, frozen_clock.now())).id
    claim = store.workflows.claims.take(run_id, owner="a")
    store.workflows.claims.release(claim, retry_after=timedelta(seconds=10))
    frozen_clock.advance(timedelta(seconds=10) - MILLI)
    assert listed(store) == []
    assert store.workflows.claims.try_take(run_id, owner="b") is None
    assert store.workflows.claims.take_next(owner="b") == ()
    frozen_clock.advance(MILLI)
    [found] = store.workflows.claims.list_claimable()
    assert (found.run_id, found.kind) == (run_id, kind)
    assert store.workflows.claims.take_next(owner="b")[0].run_id == run_id


def test_a_handover_keeps_what_a_release_puts_back(store: StateStore, frozen_clock: FrozenClock) -> None:
    """workflows W-45."""
    a = abandoned(store, frozen_clock, "a")
    before = stand(store, a.run_id)
    b = store.workflows.claims.take(a.run_id, owner="b")
    child = store.workflows.claims.transfer(b, owner="b-child", lease=timedelta(minutes=2))
    assert (child.owner, child.epoch, child.restart_count) == ("b-child", b.epoch + 1, 1)
    assert child.lease_expires_at == frozen_clock.now() + timedelta(minutes=2)
    for write in (store.workflows.claims.heartbeat, store.workflows.claims.release):
        with pytest.raises(ClaimLost, match="b-child"):
            write(b)
    with pytest.raises(ClaimLost):
        store.workflows.claims.transfer(b, owner="other")
    store.workflows.claims.release(child)
    assert stand(store, a.run_id) == before


def test_the_breaker_stops_a_run_that_crashes_again_and_again(
    store: StateStore, raw: Raw, frozen_clock: FrozenClock
) -> None:
    """workflows W-40, W-42, W-47, case 12: marked, not hidden; passed over; given up with a reason."""
    ended: list[WorkflowRun] = []
    store.workflows.on_terminal(ended.append)
    crashing = abandoned(store, frozen_clock, max_restarts=3)
    for turn in range(3):
        assert store.workflows.claims.take(crashing.run_id, owner=f"w-{turn}").restart_count == turn + 1
        frozen_clock.advance(LEASE + MILLI)
    before = store.workflows.runs.get(crashing.run_id)
    with pytest.raises(Conflict) as caught:
        store.workflows.claims.take(crashing.run_id, owner="w-3")
    assert (caught.value.code, caught.value.details["max_restarts"]) == ("restart_limit", 3)
    assert store.workflows.claims.try_take(crashing.run_id, owner="w-3") is None
    assert store.workflows.claims.take_next(owner="w-3") == ()
    assert store.workflows.runs.get(crashing.run_id) == before
    [found] = store.workflows.claims.list_claimable()
    assert (found.at_limit, found.restarts_left, found.last_owner) == (True, 0, "w-2")
    execution = raw.execution(crashing.run_id)
    assert store.workflows.claims.give_up() == (crashing.run_id,)
    failed = store.workflows.runs.get(crashing.run_id)
    assert (failed.status, failed.error, failed.status_reason) == (
        "failed",
        "gave up after 3 restarts",
        "claim.gave_up",
    )
    assert raw("SELECT detail FROM run_transitions WHERE reason = 'claim.gave_up'") == [("restart_limit",)]
    assert store.workflows.executions.get(execution).outcome == "interrupted"
    assert (ended, listed(store), store.workflows.claims.give_up()) == ([failed], [], ())
    raw.check_history(failed.id)


def test_a_run_that_is_not_at_its_limit_or_was_renewed_is_not_given_up(
    store: StateStore, frozen_clock: FrozenClock
) -> None:
    """workflows W-47, case 12."""
    spent = [abandoned(store, frozen_clock, max_restarts=0) for _ in range(3)]
    below = abandoned(store, frozen_clock)
    renewed = store.workflows.claims.heartbeat(spent[1])
    free = store.workflows.runs.create("deploy", trigger=TRIGGER, phase="plan")
    assert store.workflows.claims.give_up(reason="no more", limit=1) == (spent[0].run_id,)
    assert store.workflows.claims.give_up() == (spent[2].run_id,)
    for run_id in (renewed.run_id, below.run_id, free.id):
        assert store.workflows.runs.get(run_id).status == "running"
