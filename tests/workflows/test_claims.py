"""Claims: taking, renewing, handing over and giving back the right to drive a run."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from workflows.steps import TRIGGER, Raw, paused, started, undone

from lastlight_state import StateStore
from lastlight_state.errors import ClaimLost, Conflict, InvalidValue, LostRace, NotFound
from lastlight_state.testing import FrozenClock
from lastlight_state.workflows import Claim, ClaimableRun, Gate, PhaseEntry, WorkflowRun

LEASE = timedelta(seconds=30)
MILLI = timedelta(milliseconds=1)
PREVIOUS = ("claim_owner", "heartbeat_at", "lease_expires_at", "restart_count", "status")


def offered(store: Any) -> WorkflowRun:
    """A run that waits for any worker, after an answer."""
    approval = paused(store)
    answered: WorkflowRun = store.workflows.approvals.answer(approval.id, "approved", by="ana").run
    return answered


def sleeping(store: Any, until: Any) -> WorkflowRun:
    """A run that is paused until a time."""
    slept: WorkflowRun = store.workflows.waits.pause(started(store).id, until=until)
    return slept


def abandoned(store: Any, clock: FrozenClock, owner: str = "a", **given: Any) -> Claim:
    """A claim whose lease is over, by a second."""
    run = started(store, **given)
    claim: Claim = store.workflows.claims.take(run.id, owner=owner)
    clock.advance(LEASE + timedelta(seconds=1))
    return claim


def stand(store: Any, run_id: str) -> tuple[Any, ...]:
    """How a run stands, as far as a take changes and a release restores it."""
    run = store.workflows.runs.get(run_id)
    return tuple(getattr(run, name) for name in PREVIOUS)


def listed(store: Any, **given: Any) -> list[str]:
    page = store.workflows.claims.list_claimable(**given)
    return [run.run_id for run in page]


def test_the_creator_takes_its_run_in_its_grace(store: StateStore, raw: Raw, frozen_clock: FrozenClock) -> None:
    """workflows W-41, W-44: the claim is what is stored, and a later read gives the same."""
    run = started(store)
    assert listed(store) == []
    claim = store.workflows.claims.take(run.id, owner="worker-1", lease=timedelta(seconds=45))
    assert (claim.run_id, claim.owner, claim.epoch, claim.restart_count) == (run.id, "worker-1", 1, 0)
    assert (claim.taken_at, claim.lease_expires_at) == (run.started_at, run.started_at + timedelta(seconds=45))
    stored = store.workflows.runs.get(run.id)
    assert (stored.claim_owner, stored.claim_epoch, stored.claimed_at) == ("worker-1", 1, claim.taken_at)
    assert (stored.heartbeat_at, stored.lease_expires_at) == (claim.taken_at, claim.lease_expires_at)
    assert stored.transition_seq == 1
    raw.check_history(run.id)


def test_a_claim_travels_as_json(store: StateStore) -> None:
    """workflows W-45."""
    claim = store.workflows.claims.take(started(store).id, owner="worker-1", lease=timedelta(milliseconds=1500))
    assert Claim.model_validate_json(claim.model_dump_json()) == claim


def test_taking_an_offered_run_is_free(store: StateStore, raw: Raw) -> None:
    """workflows W-42, case 14."""
    run = offered(store)
    claim = store.workflows.claims.take(run.id, owner="worker-1")
    assert claim.restart_count == 0
    assert store.workflows.runs.get(run.id).transition_seq == run.transition_seq
    raw.check_history(run.id)


def test_taking_an_abandoned_run_counts_and_is_recorded(store: StateStore, raw: Raw, frozen_clock: FrozenClock) -> None:
    """workflows W-11, W-42: one statement counts the restart, a note says who took it from whom."""
    old = abandoned(store, frozen_clock, "worker-1")
    claim = store.workflows.claims.take(old.run_id, owner="worker-2")
    assert (claim.epoch, claim.restart_count) == (old.epoch + 1, 1)
    assert raw.transitions(old.run_id)[-1] == ("running", "running", "claim.taken_over")
    [said] = raw("SELECT actor, source, detail, claim_epoch FROM run_transitions WHERE reason = 'claim.taken_over'")
    assert said == ("worker-2", "supervisor", "from worker-1", claim.epoch)
    run = store.workflows.runs.get(old.run_id)
    assert (run.status_reason, run.updated_at) == ("run.created", frozen_clock.now())
    raw.check_history(run.id)


def test_a_run_that_was_never_claimed_is_abandoned_after_its_grace(
    store: StateStore, raw: Raw, frozen_clock: FrozenClock
) -> None:
    """workflows W-22, W-42."""
    run = started(store)
    frozen_clock.advance(LEASE)
    assert listed(store) == []
    frozen_clock.advance(MILLI)
    [found] = store.workflows.claims.list_claimable()
    assert (found.kind, found.last_owner, found.heartbeat_at, found.seen_at) == (
        "abandoned",
        None,
        None,
        run.started_at,
    )
    assert store.workflows.claims.take(run.id, owner="worker-1").restart_count == 1
    assert raw("SELECT detail FROM run_transitions WHERE reason = 'claim.taken_over'") == [(None,)]


def test_a_due_run_runs_on_when_it_is_taken(store: StateStore, raw: Raw, frozen_clock: FrozenClock) -> None:
    """workflows W-41, W-42, case 63: free, and recorded."""
    run = sleeping(store, frozen_clock.now() + timedelta(seconds=60))
    with pytest.raises(Conflict) as caught:
        store.workflows.claims.take(run.id, owner="worker-1")
    assert (caught.value.code, caught.value.details["found"]) == ("run_status", "paused")
    assert store.workflows.claims.try_take(run.id, owner="worker-1") is None
    frozen_clock.advance(seconds=60)
    assert [(found.kind, found.run_id) for found in store.workflows.claims.list_claimable()] == [("due", run.id)]
    claim = store.workflows.claims.take(run.id, owner="worker-1")
    woken = store.workflows.runs.get(run.id)
    assert (woken.status, woken.status_reason, claim.restart_count) == ("running", "run.resumed.timer", 0)
    assert raw.transitions(run.id)[-1] == ("paused", "running", "run.resumed.timer")
    raw.check_history(run.id)
    assert listed(store) == []


def test_a_due_run_with_a_question_left_is_not_due(store: StateStore, raw: Raw, frozen_clock: FrozenClock) -> None:
    """workflows 4.4, case 63."""
    approval = paused(store)
    run_id = approval.workflow_run_id
    raw("UPDATE workflow_runs SET wake_at = ? WHERE id = ?", frozen_clock.now(), run_id)
    assert listed(store) == []
    assert store.workflows.claims.take_next(owner="worker-1") == ()
    with pytest.raises(Conflict, match="paused"):
        store.workflows.claims.take(run_id, owner="worker-1")
    raw("UPDATE workflow_approvals SET blocks_run = ?", False)
    assert store.workflows.claims.take_next(owner="worker-1")[0].run_id == run_id


def test_a_run_that_somebody_drives_is_a_lost_race(store: StateStore) -> None:
    """workflows W-41: the loser learns who drives it, and until when."""
    claim = store.workflows.claims.take(started(store).id, owner="worker-1")
    with pytest.raises(LostRace) as caught:
        store.workflows.claims.take(claim.run_id, owner="worker-2")
    assert caught.value.details["held_by"] == "worker-1"
    assert caught.value.details["lease_expires_at"] == claim.lease_expires_at
    assert store.workflows.claims.try_take(claim.run_id, owner="worker-2") is None
    assert store.workflows.claims.heartbeat(claim).epoch == claim.epoch


def test_runs_that_do_not_run_cannot_be_taken(store: StateStore) -> None:
    """workflows W-12, W-13."""
    ended = started(store)
    store.workflows.runs.finish(ended.id, "succeeded")
    for run in (ended, started(store, status="queued"), store.workflows.runs.get(paused(store).workflow_run_id)):
        with pytest.raises(Conflict) as caught:
            store.workflows.claims.take(run.id, owner="worker-1")
        assert caught.value.code == "run_status"
        assert store.workflows.claims.try_take(run.id, owner="worker-1") is None
    with pytest.raises(NotFound):
        store.workflows.claims.take("gone", owner="worker-1")
    assert store.workflows.claims.try_take("gone", owner="worker-1") is None


def test_an_expected_epoch_binds_a_take_to_what_was_seen(store: StateStore, frozen_clock: FrozenClock) -> None:
    """workflows W-41."""
    old = abandoned(store, frozen_clock)
    [seen] = store.workflows.claims.list_claimable()
    taken = store.workflows.claims.take(old.run_id, owner="b", expected_epoch=seen.epoch)
    frozen_clock.advance(LEASE + MILLI)
    with pytest.raises(LostRace) as caught:
        store.workflows.claims.take(old.run_id, owner="c", expected_epoch=seen.epoch)
    assert caught.value.details["epoch"] == taken.epoch
    assert store.workflows.claims.take(old.run_id, owner="c", expected_epoch=taken.epoch).restart_count == 2


def test_a_holder_may_take_its_own_run_again(store: StateStore, raw: Raw, frozen_clock: FrozenClock) -> None:
    """workflows W-41, case 13: a new epoch, the old claim lost, nothing counted, the release unchanged."""
    old = abandoned(store, frozen_clock, "a")
    before = stand(store, old.run_id)
    first = store.workflows.claims.take(old.run_id, owner="b")
    again = store.workflows.claims.take(old.run_id, owner="b", expected_epoch=old.epoch)
    assert (again.epoch, again.restart_count) == (first.epoch + 1, 1)
    with pytest.raises(ClaimLost):
        store.workflows.claims.heartbeat(first)
    assert len(raw.transitions(old.run_id)) == 2
    store.workflows.claims.release(again)
    assert stand(store, old.run_id) == before


def test_a_holder_that_was_silent_too_long_counts_as_any_other(store: StateStore, frozen_clock: FrozenClock) -> None:
    """workflows W-42: an owner that crashes and comes back under its name cannot pass the breaker."""
    old = abandoned(store, frozen_clock, "a")
    assert store.workflows.claims.take(old.run_id, owner="a").restart_count == 1


def test_a_release_puts_back_what_was_before_the_take(store: StateStore, raw: Raw, frozen_clock: FrozenClock) -> None:
    """workflows W-46, case 10: A's values are there again, the run is claimable at once, and A stays fenced."""
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


def test_only_the_holder_can_release(store: StateStore, frozen_clock: FrozenClock) -> None:
    """workflows W-46, case 11."""
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


def test_a_heartbeat_renews_from_now_and_never_shortens(store: StateStore, frozen_clock: FrozenClock) -> None:
    """workflows W-5, W-44."""
    claim = store.workflows.claims.take(started(store).id, owner="a")
    updated_at = store.workflows.runs.get(claim.run_id).updated_at
    frozen_clock.advance(seconds=10)
    renewed = store.workflows.claims.heartbeat(claim)
    assert renewed.lease_expires_at == frozen_clock.now() + LEASE
    assert (renewed.epoch, renewed.taken_at, renewed.lease) == (claim.epoch, claim.taken_at, LEASE)
    shorter = claim.model_copy(update={"lease": timedelta(seconds=1)})
    frozen_clock.advance(seconds=-20)
    assert store.workflows.claims.heartbeat(shorter).lease_expires_at == renewed.lease_expires_at
    run = store.workflows.runs.get(claim.run_id)
    assert (run.heartbeat_at, run.updated_at) == (renewed.lease_expires_at - LEASE, updated_at)


def test_a_take_with_a_clock_behind_moves_no_stored_time_back(store: StateStore, frozen_clock: FrozenClock) -> None:
    """workflows W-5."""
    run = offered(store)
    first = store.workflows.claims.take(run.id, owner="a")
    store.workflows.approvals.pause(run.id, Gate("plan", "Go?", id="g-1"), claim=first)
    before = store.workflows.approvals.answer("g-1", "approved", by="ana").run
    frozen_clock.advance(seconds=-60)
    store.workflows.claims.take(run.id, owner="b")
    after = store.workflows.runs.get(run.id)
    assert (after.heartbeat_at, after.updated_at) == (before.heartbeat_at, before.updated_at)


def test_an_expired_lease_that_nobody_took_is_still_the_holders(store: StateStore, frozen_clock: FrozenClock) -> None:
    """workflows W-15, case 16."""
    claim = abandoned(store, frozen_clock)
    assert store.workflows.runs.append_phase(claim.run_id, PhaseEntry("x", True), claim=claim).phase_count == 1
    assert store.workflows.claims.heartbeat(claim).lease_expires_at == frozen_clock.now() + LEASE
    assert listed(store) == []


def test_a_heartbeat_says_that_a_cancel_was_asked_for(store: StateStore) -> None:
    """workflows W-28, W-44, case 37."""
    claim = store.workflows.claims.take(started(store).id, owner="a")
    assert not store.workflows.claims.heartbeat(claim).cancel_requested
    store.workflows.runs.request_cancel(claim.run_id, by="ana", reason="enough")
    assert store.workflows.claims.heartbeat(claim).cancel_requested
    [renewed] = store.workflows.claims.heartbeat_many([claim]).values()
    assert isinstance(renewed, Claim)
    assert renewed.cancel_requested


@pytest.mark.parametrize("ending", ["finish", "cancel", "pause"])
def test_a_run_that_was_ended_or_paused_is_nobodys(store: StateStore, ending: str) -> None:
    """workflows W-18, W-48: a late write says why."""
    claim = store.workflows.claims.take(started(store).id, owner="a")
    if ending == "finish":
        store.workflows.runs.finish(claim.run_id, "succeeded", claim=claim)
    elif ending == "cancel":
        store.workflows.runs.cancel(claim.run_id, by="ana", reason="enough")
    else:
        store.workflows.approvals.pause(claim.run_id, Gate("plan", "Go?"), claim=claim)
    status = store.workflows.runs.get(claim.run_id).status
    assert store.workflows.claims.find(claim.run_id) is None
    claims = store.workflows.claims
    for write in (claims.heartbeat, claims.release, claims.confirm, lambda held: claims.transfer(held, owner="b")):
        with pytest.raises(ClaimLost) as caught:
            write(claim)
        assert (caught.value.status, caught.value.held_by) == (status, None)
        assert (caught.value.presented, caught.value.current_epoch) == (claim.epoch, claim.epoch + 1)


def test_many_heartbeats_renew_each_its_own(store: StateStore, frozen_clock: FrozenClock) -> None:
    """workflows W-44."""
    claims = store.workflows.claims
    held = [claims.take(started(store).id, owner="a", lease=timedelta(seconds=5 + turn)) for turn in range(6)]
    stale = held[1]
    held[1] = claims.transfer(stale, owner="b")
    store.workflows.runs.finish(held[2].run_id, "failed", claim=held[2])
    gone = held[3].model_copy(update={"run_id": "gone"})
    frozen_clock.advance(seconds=3)
    told = claims.heartbeat_many([stale, *held, gone])
    assert list(told) == [*dict.fromkeys([held[1].run_id, *(claim.run_id for claim in held)]), "gone"]
    for turn in (0, 1, 3, 4, 5):
        renewed = told[held[turn].run_id]
        assert isinstance(renewed, Claim)
        assert renewed == held[turn].model_copy(update={"lease_expires_at": frozen_clock.now() + held[turn].lease})
    lost, missing = told[held[2].run_id], told["gone"]
    assert isinstance(lost, ClaimLost)
    assert isinstance(missing, ClaimLost)
    assert (lost.status, lost.presented, lost.held_by) == ("failed", held[2].epoch, None)
    assert missing.status == "missing"
    assert isinstance(claims.heartbeat_many([stale])[stale.run_id], ClaimLost)
    assert claims.heartbeat_many([]) == {}


def test_whoever_claims_a_run_that_is_not_there_is_told(store: StateStore) -> None:
    """workflows W-13."""
    claims = store.workflows.claims
    gone = claims.take(started(store).id, owner="a").model_copy(update={"run_id": "gone"})
    for write in (claims.heartbeat, claims.release, claims.confirm, lambda held: claims.transfer(held, owner="b")):
        with pytest.raises(NotFound):
            write(gone)
    assert claims.find("gone") is None


def test_a_holder_is_found_for_display(store: StateStore, frozen_clock: FrozenClock) -> None:
    """workflows 4.4."""
    run = started(store)
    assert store.workflows.claims.find(run.id) is None
    claim = store.workflows.claims.take(run.id, owner="worker-1")
    frozen_clock.advance(seconds=5)
    renewed = store.workflows.claims.heartbeat(claim)
    holder = store.workflows.claims.find(run.id)
    assert holder is not None
    assert (holder.owner, holder.epoch, holder.claimed_at) == ("worker-1", claim.epoch, claim.taken_at)
    assert (holder.heartbeat_at, holder.lease_expires_at) == (frozen_clock.now(), renewed.lease_expires_at)


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


def test_the_next_runs_are_those_silent_for_longest(store: StateStore, raw: Raw, frozen_clock: FrozenClock) -> None:
    """workflows W-43: of every kind, runs at their limit passed over; what it did is recorded."""
    due = sleeping(store, frozen_clock.now() + timedelta(seconds=60))
    frozen_clock.advance(seconds=1)
    lost = abandoned(store, frozen_clock)
    abandoned(store, frozen_clock, max_restarts=0)
    free = offered(store)
    frozen_clock.advance(seconds=60)
    oldest, *others = store.workflows.claims.take_next(owner="a", limit=1)
    assert (oldest.run_id, others) == (due.id, [])
    taken = store.workflows.claims.take_next(owner="a", limit=5)
    assert [(claim.run_id, claim.restart_count) for claim in taken] == [(lost.run_id, 1), (free.id, 0)]
    assert store.workflows.claims.take_next(owner="a") == ()
    assert raw.transitions(due.id)[-1] == ("paused", "running", "run.resumed.timer")
    assert raw.transitions(lost.run_id)[-1] == ("running", "running", "claim.taken_over")
    for claim in (oldest, *taken):
        assert store.workflows.claims.heartbeat(claim).owner == "a"
        raw.check_history(claim.run_id)


def test_nothing_of_a_transaction_that_raises_stays(store: StateStore, raw: Raw) -> None:
    """workflows W-19, case 55: the claim included."""
    ended: list[WorkflowRun] = []
    store.workflows.on_terminal(ended.append)
    run = started(store)
    with undone(store) as tx:
        claim = tx.workflows.claims.take(run.id, owner="a")
        tx.workflows.runs.append_phase(run.id, PhaseEntry("x", True), claim=claim)
        tx.workflows.runs.finish(run.id, "failed", claim=claim)
    assert store.workflows.runs.get(run.id) == run
    assert ended == []
    raw.check_history(run.id)


def test_words_of_claims_are_checked_before_any_statement(store: StateStore) -> None:
    """workflows W-2, section 5."""
    claims: Any = store.workflows.claims
    run = started(store)
    claim = claims.take(run.id, owner="é" * 128)
    refused: list[Any] = [
        lambda: claims.take(run.id, owner="é" * 129),
        lambda: claims.take(run.id, owner=" "),
        lambda: claims.take(run.id, owner="b", lease=timedelta(0)),
        lambda: claims.take(run.id, owner="b", lease=timedelta.max),
        lambda: claims.take(run.id, owner="b", lease=30),
        lambda: claims.take(run.id, owner="b", expected_epoch=-1),
        lambda: claims.take_next(owner="b", limit=0),
        lambda: claims.list_claimable(grace=timedelta(seconds=-1)),
        lambda: claims.list_claimable(page_token="damaged!"),
        lambda: claims.release(claim, retry_after=timedelta(seconds=-1)),
        lambda: claims.transfer(claim, owner=""),
        lambda: claims.heartbeat({"run_id": run.id}),
        lambda: claims.heartbeat_many(claim),
        lambda: claims.give_up(limit=501),
        lambda: claims.give_up(reason=1),
    ]
    before = store.workflows.runs.get(run.id)
    for call in refused:
        with pytest.raises(InvalidValue):
            call()
    assert store.workflows.runs.get(run.id) == before


def test_a_claimable_run_shows_what_a_supervisor_decides_by(store: StateStore, frozen_clock: FrozenClock) -> None:
    """workflows W-40."""
    claim = abandoned(store, frozen_clock, "worker-1")
    run = store.workflows.runs.get(claim.run_id)
    [found] = store.workflows.claims.list_claimable()
    assert isinstance(found, ClaimableRun)
    assert found.model_dump(exclude={"provenance"}) == {
        "run_id": run.id,
        "workflow_name": "deploy",
        "kind": "abandoned",
        "epoch": 1,
        "last_owner": "worker-1",
        "heartbeat_at": run.heartbeat_at,
        "seen_at": run.heartbeat_at,
        "restart_count": 0,
        "restarts_left": 3,
        "at_limit": False,
    }
    assert found.provenance.workflow_path is None
