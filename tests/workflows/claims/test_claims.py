"""Claims: taking the right to drive a run."""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from support.workflows.claim_steps import LEASE, MILLI, abandoned, listed, offered, sleeping, stand
from support.workflows.steps import TRIGGER, Raw, paused, started, undone

from lastlight_state import StateStore
from lastlight_state.errors import ClaimLost, Conflict, InvalidValue, LostRace, NotFound
from lastlight_state.testing import Database, FrozenClock
from lastlight_state.workflows import Claim, ClaimableRun, PhaseEntry, RunOptions, WorkflowRun


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
    """workflows W-42."""
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


def test_a_run_that_was_never_claimed_is_offered_after_its_grace(
    store: StateStore, raw: Raw, frozen_clock: FrozenClock
) -> None:
    """workflows W-22, W-42: nobody held it, so nobody crashed."""
    run = started(store)
    frozen_clock.advance(LEASE)
    assert listed(store) == []
    frozen_clock.advance(MILLI)
    [found] = store.workflows.claims.list_claimable()
    assert (found.kind, found.last_owner, found.heartbeat_at, found.seen_at) == (
        "offered",
        None,
        None,
        run.started_at,
    )
    assert store.workflows.claims.take(run.id, owner="worker-1").restart_count == 0
    assert [reason for _, _, reason in raw.transitions(run.id)] == ["run.created"]


def test_a_run_that_was_created_for_a_worker_is_taken_at_once(store: StateStore, raw: Raw) -> None:
    """workflows W-22: everybody who looks for work sees it, and taking it costs no restart."""
    claims, queue = store.workflows.claims, store.workflows.queue
    run = started(store, offered=True)
    assert [(found.run_id, found.kind) for found in claims.list_claimable()] == [(run.id, "offered")]
    assert claims.wait(timeout=0)
    assert queue.wait(cap=1, timeout=0, claimable=True)
    [claim] = claims.take_next(owner="worker-1")
    assert (claim.run_id, claim.restart_count, claim.epoch) == (run.id, 0, 1)
    raw.check_history(run.id)


def test_a_run_is_offered_once_however_often_its_webhook_comes(store: StateStore) -> None:
    """workflows W-22, W-23: the key finds the first run, which a worker may hold by then."""
    ensure = partial(store.workflows.runs.ensure, "delivery-1", "deploy", trigger=TRIGGER, phase="plan")
    run = ensure(options=RunOptions(offered=True)).run
    [claim] = store.workflows.claims.take_next(owner="worker-1")
    again = ensure(options=RunOptions(offered=True))
    assert (again.created, again.run.id, claim.run_id) == (False, run.id, run.id)
    assert store.workflows.claims.take_next(owner="worker-2") == ()


def test_an_offered_run_waits_for_the_time_it_is_not_to_start_before(
    store: StateStore, frozen_clock: FrozenClock
) -> None:
    """workflows W-22."""
    run = started(store, offered=True, not_before=frozen_clock.now() + LEASE)
    assert listed(store) == []
    frozen_clock.advance(LEASE)
    assert listed(store) == [run.id]


def test_a_queued_run_is_not_created_as_offered(store: StateStore) -> None:
    """workflows W-22: the queue offers it."""
    with pytest.raises(InvalidValue, match="offered"):
        started(store, status="queued", offered=True)


def test_who_drives_the_run_it_creates_claims_it_in_the_same_transaction(store: StateStore) -> None:
    """workflows W-22, case 55: no worker comes in between, however eager."""
    with store.transaction() as tx:
        run = started(tx, offered=True)
        claim = tx.workflows.claims.take(run.id, owner="creator")
    assert store.workflows.claims.take_next(owner="worker-1") == ()
    assert store.workflows.claims.heartbeat(claim).owner == "creator"


def test_a_due_run_runs_on_when_it_is_taken(store: StateStore, raw: Raw, frozen_clock: FrozenClock) -> None:
    """workflows W-41, W-42: free, and recorded."""
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
    """workflows W-110."""
    approval = paused(store)
    run_id = approval.run_id
    raw("UPDATE workflow_runs SET wake_at = ? WHERE id = ?", frozen_clock.now(), run_id)
    assert listed(store) == []
    assert store.workflows.claims.take_next(owner="worker-1") == ()
    with pytest.raises(Conflict, match="paused"):
        store.workflows.claims.take(run_id, owner="worker-1")
    raw("UPDATE workflow_approvals SET blocks_run = ?", False)
    assert store.workflows.claims.take_next(owner="worker-1")[0].run_id == run_id


def test_a_due_run_waits_for_no_closed_question_and_for_none_of_another_run(
    store: StateStore, frozen_clock: FrozenClock
) -> None:
    """workflows W-110."""
    run, other = offered(store), paused(store)
    store.workflows.waits.pause(run.id, until=frozen_clock.now() + timedelta(seconds=60))
    frozen_clock.advance(seconds=60)
    assert listed(store) == [run.id]
    assert store.workflows.claims.take(run.id, owner="worker-1").run_id == run.id
    assert store.workflows.runs.get(other.run_id).status == "paused"


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
    for run in (ended, started(store, status="queued"), store.workflows.runs.get(paused(store).run_id)):
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


def test_an_expected_epoch_binds_a_take_of_a_run_that_nobody_holds(store: StateStore) -> None:
    """workflows W-41."""
    run = started(store)
    given_back = store.workflows.claims.take(run.id, owner="a")
    store.workflows.claims.release(given_back)
    with pytest.raises(LostRace):
        store.workflows.claims.take(run.id, owner="b", expected_epoch=given_back.epoch - 1)
    assert store.workflows.claims.take(run.id, owner="b").owner == "b"


def test_a_run_given_back_to_a_holder_that_lives_again_is_never_left_to_nobody(
    store: StateStore, frozen_clock: FrozenClock
) -> None:
    """workflows W-5, W-46: the clock was set back past the end of the lease that a release restored."""
    claims = store.workflows.claims
    lost = abandoned(store, frozen_clock, owner="a")
    claims.release(claims.take(lost.run_id, owner="b"))
    given_back = stand(store, lost.run_id)
    frozen_clock.advance(seconds=-5)
    claims.release(claims.take(lost.run_id, owner="a"))
    assert stand(store, lost.run_id) == given_back
    frozen_clock.advance(seconds=10)
    assert claims.take(lost.run_id, owner="c").restart_count == 1


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


def test_a_run_that_another_program_ended_is_not_taken_again_by_its_holder(store: StateStore, raw: Raw) -> None:
    """workflows W-41: one that leaves the claim in the row."""
    claim = store.workflows.claims.take(started(store).id, owner="b")
    raw("UPDATE workflow_runs SET status = 'succeeded' WHERE id = ?", claim.run_id)
    with pytest.raises(Conflict) as refused:
        store.workflows.claims.take(claim.run_id, owner="b")
    assert refused.value.code == "run_status"


def test_a_holder_that_was_silent_too_long_counts_as_any_other(store: StateStore, frozen_clock: FrozenClock) -> None:
    """workflows W-42: an owner that crashes and comes back under its name cannot pass the breaker."""
    old = abandoned(store, frozen_clock, "a")
    assert store.workflows.claims.take(old.run_id, owner="a").restart_count == 1


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
    """workflows W-2, W-119."""
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
        "cancel_requested": False,
    }
    assert found.provenance.workflow_path is None


@pytest.mark.parametrize("limit", [1, 5])
def test_taking_the_next_runs_takes_none_that_it_does_not_return(sqlite_database: Database, limit: int) -> None:
    """workflows W-21, W-43: beside a row that cannot be read, which only SQLite can store, and behind it."""
    store, raw = sqlite_database.open(), Raw(sqlite_database)
    damaged, sound = offered(store).id, offered(store).id
    with raw.without_guard("workflow_runs_times_set"):
        raw("UPDATE workflow_runs SET cancel_requested_at = 'soon' WHERE id = ?", damaged)
    assert [claim.run_id for claim in store.workflows.claims.take_next(owner="a", limit=limit)] == [sound]
    assert raw("SELECT claim_owner FROM workflow_runs WHERE id = ?", damaged) == [(None,)]
