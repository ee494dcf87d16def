"""Opening gates, with and without a pause; cancelling them."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from support.workflows.steps import PLAN, Raw, paused, started, undone

from lastlight_state import StateStore
from lastlight_state.errors import (
    AlreadyAnswered,
    AlreadyExists,
    ClaimLost,
    Conflict,
    InvalidValue,
    NotFound,
    PayloadTooLarge,
)
from lastlight_state.testing import FrozenClock
from lastlight_state.workflows import Gate, NodeRef, PhaseEntry

ACTION = {"command": "deploy", "target": ["eu", "us"]}
PAST = datetime(2026, 1, 1, tzinfo=UTC)


def test_a_pause_stores_marker_scratch_gate_and_status_together(store: StateStore, raw: Raw) -> None:
    """workflows W-81."""
    run = started(store, scratch={"a": 1})
    gate = Gate("review", "Read the plan", requested_by="bo", artifact="plan.md", action=ACTION)
    approval = store.workflows.approvals.pause(
        run.id, gate, marker=PhaseEntry("plan", True, "planned"), scratch={"b": 2}
    )
    stored = store.workflows.runs.get(run.id)
    assert (stored.status, stored.pause_reason, stored.status_reason) == ("paused", "gate", "run.paused.gate")
    assert (stored.scratch, stored.current_phase, stored.phase_count) == ({"a": 1, "b": 2}, "plan", 1)
    assert stored.phase_history[0].summary == "planned"
    assert (approval.status, approval.blocks_run, approval.action) == ("pending", True, ACTION)
    assert store.workflows.approvals.get(approval.id) == approval
    assert raw.transitions(run.id)[1:] == [("running", "paused", "run.paused.gate")]


def test_a_pause_ends_the_claim_and_fences_its_holder(store: StateStore, raw: Raw) -> None:
    """workflows W-14, W-32, W-48."""
    run = started(store)
    claim = raw.hold(run.id)
    store.workflows.approvals.pause(run.id, PLAN, claim=claim)
    stored = store.workflows.runs.get(run.id)
    assert (stored.claim_owner, stored.lease_expires_at, stored.claim_epoch) == (None, None, claim.epoch + 1)
    with pytest.raises(ClaimLost) as lost:
        store.workflows.runs.append_phase(run.id, PhaseEntry("late", True), claim=claim)
    assert lost.value.status == "paused"


def test_only_the_holder_opens_gates(store: StateStore, raw: Raw) -> None:
    """workflows W-14."""
    run = started(store)
    stale = raw.hold(run.id)
    raw.hold(run.id, "worker-2")
    for open_gate in (store.workflows.approvals.pause, store.workflows.approvals.create):
        for claim in (stale, None):
            with pytest.raises(ClaimLost):
                open_gate(run.id, PLAN, claim=claim)
    assert not raw("SELECT 1 FROM workflow_approvals")


def test_pausing_a_missing_run_stores_no_gate(store: StateStore, raw: Raw) -> None:
    """workflows W-13, W-81."""
    for open_gate in (store.workflows.approvals.pause, store.workflows.approvals.create):
        with pytest.raises(NotFound) as missing:
            open_gate("no-such-run", PLAN)
        assert (missing.value.kind, missing.value.key) == ("workflow_run", "no-such-run")
    assert not raw("SELECT 1 FROM workflow_approvals")


def test_a_pause_that_fails_leaves_the_run_as_it_was(store: StateStore, raw: Raw) -> None:
    """workflows W-81."""
    run = started(store, scratch={"a": 1})
    with pytest.raises(PayloadTooLarge):
        store.workflows.approvals.pause(run.id, PLAN, marker=PhaseEntry("plan", True), scratch={"b": "x" * 65_536})
    assert store.workflows.runs.get(run.id) == run
    assert not raw("SELECT 1 FROM workflow_approvals")
    raw.check_history(run.id)


def test_only_a_running_run_is_paused(store: StateStore, raw: Raw) -> None:
    """workflows W-12, W-81."""
    cases: list[str] = ["queued", "paused", "succeeded"]
    for status in cases:
        run = started(store, status="queued" if status == "queued" else "running")
        if status == "paused":
            store.workflows.approvals.pause(run.id, Gate("first", ""))
        elif status == "succeeded":
            store.workflows.runs.finish(run.id, "succeeded")
        with pytest.raises(Conflict) as refused:
            store.workflows.approvals.pause(run.id, PLAN)
        assert (refused.value.code, refused.value.details["found"]) == ("run_status", status)
        assert not raw("SELECT 1 FROM workflow_approvals WHERE gate = ?", PLAN.gate)


def test_the_same_pause_again_returns_the_stored_gate(store: StateStore, raw: Raw, frozen_clock: FrozenClock) -> None:
    """workflows W-17, W-81: also with the claim that the first one ended, and after the answer."""
    run = started(store)
    claim = raw.hold(run.id)
    gate = Gate("plan", "Go?", id="gate-1", expires_at=frozen_clock.now() + timedelta(hours=1), action=ACTION)
    first = store.workflows.approvals.pause(run.id, gate, marker=PhaseEntry("plan", True), claim=claim)
    again = store.workflows.approvals.pause(run.id, gate, marker=PhaseEntry("plan", True), claim=claim)
    assert again == first
    assert store.workflows.runs.get(run.id).phase_count == 1
    answered = store.workflows.approvals.answer("gate-1", "approved", by="ana", digest=first.action_digest)
    frozen_clock.advance(timedelta(hours=2))
    assert store.workflows.approvals.pause(run.id, gate, claim=claim) == answered.approval


def test_a_used_gate_id_with_another_content_is_refused(store: StateStore) -> None:
    """workflows W-81."""
    given = Gate("plan", "Go?", id="gate-1", action=ACTION)
    approval = paused(store, given)
    changed: list[dict[str, Any]] = [
        {"summary": "other"},
        {"action": {"command": "drop"}},
        {"kind": "reply"},
        {"node": NodeRef("build", 1)},
        {"on_reject": "resume"},
    ]
    for change in changed:
        with pytest.raises(AlreadyExists) as taken:
            store.workflows.approvals.create(approval.run_id, replace(given, **change))
        assert (taken.value.kind, taken.value.key) == ("approval", "gate-1")
    assert store.workflows.approvals.get("gate-1") == approval


def test_a_gate_id_of_another_run_is_refused(store: StateStore) -> None:
    """workflows W-81."""
    paused(store, Gate("plan", "Go?", id="gate-1"))
    other = started(store)
    with pytest.raises(AlreadyExists):
        store.workflows.approvals.pause(other.id, Gate("plan", "Go?", id="gate-1"))
    assert store.workflows.runs.get(other.id) == other


def test_a_second_pending_gate_of_one_request_key_is_refused_with_the_first(store: StateStore) -> None:
    """workflows W-81: by default the key is gate, node and iteration."""
    run = started(store)
    create = store.workflows.approvals.create
    first = create(run.id, Gate("plan", "Go?", node=NodeRef("build")))
    with pytest.raises(AlreadyExists) as taken:
        create(run.id, Gate("plan", "Go on?", node=NodeRef("build")))
    assert taken.value.details["approval"] == first
    others = [
        create(run.id, Gate("plan", "Go?", node=NodeRef("build", 1))),
        create(run.id, Gate("plan", "Go?")),
        create(run.id, Gate("plan", "Go?", request_key="mine")),
        create(started(store).id, Gate("plan", "Go?", node=NodeRef("build"))),
    ]
    assert len({gate.id for gate in (first, *others)}) == 5


def test_a_request_key_is_free_again_after_its_gate_ended(store: StateStore) -> None:
    """workflows W-84: a changed action is a new approval, cancelled and created in one transaction."""
    run = started(store)
    old = store.workflows.approvals.create(run.id, Gate("plan", "Go?", action=ACTION))
    with store.transaction() as tx:
        tx.workflows.approvals.cancel(old.id, by="engine", reason="the action changed")
        new = tx.workflows.approvals.create(run.id, Gate("plan", "Go?", action={"command": "rollback"}))
    assert [gate.status for gate in store.workflows.approvals.list_for_run(run.id)] == ["cancelled", "pending"]
    assert new.action_digest != old.action_digest


def test_a_gate_beside_a_run_stops_nothing(store: StateStore, raw: Raw) -> None:
    """workflows W-32: runs that are running or paused may ask."""
    run = started(store)
    claim = raw.hold(run.id)
    approval = store.workflows.approvals.create(run.id, Gate("plan", "Go?", node=NodeRef("build", 2)), claim=claim)
    assert (approval.blocks_run, approval.node_id, approval.iteration) == (False, "build", 2)
    assert store.workflows.runs.get(run.id).status == "running"
    assert raw.transitions(run.id)[1:] == [("running", "running", "question.asked")]
    store.workflows.approvals.pause(run.id, Gate("review", "Read"), claim=claim)
    assert store.workflows.approvals.create(run.id, Gate("more", "And this?")).status == "pending"


def test_no_gate_is_opened_beside_a_run_that_does_not_run(store: StateStore, raw: Raw) -> None:
    """workflows W-12."""
    cases: list[str] = ["queued", "failed"]
    for status in cases:
        run = started(store, status="queued")
        if status == "failed":
            store.workflows.runs.finish(run.id, "failed")
        with pytest.raises(Conflict) as refused:
            store.workflows.approvals.create(run.id, PLAN)
        assert refused.value.details["allowed"] == ("running", "paused")
        assert not raw("SELECT 1 FROM workflow_approvals")


def test_an_expiry_that_is_not_ahead_is_refused(store: StateStore, frozen_clock: FrozenClock, raw: Raw) -> None:
    """workflows W-81: what is due at once could never be answered."""
    run = started(store)
    with pytest.raises(InvalidValue) as refused:
        store.workflows.approvals.pause(run.id, Gate("plan", "Go?", expires_at=frozen_clock.now()))
    assert refused.value.where == "gate.expires_at"
    expires_at = frozen_clock.now() + timedelta(milliseconds=1)
    assert store.workflows.approvals.pause(run.id, Gate("plan", "Go?", expires_at=expires_at)).expires_at == expires_at


REFUSED = [
    (Gate("", "Go?"), "gate.gate"),
    (Gate("plan", "x" * 16_385), "gate.summary"),
    (Gate("plan", "Go?", kind="maybe"), "gate.kind"),  # type: ignore[arg-type]
    (Gate("plan", "Go?", on_reject="retry"), "gate.on_reject"),  # type: ignore[arg-type]
    (Gate("plan", "Go?", requested_by=" "), "gate.requested_by"),
    (Gate("plan", "Go?", node=NodeRef("build", -1)), "gate.node.iteration"),
    (Gate("plan", "Go?", action={"x": float("nan")}), "gate.action.x"),
    (Gate("plan", "Go?", action="x" * 16_383), "gate.action"),
    (Gate("plan", "Go?", request_key=""), "gate.request_key"),
]


def test_a_gate_that_may_not_be_stored_is_refused(store: StateStore, raw: Raw) -> None:
    """workflows W-1, W-2, W-3, W-4."""
    run = started(store)
    for gate, where in REFUSED:
        with pytest.raises(InvalidValue) as refused:
            store.workflows.approvals.pause(run.id, gate)
        assert (gate, refused.value.where) == (gate, where)
    assert store.workflows.runs.get(run.id) == run
    assert not raw("SELECT 1 FROM workflow_approvals")


def test_limits_themselves_are_accepted(store: StateStore) -> None:
    """workflows W-3: exactly the limit is accepted."""
    approval = paused(store, Gate("plan", "é" * 8_192, action="x" * 16_382))
    assert store.workflows.approvals.get(approval.id).summary == "é" * 8_192
    with pytest.raises(PayloadTooLarge):
        store.workflows.approvals.answer(approval.id, "rejected", by="ana", response="é" * 32_768 + "x")
    answered = store.workflows.approvals.answer(approval.id, "rejected", by="ana", response="é" * 32_768)
    assert answered.approval.response == "é" * 32_768


def test_equal_actions_have_equal_digests_whatever_their_spelling(store: StateStore) -> None:
    """workflows W-84: the digest is that of the canonical form."""
    first = paused(store, Gate("plan", "Go?", action={"a": 1, "b": [1.0, "é"]}))
    second = paused(store, Gate("plan", "Go?", action={"b": [1, "é"], "a": 1.0}))
    assert first.action_digest == second.action_digest
    assert paused(store).action_digest is None


def test_a_cancelled_gate_lets_its_run_go_on(store: StateStore, raw: Raw, frozen_clock: FrozenClock) -> None:
    """workflows W-85: cancelling resumes as an answer does, and keeps who did it and why."""
    approval = paused(store)
    frozen_clock.advance(seconds=5)
    cancelled = store.workflows.approvals.cancel(approval.id, by="ana", reason="obsolete")
    assert (cancelled.status, cancelled.closed_reason, cancelled.answered_via) == ("cancelled", "obsolete", None)
    assert (cancelled.answered_by, cancelled.answered_at) == ("ana", frozen_clock.now())
    assert store.workflows.runs.get(approval.run_id).status == "running"
    assert raw.transitions(approval.run_id)[-1] == ("paused", "running", "run.resumed.gate")


def test_cancelling_a_gate_again_changes_nothing(store: StateStore, frozen_clock: FrozenClock, raw: Raw) -> None:
    """workflows W-85: repeat-safe."""
    approval = paused(store)
    first = store.workflows.approvals.cancel(approval.id, by="ana", reason="obsolete")
    frozen_clock.advance(seconds=5)
    assert store.workflows.approvals.cancel(approval.id, by="bo", reason="too") == first
    assert len(raw.transitions(approval.run_id)) == 3


def test_an_answered_gate_is_not_cancelled(store: StateStore) -> None:
    """workflows W-83."""
    approval = paused(store)
    answered = store.workflows.approvals.answer(approval.id, "approved", by="ana")
    with pytest.raises(AlreadyAnswered) as refused:
        store.workflows.approvals.cancel(approval.id, by="bo", reason="obsolete")
    assert refused.value.winner == answered.approval
    assert store.workflows.approvals.get(approval.id) == answered.approval


def test_gates_that_are_not_there_are_not_found(store: StateStore) -> None:
    """workflows W-13."""
    approvals = store.workflows.approvals
    for call in (
        lambda: approvals.get("nothing"),
        lambda: approvals.answer("nothing", "approved", by="ana"),
        lambda: approvals.cancel("nothing", by="ana", reason="obsolete"),
        lambda: approvals.consume("nothing", action=None, execution_id="e-1"),
    ):
        with pytest.raises(NotFound) as missing:
            call()
        assert (missing.value.kind, missing.value.key) == ("approval", "nothing")


def test_a_gate_whose_run_is_missing_names_the_run(store: StateStore, raw: Raw) -> None:
    """workflows W-13: another program may have left such a row."""
    raw(
        "INSERT INTO workflow_approvals (id, workflow_run_id, gate, summary, created_at) VALUES (?, ?, ?, ?, ?)",
        "orphan",
        "gone",
        "plan",
        "Go?",
        PAST,
    )
    with pytest.raises(NotFound) as missing:
        store.workflows.approvals.answer("orphan", "approved", by="ana")
    assert (missing.value.kind, missing.value.key) == ("workflow_run", "gone")


def test_nothing_of_a_transaction_that_raises_is_there(store: StateStore, raw: Raw) -> None:
    """workflows case 55."""
    run = started(store)
    with undone(store) as tx:
        tx.workflows.approvals.pause(run.id, PLAN, marker=PhaseEntry("plan", True))
        assert tx.workflows.runs.get(run.id).status == "paused"
    assert store.workflows.runs.get(run.id) == run
    assert not raw("SELECT 1 FROM workflow_approvals")


def test_a_refused_pause_leaves_the_transaction_usable(store: StateStore) -> None:
    """workflows W-118: an error leaves an enclosing transaction usable, and undoes what the call did."""
    run = started(store)
    with store.transaction() as tx:
        with pytest.raises(PayloadTooLarge):
            tx.workflows.approvals.pause(run.id, PLAN, scratch={"b": "x" * 65_536})
        assert not tx.workflows.approvals.list_for_run(run.id).items
        approval = tx.workflows.approvals.pause(run.id, PLAN)
    assert store.workflows.approvals.get(approval.id).status == "pending"
