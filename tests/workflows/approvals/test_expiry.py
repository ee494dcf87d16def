"""Gates that nobody answers in time."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from support.workflows.steps import PLAN, Raw, paused, started, undone

from lastlight_state import StateStore
from lastlight_state.errors import Conflict, InvalidValue
from lastlight_state.testing import FrozenClock
from lastlight_state.workflows import Approval, Gate, WorkflowRun

HOUR = timedelta(hours=1)
ALMOST = HOUR - timedelta(milliseconds=1)


def expiring(clock: FrozenClock, gate: str = "plan", **given: Any) -> Gate:
    return Gate(gate, "Go?", expires_at=clock.now() + HOUR, **given)


def test_an_expiry_counts_as_a_rejection(store: StateStore, raw: Raw, frozen_clock: FrozenClock) -> None:
    """workflows W-87: inclusive."""
    told: list[WorkflowRun] = []
    store.workflows.on_terminal(told.append)
    approval = paused(store, expiring(frozen_clock))
    frozen_clock.advance(ALMOST)
    assert store.workflows.approvals.expire_due() == ()
    frozen_clock.advance(timedelta(milliseconds=1))
    assert store.workflows.approvals.expire_due() == (approval.id,)
    expired = store.workflows.approvals.get(approval.id)
    assert (expired.status, expired.closed_reason, expired.responded_by) == ("expired", "gate.expired", None)
    run = store.workflows.runs.get(approval.workflow_run_id)
    assert (run.status, run.status_reason) == ("failed", "gate.expired")
    assert run.error == "Expired: plan was not answered by 2026-02-03T13:34:56.789Z"
    assert told == [run]
    raw.check_history(run.id)
    assert store.workflows.approvals.expire_due() == ()


def test_an_expiry_that_resumes_lets_the_run_go_on(store: StateStore, raw: Raw, frozen_clock: FrozenClock) -> None:
    """workflows W-87."""
    approval = paused(store, expiring(frozen_clock, on_reject="resume"))
    frozen_clock.advance(HOUR)
    assert store.workflows.approvals.expire_due() == (approval.id,)
    assert store.workflows.runs.get(approval.workflow_run_id).status == "running"
    assert raw.transitions(approval.workflow_run_id)[-1] == ("paused", "running", "run.resumed.gate")


def test_an_overdue_gate_takes_no_answer_before_the_sweep_either(store: StateStore, frozen_clock: FrozenClock) -> None:
    """workflows W-83, W-88: one millisecond earlier it does."""
    late, early = paused(store, expiring(frozen_clock)), paused(store, expiring(frozen_clock))
    frozen_clock.advance(ALMOST)
    assert store.workflows.approvals.answer(early.id, "approved", by="ana").approval.status == "approved"
    frozen_clock.advance(timedelta(milliseconds=1))
    with pytest.raises(Conflict) as refused:
        store.workflows.approvals.answer(late.id, "approved", by="ana")
    assert refused.value.code == "approval_expired"
    assert store.workflows.approvals.get(late.id) == late
    assert store.workflows.approvals.answer(early.id, "approved", by="ana").repeated


def test_an_expired_gate_takes_no_answer(store: StateStore, frozen_clock: FrozenClock) -> None:
    """workflows W-83."""
    approval = paused(store, expiring(frozen_clock, on_reject="resume"))
    frozen_clock.advance(HOUR)
    store.workflows.approvals.expire_due()
    for attempt in (
        lambda: store.workflows.approvals.answer(approval.id, "approved", by="ana"),
        lambda: store.workflows.approvals.cancel(approval.id, by="ana", reason="late"),
    ):
        with pytest.raises(Conflict) as refused:
            attempt()
        assert refused.value.code == "approval_expired"


def test_all_due_gates_of_a_run_expire_together(store: StateStore, raw: Raw, frozen_clock: FrozenClock) -> None:
    """workflows W-87: one unit per run, so one ending."""
    run = started(store)
    gates = [
        store.workflows.approvals.create(run.id, expiring(frozen_clock, gate, on_reject=on_reject))
        for gate, on_reject in (("a", "resume"), ("b", "fail"), ("c", "fail"))
    ]
    later = store.workflows.approvals.create(run.id, Gate("d", "Go?", expires_at=frozen_clock.now() + 2 * HOUR))
    frozen_clock.advance(HOUR)
    assert set(store.workflows.approvals.expire_due()) == {gate.id for gate in gates}
    assert store.workflows.runs.get(run.id).error == "Expired: b was not answered by 2026-02-03T13:34:56.789Z"
    assert store.workflows.approvals.get(later.id).status == "cancelled"
    raw.check_history(run.id)


def test_a_sweep_takes_the_longest_overdue_first(store: StateStore, frozen_clock: FrozenClock) -> None:
    """workflows W-87."""
    approvals: list[Approval] = []
    for _ in range(3):
        approvals.append(paused(store, expiring(frozen_clock)))
        frozen_clock.advance(seconds=1)
    frozen_clock.advance(HOUR)
    assert store.workflows.approvals.expire_due(limit=1) == (approvals[0].id,)
    assert set(store.workflows.approvals.expire_due(limit=2)) == {approvals[1].id, approvals[2].id}


def test_a_sweep_in_a_transaction_is_part_of_it(store: StateStore, frozen_clock: FrozenClock) -> None:
    """workflows W-87."""
    approval = paused(store, expiring(frozen_clock))
    frozen_clock.advance(HOUR)
    with undone(store) as tx:
        assert tx.workflows.approvals.expire_due() == (approval.id,)
    assert store.workflows.approvals.get(approval.id) == approval


def test_a_due_gate_of_an_ended_run_expires_quietly(store: StateStore, raw: Raw, frozen_clock: FrozenClock) -> None:
    """workflows W-87: rows of another program must not fill the sweep for ever."""
    run = started(store)
    approval = store.workflows.approvals.create(run.id, expiring(frozen_clock))
    raw("UPDATE workflow_runs SET status = 'succeeded' WHERE id = ?", run.id)
    raw(
        "INSERT INTO workflow_approvals (id, workflow_run_id, gate, summary, created_at, expires_at) "
        "VALUES ('orphan', 'gone', 'plan', 'Go', ?, ?)",
        frozen_clock.now(),
        frozen_clock.now(),
    )
    frozen_clock.advance(HOUR)
    assert store.workflows.approvals.expire_due(limit=1) == (approval.id,)
    assert store.workflows.runs.get(run.id).status == "succeeded"
    assert len(raw.transitions(run.id)) == 1
    assert store.workflows.approvals.expire_due() == ()


def test_a_gate_without_expiry_waits_for_ever(store: StateStore, frozen_clock: FrozenClock) -> None:
    """workflows W-87."""
    approval = paused(store, PLAN)
    frozen_clock.advance(timedelta(days=3_650))
    assert store.workflows.approvals.expire_due() == ()
    assert store.workflows.approvals.answer(approval.id, "approved", by="ana").run.status == "running"


def test_a_sweep_is_bounded(store: StateStore) -> None:
    """workflows W-87."""
    cases: list[int] = [0, 501, True]
    for limit in cases:
        with pytest.raises(InvalidValue):
            store.workflows.approvals.expire_due(limit=limit)
