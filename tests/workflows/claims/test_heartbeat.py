"""Claims renewed, ended, and shown."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from support.each import with_each
from support.workflows.claim_steps import LEASE, abandoned, listed, offered
from support.workflows.steps import started

from lastlight_state import StateStore
from lastlight_state.errors import ClaimLost, InvalidValue, NotFound
from lastlight_state.testing import FrozenClock
from lastlight_state.workflows import Claim, Gate, PhaseEntry


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
    """workflows W-15."""
    claim = abandoned(store, frozen_clock)
    assert store.workflows.runs.append_phase(claim.run_id, PhaseEntry("x", True), claim=claim).phase_count == 1
    assert store.workflows.claims.heartbeat(claim).lease_expires_at == frozen_clock.now() + LEASE
    assert listed(store) == []


def test_a_heartbeat_says_that_a_cancel_was_asked_for(store: StateStore) -> None:
    """workflows W-28, W-44."""
    claim = store.workflows.claims.take(started(store).id, owner="a")
    assert not store.workflows.claims.heartbeat(claim).cancel_requested
    store.workflows.runs.request_cancel(claim.run_id, by="ana", reason="enough")
    assert store.workflows.claims.heartbeat(claim).cancel_requested
    [renewed] = store.workflows.claims.heartbeat_many([claim]).values()
    assert isinstance(renewed, Claim)
    assert renewed.cancel_requested


@with_each("ending", ["finish", "cancel", "pause"])
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
    assert (missing.status, missing.current_epoch, missing.held_by) == ("missing", 0, None)
    assert isinstance(claims.heartbeat_many([stale])[stale.run_id], ClaimLost)
    assert claims.heartbeat_many([]) == {}


def test_a_run_that_nobody_holds_is_not_held_by_its_number(store: StateStore) -> None:
    """workflows W-44: a claim that was never made, with the number that a release left behind."""
    claims = store.workflows.claims
    claim = claims.take(started(store).id, owner="a")
    claims.release(claim)
    before = store.workflows.runs.get(claim.run_id)
    made_up = claim.model_copy(update={"epoch": before.claim_epoch})
    assert isinstance(claims.heartbeat_many([made_up])[claim.run_id], ClaimLost)
    for write in (claims.heartbeat, claims.release, lambda held: claims.transfer(held, owner="b")):
        with pytest.raises(ClaimLost):
            write(made_up)
    assert store.workflows.runs.get(claim.run_id) == before


def test_whoever_claims_a_run_that_is_not_there_is_told(store: StateStore) -> None:
    """workflows W-13."""
    claims = store.workflows.claims
    gone = claims.take(started(store).id, owner="a").model_copy(update={"run_id": "gone"})
    for write in (claims.heartbeat, claims.release, claims.confirm, lambda held: claims.transfer(held, owner="b")):
        with pytest.raises(NotFound):
            write(gone)
    assert claims.find("gone") is None


def test_a_holder_is_found_for_display(store: StateStore, frozen_clock: FrozenClock) -> None:
    """workflows W-111."""
    run, other = started(store), started(store)
    store.workflows.claims.take(other.id, owner="worker-2")
    assert store.workflows.claims.find(run.id) is None
    claim = store.workflows.claims.take(run.id, owner="worker-1")
    frozen_clock.advance(seconds=5)
    renewed = store.workflows.claims.heartbeat(claim)
    holder = store.workflows.claims.find(run.id)
    assert holder is not None
    assert (holder.owner, holder.epoch, holder.claimed_at) == ("worker-1", claim.epoch, claim.taken_at)
    assert (holder.heartbeat_at, holder.lease_expires_at) == (frozen_clock.now(), renewed.lease_expires_at)


@with_each("epoch", [2**63, 2**64, 2**70, -1, -(2**63) - 1, -(2**70)])
def test_a_claim_with_an_epoch_of_no_run_is_lost_alone(store: StateStore, epoch: int) -> None:
    """workflows W-44: claims beside it are renewed, also a claim on its own run."""
    claims = store.workflows.claims
    sound, other = (claims.take(started(store).id, owner="a") for _ in range(2))
    unsound = other.model_copy(update={"epoch": epoch})
    found = claims.heartbeat_many([unsound, sound])
    assert isinstance(found[sound.run_id], Claim)
    assert isinstance(found[other.run_id], ClaimLost)
    assert isinstance(claims.heartbeat_many([unsound, other])[other.run_id], Claim)


@with_each("epoch", [1.5, float("inf"), "1", None, True])
def test_a_claim_whose_epoch_is_no_number_is_refused_by_name(store: StateStore, epoch: Any) -> None:
    """workflows W-44: at once, and those beside it are not renewed."""
    claim = store.workflows.claims.take(started(store).id, owner="a")
    unsound = claim.model_copy(update={"epoch": epoch})
    with pytest.raises(InvalidValue, match=r"claim\.epoch: expected a whole number"):
        store.workflows.claims.heartbeat_many([claim, unsound])
