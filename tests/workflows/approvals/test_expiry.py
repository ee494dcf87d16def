"""Gates that nobody answers in time."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from support.between import before
from support.workflows.steps import PLAN, Raw, all_pages, paused, started, undone

from lastlight_state import StateStore
from lastlight_state.errors import Conflict, InvalidValue
from lastlight_state.testing import FrozenClock
from lastlight_state.workflows import Approval, Gate, NodeRef, WorkflowRun
from lastlight_state.workflows.questions.repository import QuestionRepository

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
    assert (expired.status, expired.closed_reason, expired.answered_by) == ("expired", "gate.expired", None)
    run = store.workflows.runs.get(approval.run_id)
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
    assert store.workflows.runs.get(approval.run_id).status == "running"
    assert raw.transitions(approval.run_id)[-1] == ("paused", "running", "run.resumed.gate")


def test_an_overdue_gate_takes_no_answer_before_the_sweep_either(store: StateStore, frozen_clock: FrozenClock) -> None:
    """workflows W-83, W-88: one millisecond earlier it does."""
    late, early = paused(store, expiring(frozen_clock)), paused(store, expiring(frozen_clock))
    frozen_clock.advance(ALMOST)
    assert store.workflows.approvals.answer(early.id, "approved", by="ana").approval.status == "approved"
    frozen_clock.advance(timedelta(milliseconds=1))
    with pytest.raises(Conflict) as refused:
        store.workflows.approvals.answer(late.id, "approved", by="ana")
    assert refused.value.code == "approval_expired"
    assert store.workflows.approvals.expire_due() == (late.id,)
    assert store.workflows.approvals.answer(early.id, "approved", by="ana").repeated


def test_an_overdue_gate_is_seen_as_expired_before_any_sweep(
    store: StateStore, raw: Raw, frozen_clock: FrozenClock
) -> None:
    """workflows W-88: wherever it is read. The inbox alone writes that."""
    approvals, node = store.workflows.approvals, NodeRef("review")
    gate = expiring(frozen_clock, node=node)
    asked = paused(store, gate)
    frozen_clock.advance(HOUR)
    seen = approvals.get(asked.id)
    assert (seen.status, seen.closed_reason) == ("expired", "gate.expired")
    assert [each.status for each in approvals.list_for_run(asked.run_id)] == ["expired"]
    assert [each.status for each in approvals.list()] == ["expired"]
    assert approvals.pause(asked.run_id, replace(gate, id=asked.id)) == seen
    assert [wait.status for wait in store.workflows.lookups.get_task(asked.run_id, node).waits] == ["expired"]
    assert raw("SELECT status FROM workflow_approvals") == [("pending",)]
    assert approvals.list_pending().items == ()
    assert raw("SELECT status FROM workflow_approvals") == [("expired",)]
    assert approvals.get(asked.id) == seen


def test_a_list_by_status_goes_by_the_status_that_gates_read_as(store: StateStore, frozen_clock: FrozenClock) -> None:
    """workflows W-88."""
    approvals, (swept, overdue) = store.workflows.approvals, (paused(store, expiring(frozen_clock)) for _ in range(2))
    frozen_clock.advance(HOUR)
    assert approvals.expire_due(limit=1) == (swept.id,)
    waiting, later = paused(store), paused(store, expiring(frozen_clock))
    for seconds in (0, 1):
        frozen_clock.advance(seconds=seconds)
        found = {
            statuses: {each.id for each in approvals.list(statuses=statuses)}
            for statuses in (("pending",), ("expired",), ("pending", "expired"), ("approved",))
        }
        assert found == {
            ("pending",): {waiting.id, later.id},
            ("expired",): {swept.id, overdue.id},
            ("pending", "expired"): {swept.id, overdue.id, waiting.id, later.id},
            ("approved",): set(),
        }
    pages = all_pages(lambda **given: approvals.list(statuses=("expired",), limit=1, **given))
    assert {each.id for each in pages} == {swept.id, overdue.id}


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


def test_a_sweep_that_finds_nothing_left_to_expire_resumes_nobody(
    every_backend: StateStore, frozen_clock: FrozenClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """workflows W-87: a run that was paused again since another sweep came first."""
    approvals, run_id = every_backend.workflows.approvals, started(every_backend).id
    gate = approvals.create(run_id, expiring(frozen_clock, on_reject="resume"))
    frozen_clock.advance(HOUR)

    def meanwhile() -> None:
        assert approvals.expire_due() == (gate.id,)
        every_backend.workflows.waits.pause(run_id, gates=[approvals.create(run_id, PLAN).id])

    before(monkeypatch, QuestionRepository, "_expire", meanwhile)
    assert approvals.expire_due() == ()
    assert every_backend.workflows.runs.get(run_id).status == "paused"


def test_a_gate_that_was_put_off_since_a_sweep_looked_does_not_expire(
    every_backend: StateStore, raw: Raw, frozen_clock: FrozenClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """workflows W-87: by hand, as no call does."""
    gate = paused(every_backend, expiring(frozen_clock))
    later = frozen_clock.advance(HOUR) + HOUR
    put_off = partial(raw, "UPDATE workflow_approvals SET expires_at = ?", later)
    before(monkeypatch, QuestionRepository, "_expire", put_off)
    assert every_backend.workflows.approvals.expire_due() == ()
    assert every_backend.workflows.approvals.get(gate.id).status == "pending"


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
    assert store.workflows.runs.get(approval.run_id).status == "paused"
    assert store.workflows.approvals.expire_due() == (approval.id,)


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
    assert [reason for *_, reason in raw.transitions(run.id)] == ["run.created", "question.asked"]
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
