"""Runs end."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from support.sent import recorded
from support.workflows.steps import PLAN, TRIGGER, Raw, started, undone

from lastlight_state import StateStore
from lastlight_state.errors import ClaimLost, Conflict, InvalidValue, PayloadTooLarge
from lastlight_state.testing import Database, FrozenClock
from lastlight_state.workflows import Failure, Gate, PhaseEntry, WorkflowRun

ENDED = ["succeeded", "failed", "cancelled"]


def test_a_finish_writes_everything_at_once(store: StateStore, raw: Raw, frozen_clock: FrozenClock) -> None:
    """workflows W-27."""
    run = started(store, context={"a": 1}, scratch={"a": 1})
    at = frozen_clock.advance(seconds=30)
    failure = Failure("boom", {"line": 7}, "tests_red")
    ended = store.workflows.runs.finish(
        run.id, "failed", failure=failure, marker=PhaseEntry("test", False, "red"), scratch={"b": 2}
    )
    assert store.workflows.runs.get(run.id) == ended
    assert (ended.status, ended.status_reason, ended.error, ended.error_detail) == (
        "failed",
        "tests_red",
        "boom",
        {"line": 7},
    )
    assert (ended.finished_at, ended.updated_at, ended.lease_expires_at) == (at, at, None)
    assert (ended.current_phase, ended.phase_count, ended.scratch, ended.context) == (
        "test",
        1,
        {"a": 1, "b": 2},
        {"a": 1},
    )
    assert raw.transitions(run.id)[1:] == [("running", "failed", "tests_red")]


def test_a_marker_has_its_own_success(store: StateStore) -> None:
    """workflows W-27."""
    ended = store.workflows.runs.finish(started(store).id, "succeeded", marker=PhaseEntry("lint", False))
    assert (ended.status, ended.phase_history[0].success, ended.error) == ("succeeded", False, None)


def test_the_reason_is_the_one_given_or_that_of_the_failure(store: StateStore) -> None:
    """workflows W-11, W-27."""
    cases: list[tuple[dict[str, Any], str]] = [
        ({}, "run.finished"),
        ({"reason": "done"}, "done"),
        ({"failure": Failure("boom", stop_reason="timeout")}, "timeout"),
        ({"failure": Failure("boom", stop_reason="timeout"), "reason": "late"}, "late"),
    ]
    for given, reason in cases:
        assert store.workflows.runs.finish(started(store).id, "failed", **given).status_reason == reason


def test_a_success_has_no_failure_and_may_have_a_reason(store: StateStore) -> None:
    """workflows W-27: nothing is stored."""
    runs, run = store.workflows.runs, started(store)
    with pytest.raises(InvalidValue, match=r"failure: must be None for a success; reason says why it stopped"):
        runs.finish(run.id, "succeeded", failure=Failure("text"))
    assert runs.get(run.id) == run
    ended = runs.finish(run.id, "succeeded", reason="nothing_to_do")
    assert (ended.status, ended.status_reason, ended.error) == ("succeeded", "nothing_to_do", None)


def test_an_end_that_may_not_be_stored_is_refused(store: StateStore) -> None:
    """workflows W-1, W-2, W-3."""
    cases: list[tuple[dict[str, Any], str]] = [
        ({"status": "paused"}, "status"),
        ({"reason": "r" * 65}, "reason"),
        ({"failure": Failure("x" * 16_385)}, "failure.error"),
        ({"failure": Failure("boom", "x" * 65_536)}, "failure.detail"),
        ({"failure": Failure("boom", stop_reason=" ")}, "reason"),
    ]
    for given, where in cases:
        run = started(store)
        with pytest.raises(InvalidValue) as refused:
            store.workflows.runs.finish(run.id, **{"status": "failed", **given})
        assert refused.value.where == where
        assert store.workflows.runs.get(run.id) == run


def test_a_finish_that_fails_leaves_the_run_as_it_was(store: StateStore, raw: Raw) -> None:
    """workflows W-27."""
    run = started(store)
    with pytest.raises(PayloadTooLarge):
        store.workflows.runs.finish(run.id, "succeeded", marker=PhaseEntry("test", True), scratch={"a": "x" * 65_536})
    assert store.workflows.runs.get(run.id) == run
    raw.check_history(run.id)


def test_an_end_repeated_after_restarts_were_allowed_is_still_its_holders(store: StateStore) -> None:
    """workflows W-27: the record about the limit is no end."""
    claim = store.workflows.claims.take(started(store).id, owner="a")
    failed = partial(store.workflows.runs.finish, claim.run_id, "failed", failure=Failure("broke"), claim=claim)
    failed()
    allowed = store.workflows.runs.allow_restarts(claim.run_id, 5, by="ana", reason="more")
    assert failed() == allowed


def test_ending_a_run_closes_all_that_hangs_on_it(store: StateStore, raw: Raw, frozen_clock: FrozenClock) -> None:
    """workflows W-18: nobody else's executions and gates."""
    run, sibling = started(store), started(store)
    for one in (run, sibling):
        raw.execution(one.id, f"e-{one.id}")
        store.workflows.approvals.create(one.id, PLAN)
    raw.execution(run.id, "e-done")
    raw("UPDATE executions SET success = ?, outcome = 'succeeded', finished_at = started_at WHERE id = 'e-done'", True)
    claim = raw.hold(run.id)
    frozen_clock.advance(seconds=1)
    ended = store.workflows.runs.finish(run.id, "succeeded", claim=claim)
    assert (ended.claim_owner, ended.claimed_at, ended.claim_epoch) == (None, None, claim.epoch + 1)
    outcomes = dict(raw("SELECT id, outcome FROM executions"))
    assert outcomes == {f"e-{run.id}": "interrupted", f"e-{sibling.id}": None, "e-done": "succeeded"}
    [gate] = store.workflows.approvals.list_for_run(run.id)
    assert (gate.status, gate.closed_reason) == ("cancelled", "run.finished")
    assert store.workflows.approvals.count_pending() == 1


def test_what_the_end_of_a_run_closes_says_how_long_it_took(store: StateStore, frozen_clock: FrozenClock) -> None:
    """workflows W-18: as an interruption does."""
    executions, runs = store.workflows.executions, store.workflows.runs
    run, stopped = started(store), started(store)
    one, other = (executions.start("deploy:plan", run_id=each.id).id for each in (run, stopped))
    at = frozen_clock.advance(seconds=2)
    runs.finish(run.id, "failed")
    runs.cancel(stopped.id, by="ana", reason="stop")
    for execution_id, outcome in ((one, "interrupted"), (other, "cancelled")):
        closed = executions.get(execution_id)
        assert (closed.outcome, closed.stop_reason, closed.success) == (outcome, outcome, False)
        assert (closed.finished_at, closed.duration_ms, closed.error) == (at, 2000, None)


def test_what_a_pause_and_an_end_add_to_a_run_is_read_with_its_lock(database: Database) -> None:
    """workflows W-10, W-27, W-81: the run's row is locked and read once."""
    added: dict[str, Any] = {"marker": PhaseEntry("plan", True), "scratch": {"a": 1}}
    with recorded(database) as (store, sent):
        one, other = started(store).id, started(store).id
        calls: list[Callable[[], object]] = [
            partial(store.workflows.approvals.pause, one, PLAN, **added),
            partial(store.workflows.runs.finish, other, "failed", **added),
        ]
        for call in calls:
            sent.clear()
            call()
            looks = [text for text in sent if text.startswith("SELECT") and "\nFROM workflow_runs" in text]
            assert len(looks) == 1, looks


def test_the_same_finish_again_returns_the_stored_run(store: StateStore, raw: Raw, frozen_clock: FrozenClock) -> None:
    """workflows W-27: by the same claim, once told."""
    cases: list[Any] = ENDED
    for status in cases:
        told: list[WorkflowRun] = []
        store.workflows.on_terminal(told.append)
        run = started(store)
        claim = raw.hold(run.id)
        ended = store.workflows.runs.finish(run.id, status, claim=claim)
        frozen_clock.advance(seconds=1)
        again = store.workflows.runs.finish(run.id, status, marker=PhaseEntry("late", True), claim=claim)
        assert again == ended
        assert told == [ended]
        assert len(raw.transitions(run.id)) == 2
        for other in {"succeeded", "failed", "cancelled"} - {status}:
            with pytest.raises((Conflict, ClaimLost)):
                store.workflows.runs.finish(run.id, other, claim=claim)  # type: ignore[arg-type]
        assert store.workflows.runs.get(run.id) == ended


def test_a_finish_is_repeated_after_its_restarts_were_allowed(store: StateStore, raw: Raw) -> None:
    """workflows W-27, W-31: a note is no end, and says nothing of who ended the run."""
    run = started(store)
    claim = raw.hold(run.id)
    store.workflows.runs.finish(run.id, "failed", claim=claim)
    allowed = store.workflows.runs.allow_restarts(run.id, 9, by="ana", reason="flaky")
    assert store.workflows.runs.finish(run.id, "failed", claim=claim) == allowed


def test_a_finish_is_repeated_whoever_ended_other_runs(store: StateStore, raw: Raw) -> None:
    """workflows W-27."""
    one, other = started(store), started(store)
    claims = [raw.hold(one.id), *(raw.hold(other.id) for _ in range(2))]
    ended = [store.workflows.runs.finish(claim.run_id, "failed", claim=claim) for claim in (claims[0], claims[-1])]
    for run, claim in zip(ended, (claims[0], claims[-1]), strict=True):
        assert store.workflows.runs.finish(run.id, "failed", claim=claim) == run


def test_a_finish_is_repeated_after_an_end_that_another_program_wrote(store: StateStore, raw: Raw) -> None:
    """workflows W-27: it wrote no transition, and those of holders before it do not count."""
    run = started(store)
    store.workflows.waits.pause(run.id, claim=store.workflows.claims.take(run.id, owner="a"))
    raw("UPDATE workflow_runs SET status = 'succeeded' WHERE id = ?", run.id)
    assert store.workflows.runs.finish(run.id, "succeeded") == store.workflows.runs.get(run.id)


def test_a_finish_by_another_claim_is_not_the_same(store: StateStore, raw: Raw) -> None:
    """workflows W-14, W-27."""
    run = started(store)
    stale, claim = raw.hold(run.id), raw.hold(run.id, "worker-2")
    ended = store.workflows.runs.finish(run.id, "succeeded", claim=claim)
    foreign = claim.model_copy(update={"run_id": "other"})
    for presented in (stale, foreign):
        with pytest.raises(ClaimLost) as lost:
            store.workflows.runs.finish(run.id, "succeeded", claim=presented)
        assert lost.value.status == "succeeded"
    with pytest.raises(Conflict) as refused:
        store.workflows.runs.finish(run.id, "succeeded")
    assert refused.value.code == "run_status"
    assert store.workflows.runs.get(run.id) == ended


def test_a_run_that_does_not_run_can_only_fail(store: StateStore) -> None:
    """workflows W-12, W-27."""
    cases: list[str] = ["queued", "paused"]
    for status in cases:
        run = started(store, status="queued" if status == "queued" else "running")
        if status == "paused":
            store.workflows.approvals.pause(run.id, PLAN)
        for refused in ("succeeded", "cancelled"):
            with pytest.raises(Conflict) as conflict:
                store.workflows.runs.finish(run.id, refused)
            assert (conflict.value.details["found"], conflict.value.details["allowed"]) == (status, ("running",))
        assert store.workflows.runs.finish(run.id, "failed").status == "failed"
        assert not store.workflows.approvals.list_pending().items


def test_a_cancel_request_does_not_spoil_a_success(store: StateStore) -> None:
    """workflows W-27."""
    run = started(store)
    store.workflows.runs.request_cancel(run.id, by="ana", reason="stop")
    ended = store.workflows.runs.finish(run.id, "succeeded")
    assert (ended.status, ended.cancel_requested_by) == ("succeeded", "ana")


def test_a_cancelled_run_is_never_failed_by_a_late_finish(store: StateStore, raw: Raw) -> None:
    """workflows W-19."""
    run = started(store)
    claim = raw.hold(run.id)
    cancelled = store.workflows.runs.cancel(run.id, by="ana", reason="stop")
    for presented in (claim, None):
        with pytest.raises((ClaimLost, Conflict)):
            store.workflows.runs.finish(run.id, "failed", failure=Failure("boom"), claim=presented)
    assert store.workflows.runs.get(run.id) == cancelled
    assert cancelled.error is None


def test_an_end_in_a_transaction_that_raises_is_none(store: StateStore, frozen_clock: FrozenClock) -> None:
    """workflows W-19, case 55."""
    told: list[WorkflowRun] = []
    store.workflows.on_terminal(told.append)
    run = started(store, trigger=TRIGGER, deadline_at=frozen_clock.now() + timedelta(hours=1))
    with undone(store) as tx:
        tx.workflows.approvals.create(run.id, Gate("plan", "Go?"))
        assert tx.workflows.runs.cancel(run.id, by="ana", reason="stop").status == "cancelled"
    assert store.workflows.runs.get(run.id) == run
    assert not told
