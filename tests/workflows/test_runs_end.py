"""Runs end, are cancelled, and begin again."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from workflows.steps import PLAN, TRIGGER, Raw, paused, started, together, undone

from lastlight_state import StateStore
from lastlight_state.errors import ClaimLost, Conflict, InvalidValue, PayloadTooLarge
from lastlight_state.testing import FrozenClock
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
    assert (ended.status, ended.phase_history[0]["success"], ended.error) == ("succeeded", False, None)


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


def test_an_end_that_may_not_be_stored_is_refused(store: StateStore) -> None:
    """workflows W-1 to W-3."""
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


def test_the_same_finish_again_returns_the_stored_run(store: StateStore, raw: Raw, frozen_clock: FrozenClock) -> None:
    """workflows W-27, case 25: by the same claim, once told."""
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
    """workflows W-19, case 24."""
    run = started(store)
    claim = raw.hold(run.id)
    cancelled = store.workflows.runs.cancel(run.id, by="ana", reason="stop")
    for presented in (claim, None):
        with pytest.raises((ClaimLost, Conflict)):
            store.workflows.runs.finish(run.id, "failed", failure=Failure("boom"), claim=presented)
    assert store.workflows.runs.get(run.id) == cancelled
    assert cancelled.error is None


def test_asking_a_running_run_to_stop_changes_no_status(store: StateStore, raw: Raw, frozen_clock: FrozenClock) -> None:
    """workflows W-28, case 37: the first request stays, its holder too."""
    run = started(store)
    claim = raw.hold(run.id)
    at = frozen_clock.advance(seconds=1)
    asked = store.workflows.runs.request_cancel(run.id, by="ana", reason="too slow")
    assert (asked.status, asked.cancel_requested_at, asked.cancel_requested_by) == ("running", at, "ana")
    assert (asked.cancel_reason, asked.claim_owner, asked.claim_epoch) == ("too slow", claim.owner, claim.epoch)
    frozen_clock.advance(seconds=1)
    assert store.workflows.runs.request_cancel(run.id, by="bo", reason="also") == asked
    assert raw.transitions(run.id)[1:] == [("running", "running", "cancel.requested")]
    ended = store.workflows.runs.finish(run.id, "cancelled", claim=claim)
    assert (ended.status, ended.cancel_requested_by) == ("cancelled", "ana")
    raw.check_history(run.id)


def test_asking_where_nobody_is_there_cancels_at_once(store: StateStore, raw: Raw) -> None:
    """workflows W-28, case 37."""
    cases: list[str] = ["queued", "paused"]
    for status in cases:
        run_id = paused(store).workflow_run_id if status == "paused" else started(store, status="queued").id
        cancelled = store.workflows.runs.request_cancel(run_id, by="ana", reason="stop")
        assert (cancelled.status, cancelled.status_reason) == ("cancelled", "run.cancelled")
        assert raw(
            "SELECT actor, source, detail FROM run_transitions WHERE run_id = ? AND to_status = 'cancelled'", run_id
        ) == [("ana", "operator", "stop")]


def test_an_ended_run_is_not_asked(store: StateStore) -> None:
    """workflows W-28."""
    cases: list[Any] = ENDED
    for status in cases:
        run = started(store)
        store.workflows.runs.finish(run.id, status)
        with pytest.raises(Conflict) as refused:
            store.workflows.runs.request_cancel(run.id, by="ana", reason="stop")
        assert (refused.value.code, refused.value.details["found"]) == ("run_status", status)


def test_a_cancel_ends_any_live_run_and_fences_its_holder(store: StateStore, raw: Raw) -> None:
    """workflows W-29."""
    cases: list[str] = ["queued", "running", "paused"]
    for status in cases:
        run = started(store, status="queued" if status == "queued" else "running")
        claim = raw.hold(run.id)
        if status == "paused":
            store.workflows.approvals.pause(run.id, PLAN, claim=claim)
        cancelled = store.workflows.runs.cancel(run.id, by="ana", reason="stop")
        assert (cancelled.status, cancelled.claim_owner, cancelled.pause_reason) == ("cancelled", None, None)
        with pytest.raises(ClaimLost) as lost:
            store.workflows.runs.merge_scratch(run.id, {"late": 1}, claim=claim)
        assert lost.value.status == "cancelled"


def test_cancelling_again_changes_nothing(store: StateStore, raw: Raw, frozen_clock: FrozenClock) -> None:
    """workflows W-29."""
    run = started(store)
    first = store.workflows.runs.cancel(run.id, by="ana", reason="stop")
    frozen_clock.advance(seconds=1)
    assert store.workflows.runs.cancel(run.id, by="bo", reason="stop it") == first
    assert len(raw.transitions(run.id)) == 2


def test_what_has_succeeded_or_failed_is_not_cancelled(store: StateStore) -> None:
    """workflows W-29."""
    cases: list[Any] = ["succeeded", "failed"]
    for status in cases:
        run = started(store)
        ended = store.workflows.runs.finish(run.id, status)
        with pytest.raises(Conflict) as refused:
            store.workflows.runs.cancel(run.id, by="ana", reason="stop")
        assert refused.value.details["found"] == status
        assert store.workflows.runs.get(run.id) == ended


def tree(store: StateStore) -> dict[str, WorkflowRun]:
    """A root with two children, one of which has children of its own in every status."""
    runs = {"root": started(store, id="root")}
    for name, parent in (("left", "root"), ("right", "root"), ("a-queued", "left"), ("z-done", "left"), ("b", "left")):
        status = "queued" if name == "a-queued" else "running"
        runs[name] = started(store, id=name, parent_run_id=parent, status=status)
    store.workflows.runs.finish("z-done", "succeeded")
    store.workflows.approvals.pause("b", PLAN)
    started(store, id="stranger")
    return runs


def statuses(store: StateStore) -> dict[str, str]:
    return {run.id: run.status for run in store.workflows.runs.list()}


def test_a_tree_is_cancelled_with_its_live_descendants(store: StateStore, raw: Raw) -> None:
    """workflows W-29, case 62."""
    tree(store)
    assert store.workflows.runs.cancel("root", by="ana", reason="stop", scope="tree").id == "root"
    live = dict.fromkeys(("root", "left", "right", "a-queued", "b"), "cancelled")
    assert statuses(store) == {**live, "z-done": "succeeded", "stranger": "running"}
    for run_id in live:
        raw.check_history(run_id)


def test_a_tree_is_asked_where_somebody_is_there(store: StateStore) -> None:
    """workflows W-28."""
    tree(store)
    store.workflows.runs.request_cancel("root", by="ana", reason="stop", scope="tree")
    asked = dict.fromkeys(("root", "left", "right"), "running")
    assert statuses(store) == {
        **asked,
        "a-queued": "cancelled",
        "b": "cancelled",
        "z-done": "succeeded",
        "stranger": "running",
    }
    assert all(store.workflows.runs.get(run_id).cancel_requested_by == "ana" for run_id in asked)


def test_a_cancel_of_one_run_leaves_its_children(store: StateStore) -> None:
    """workflows W-29."""
    tree(store)
    store.workflows.runs.cancel("left", by="ana", reason="stop")
    assert (statuses(store)["left"], statuses(store)["a-queued"]) == ("cancelled", "queued")


def test_a_tree_whose_root_has_succeeded_stays_as_it_is(store: StateStore) -> None:
    """workflows W-29: all or nothing."""
    tree(store)
    store.workflows.runs.finish("root", "succeeded")
    before = statuses(store)
    with pytest.raises(Conflict):
        store.workflows.runs.cancel("root", by="ana", reason="stop", scope="tree")
    assert statuses(store) == before


def test_a_tree_cancelled_before_loses_what_was_begun_since(store: StateStore) -> None:
    """workflows W-29: repeat-safe on the root, thorough below it."""
    tree(store)
    first = store.workflows.runs.cancel("root", by="ana", reason="stop")
    assert store.workflows.runs.cancel("root", by="ana", reason="stop", scope="tree") == first
    assert statuses(store)["b"] == "cancelled"


def test_a_planted_cycle_of_parents_ends(store: StateStore, raw: Raw) -> None:
    """workflows W-29: another program may have left one."""
    at = started(store, id="stranger").started_at
    for run_id, parent in (("one", "two"), ("two", "one")):
        raw(
            "INSERT INTO workflow_runs (id, workflow_name, trigger_id, current_phase, started_at, updated_at, "
            "parent_run_id) VALUES (?, 'deploy', 't', 'plan', ?, ?, ?)",
            run_id,
            at,
            at,
            parent,
        )
    store.workflows.runs.cancel("one", by="ana", reason="stop", scope="tree")
    assert statuses(store) == {"one": "cancelled", "two": "cancelled", "stranger": "running"}


def test_trees_cancelled_at_once_do_not_deadlock(every_backend: StateStore, raw: Raw) -> None:
    """workflows W-10, case 62."""
    tree(every_backend)
    roots = ("root", "left", "right", "b") * 3
    cancel = every_backend.workflows.runs.cancel
    outcomes = together([partial(cancel, root, by="ana", reason="stop", scope="tree") for root in roots])
    assert not [outcome for outcome in outcomes if isinstance(outcome, BaseException)]
    assert every_backend.metrics.retries == 0
    assert sorted(set(statuses(every_backend).values())) == ["cancelled", "running", "succeeded"]
    for run_id in ("root", "left", "right", "a-queued", "b"):
        assert len(raw("SELECT 1 FROM run_transitions WHERE run_id = ? AND to_status = 'cancelled'", run_id)) == 1


@pytest.mark.parametrize("status", ["failed", "cancelled"])
def test_a_restart_keeps_what_resumes_and_clears_what_ended(
    store: StateStore, raw: Raw, frozen_clock: FrozenClock, status: Any
) -> None:
    """workflows W-30, case 61."""
    run = started(store, context={"a": 1}, scratch={"n": 1})
    store.workflows.runs.append_phase(run.id, PhaseEntry("build", True))
    store.workflows.runs.request_cancel(run.id, by="ana", reason="slow")
    store.workflows.runs.finish(run.id, status, failure=Failure("boom", {"line": 7}))
    frozen_clock.advance(seconds=5)
    again = store.workflows.runs.restart(run.id, by="bo", reason="fixed it")
    assert store.workflows.runs.get(run.id) == again
    assert (again.status, again.status_reason, again.restart_count) == ("running", "run.restarted", 1)
    assert (again.context, again.scratch, again.phase_count, again.current_phase) == ({"a": 1}, {"n": 1}, 1, "build")
    assert (again.started_at, again.finished_at, again.error, again.error_detail) == (run.started_at, None, None, None)
    assert (again.cancel_requested_at, again.cancel_requested_by, again.cancel_reason) == (None, None, None)
    assert (again.claim_owner, again.lease_expires_at) == (None, None)
    [(detail, actor)] = raw("SELECT detail, actor FROM run_transitions WHERE reason = 'run.restarted'")
    assert (detail, actor) == ("fixed it; ended with: boom", "bo")
    with pytest.raises(Conflict) as refused:
        store.workflows.runs.restart(run.id, by="bo", reason="again")
    assert (refused.value.code, refused.value.details["found"]) == ("run_status", "running")


def test_a_restart_may_join_the_end_of_the_queue(store: StateStore, frozen_clock: FrozenClock) -> None:
    """workflows W-30."""
    run = started(store)
    store.workflows.runs.finish(run.id, "failed")
    at = frozen_clock.advance(seconds=5)
    queued = store.workflows.runs.restart(run.id, by="bo", reason="again", into="queued")
    assert (queued.status, queued.queued_at, queued.admitted_at, queued.started_at) == (
        "queued",
        at,
        None,
        run.started_at,
    )
    with pytest.raises(InvalidValue):
        store.workflows.runs.restart(run.id, by="bo", reason="again", into="paused")  # type: ignore[arg-type]


def test_only_what_failed_or_was_cancelled_restarts(store: StateStore) -> None:
    """workflows W-12, W-30."""
    cases: list[str] = ["queued", "running", "paused", "succeeded"]
    for status in cases:
        run = started(store, status="queued" if status == "queued" else "running")
        if status == "paused":
            store.workflows.approvals.pause(run.id, PLAN)
        elif status == "succeeded":
            store.workflows.runs.finish(run.id, "succeeded")
        before = store.workflows.runs.get(run.id)
        with pytest.raises(Conflict) as refused:
            store.workflows.runs.restart(run.id, by="ana", reason="again")
        assert refused.value.details["allowed"] == ("failed", "cancelled")
        assert store.workflows.runs.get(run.id) == before


def test_restarts_end_at_their_limit(store: StateStore, raw: Raw) -> None:
    """workflows W-30, case 5."""
    run = started(store, max_restarts=2)
    for _ in range(2):
        store.workflows.runs.finish(run.id, "failed")
        store.workflows.runs.restart(run.id, by="ana", reason="again")
    ended = store.workflows.runs.finish(run.id, "failed", failure=Failure("boom"))
    with pytest.raises(Conflict) as refused:
        store.workflows.runs.restart(run.id, by="ana", reason="again")
    assert refused.value.code == "restart_limit"
    assert (refused.value.details["restart_count"], refused.value.details["max_restarts"]) == (2, 2)
    assert store.workflows.runs.get(run.id) == ended
    raw.check_history(run.id)


def test_a_disabled_workflow_restarts_nothing(store: StateStore, raw: Raw, frozen_clock: FrozenClock) -> None:
    """workflows W-30, W-95."""
    run = started(store)
    ended = store.workflows.runs.finish(run.id, "failed")
    raw("INSERT INTO workflow_overrides (name, enabled, updated_at) VALUES ('deploy', ?, ?)", False, frozen_clock.now())
    with pytest.raises(Conflict) as refused:
        store.workflows.runs.restart(run.id, by="ana", reason="again")
    assert refused.value.code == "workflow_disabled"
    assert store.workflows.runs.get(run.id) == ended


def test_of_many_restarts_at_once_one_counts(every_backend: StateStore, raw: Raw) -> None:
    """workflows W-30."""
    run = started(every_backend)
    every_backend.workflows.runs.finish(run.id, "failed")
    outcomes = together([partial(every_backend.workflows.runs.restart, run.id, by="ana", reason="again")] * 8)
    assert sum(isinstance(outcome, WorkflowRun) for outcome in outcomes) == 1
    assert every_backend.workflows.runs.get(run.id).restart_count == 1
    raw.check_history(run.id)


def test_restarts_are_allowed_on_the_record(store: StateStore, raw: Raw) -> None:
    """workflows W-31: a note with the old and the new number, in any status."""
    cases: list[int] = [0, 100]
    for most in cases:
        run = started(store)
        allowed = store.workflows.runs.allow_restarts(run.id, most, by="ana", reason="flaky network")
        assert (allowed.max_restarts, allowed.status, allowed.status_reason) == (most, "running", "run.created")
        [*_, (to_status, reason, detail, actor)] = raw(
            "SELECT to_status, reason, detail, actor FROM run_transitions WHERE run_id = ? ORDER BY seq", run.id
        )
        assert (to_status, reason, detail) == ("running", "restarts.allowed", f"3 to {most}: flaky network")
        assert actor == "ana"
        ended = store.workflows.runs.finish(run.id, "failed")
        assert store.workflows.runs.allow_restarts(run.id, 4, by="ana", reason="more").finished_at == ended.finished_at
        raw.check_history(run.id)


def test_a_limit_below_the_count_means_no_more(store: StateStore) -> None:
    """workflows W-31."""
    run = started(store)
    store.workflows.runs.finish(run.id, "failed")
    store.workflows.runs.restart(run.id, by="ana", reason="again")
    assert store.workflows.runs.allow_restarts(run.id, 0, by="ana", reason="enough").restart_count == 1
    store.workflows.runs.finish(run.id, "failed")
    with pytest.raises(Conflict) as refused:
        store.workflows.runs.restart(run.id, by="ana", reason="again")
    assert refused.value.code == "restart_limit"


def test_operators_say_who_and_why(store: StateStore) -> None:
    """workflows W-2."""
    cases: list[dict[str, str]] = [{"by": ""}, {"by": "a" * 129}, {"reason": "x" * 2_049}]
    for given in cases:
        run = started(store)
        said = {"by": "ana", "reason": "because", **given}
        calls: tuple[Callable[..., object], ...] = (
            store.workflows.runs.cancel,
            store.workflows.runs.request_cancel,
            store.workflows.runs.restart,
            partial(store.workflows.runs.allow_restarts, max_restarts=5),
        )
        for call in calls:
            with pytest.raises(InvalidValue):
                call(run.id, **said)
        assert store.workflows.runs.get(run.id) == run


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
