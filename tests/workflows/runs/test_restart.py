"""Ended runs begin again, up to their limit."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from support.workflows.steps import PLAN, Raw, started, together

from lastlight_state import StateStore
from lastlight_state.errors import Conflict, InvalidValue
from lastlight_state.testing import FrozenClock
from lastlight_state.workflows import Failure, PhaseEntry, WorkflowRun


@pytest.mark.parametrize("status", ["failed", "cancelled"])
def test_a_restart_keeps_what_resumes_and_clears_what_ended(
    store: StateStore, raw: Raw, frozen_clock: FrozenClock, status: Any
) -> None:
    """workflows W-30."""
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
    """workflows W-30."""
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


def test_a_run_may_be_restarted_a_hundred_times_at_most(every_backend: StateStore) -> None:
    """workflows W-31: whether that is said as it begins or later."""
    run = started(every_backend, max_restarts=100)
    allow = partial(every_backend.workflows.runs.allow_restarts, run.id, by="ana", reason="more")
    assert allow(100).max_restarts == 100
    with pytest.raises(InvalidValue):
        allow(101)
    with pytest.raises(InvalidValue):
        started(every_backend, max_restarts=101)
