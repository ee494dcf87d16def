"""Answering gates: one winner, and the run moves with the answer."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from support.workflows.steps import PLAN, Raw, paused, started, undone

from lastlight_state import StateStore
from lastlight_state.errors import AlreadyAnswered, Conflict, InvalidValue, PayloadTooLarge, StaleVersion
from lastlight_state.testing import FrozenClock
from lastlight_state.workflows import Gate, WorkflowRun

ACTION = {"command": "deploy"}
REPLY = Gate("question", "Which branch?", kind="reply")


def test_an_approval_offers_the_run_to_any_worker(store: StateStore, raw: Raw, frozen_clock: FrozenClock) -> None:
    """workflows W-82, W-85, W-33."""
    approval = paused(store)
    at = frozen_clock.advance(seconds=60)
    answered = store.workflows.approvals.answer(approval.id, "approved", by="ana", response="fine", scratch={"ok": 1})
    gate, run = answered.approval, answered.run
    assert (gate.status, gate.answered_by, gate.response, gate.answered_at) == ("approved", "ana", "fine", at)
    assert (gate.answered_via, gate.asked_at, answered.repeated) == ("person", approval.asked_at, False)
    assert (run.status, run.status_reason, run.scratch) == ("running", "run.resumed.gate", {"ok": 1})
    assert (run.claim_owner, run.lease_expires_at, run.pause_reason) == (None, None, None)
    assert store.workflows.runs.get(run.id) == run
    assert store.workflows.approvals.get(gate.id) == gate
    [*_, (actor, source)] = raw("SELECT actor, source FROM run_transitions WHERE run_id = ? ORDER BY seq", run.id)
    assert (actor, source) == ("ana", "responder")


def test_the_same_answer_again_is_repeated_long_after(store: StateStore, frozen_clock: FrozenClock, raw: Raw) -> None:
    """workflows W-83."""
    approval = paused(store)
    first = store.workflows.approvals.answer(approval.id, "approved", by="ana", response="fine", scratch={"n": 1})
    ended = store.workflows.runs.finish(approval.run_id, "succeeded")
    frozen_clock.advance(timedelta(days=3))
    again = store.workflows.approvals.answer(approval.id, "approved", by="ana", response="fine", scratch={"n": 2})
    assert (again.repeated, again.approval, again.run) == (True, first.approval, ended)
    assert len(raw.transitions(approval.run_id)) == 4


def test_any_other_answer_meets_the_winner(store: StateStore, raw: Raw) -> None:
    """workflows W-83."""
    approval = paused(store)
    first = store.workflows.approvals.answer(approval.id, "approved", by="ana", response="fine")
    others: list[dict[str, Any]] = [
        {"by": "ana", "response": "fine indeed"},
        {"by": "ana", "decision": "rejected", "response": "fine"},
        {"by": "bo", "response": "fine"},
        {"by": "ana"},
        {"by": "ana", "response": "fine", "digest": "0" * 64},
    ]
    for other in others:
        with pytest.raises(AlreadyAnswered) as lost:
            store.workflows.approvals.answer(approval.id, **{"decision": "approved", **other})
        assert lost.value.winner == first.approval
    assert store.workflows.approvals.get(approval.id) == first.approval
    assert len(raw.transitions(approval.run_id)) == 3


def test_a_rejection_fails_the_run_and_closes_everything(store: StateStore, raw: Raw) -> None:
    """workflows W-18, W-85."""
    told: list[WorkflowRun] = []
    store.workflows.on_terminal(told.append)
    run = started(store)
    other = store.workflows.approvals.create(run.id, Gate("other", "And this?"))
    raw.execution(run.id)
    approval = store.workflows.approvals.pause(run.id, PLAN)
    answered = store.workflows.approvals.answer(approval.id, "rejected", by="ana", response="too risky")
    assert (answered.run.status, answered.run.error) == ("failed", "Rejected: too risky")
    assert (answered.run.status_reason, answered.run.finished_at) == ("gate.rejected", answered.approval.answered_at)
    assert told == [answered.run]
    closed = store.workflows.approvals.get(other.id)
    assert (closed.status, closed.closed_reason, closed.answered_by) == ("cancelled", "gate.rejected", None)
    [(outcome, success)] = raw("SELECT outcome, success FROM executions")
    assert (outcome, bool(success)) == ("interrupted", False)


def test_a_rejection_without_words_says_so(store: StateStore) -> None:
    """workflows W-85."""
    answered = store.workflows.approvals.answer(paused(store).id, "rejected", by="ana")
    assert answered.run.error == "Rejected: no reason given"


def test_a_long_rejection_is_cut_in_the_runs_error_only(store: StateStore) -> None:
    """workflows W-3, W-85: an error holds 16 KiB, a response 64 KiB."""
    answered = store.workflows.approvals.answer(paused(store).id, "rejected", by="ana", response="é" * 20_000)
    assert answered.approval.response == "é" * 20_000
    assert answered.run.error is not None
    assert answered.run.error.startswith("Rejected: éé")
    assert len(answered.run.error.encode()) in (16_383, 16_384)


def test_a_rejection_that_resumes_lets_the_run_read_it(store: StateStore) -> None:
    """workflows W-85."""
    approval = paused(store, Gate("plan", "Go?", on_reject="resume"))
    answered = store.workflows.approvals.answer(approval.id, "rejected", by="ana", response="not yet")
    assert (answered.run.status, answered.run.error, answered.approval.status) == ("running", None, "rejected")


def test_a_reply_is_stored_as_approved_with_its_text(store: StateStore) -> None:
    """workflows W-82."""
    answered = store.workflows.approvals.answer(paused(store, REPLY).id, "replied", by="ana", response="main")
    assert (answered.approval.status, answered.approval.response) == ("approved", "main")
    assert answered.run.status == "running"
    repeated = store.workflows.approvals.answer(answered.approval.id, "replied", by="ana", response="main")
    assert repeated.repeated


def test_a_blank_reply_is_refused(store: StateStore) -> None:
    """workflows W-82."""
    approval = paused(store, REPLY)
    for response in (None, "", " \n"):
        with pytest.raises(InvalidValue) as refused:
            store.workflows.approvals.answer(approval.id, "replied", by="ana", response=response)
        assert refused.value.where == "response"
    assert store.workflows.approvals.get(approval.id) == approval


def test_the_wrong_decision_for_the_kind_is_refused(store: StateStore) -> None:
    """workflows W-82."""
    wrong: tuple[tuple[Gate, Any], ...] = (
        (REPLY, "approved"),
        (REPLY, "rejected"),
        (PLAN, "replied"),
        (PLAN, "expired"),
    )
    for gate, decision in wrong:
        approval = paused(store, gate)
        with pytest.raises(InvalidValue) as refused:
            store.workflows.approvals.answer(approval.id, decision, by="ana", response="main")
        assert refused.value.where == "decision"
        assert store.workflows.approvals.get(approval.id) == approval


def test_an_answer_that_may_not_be_stored_is_refused(store: StateStore) -> None:
    """workflows W-1, W-2, W-82."""
    approval = paused(store)
    refused: list[dict[str, Any]] = [{"by": " "}, {"by": ""}, {"by": "a" * 129}, {"via": "fax"}, {"scratch": [1]}]
    for given in refused:
        with pytest.raises(InvalidValue):
            store.workflows.approvals.answer(approval.id, "approved", **{"by": "ana", **given})
    assert store.workflows.approvals.get(approval.id) == approval


def test_an_answer_whose_scratch_is_too_large_is_not_given(store: StateStore) -> None:
    """workflows W-82: one transaction."""
    approval = paused(store)
    with pytest.raises(PayloadTooLarge):
        store.workflows.approvals.answer(approval.id, "approved", by="ana", scratch={"x": "y" * 65_536})
    assert store.workflows.approvals.get(approval.id) == approval
    assert store.workflows.runs.get(approval.run_id).status == "paused"


def test_an_action_is_approved_only_with_the_digest_that_was_seen(store: StateStore) -> None:
    """workflows W-84."""
    approval = paused(store, Gate("plan", "Go?", action=ACTION))
    answer = store.workflows.approvals.answer
    with pytest.raises(InvalidValue) as missing:
        answer(approval.id, "approved", by="ana")
    assert missing.value.where == "digest"
    with pytest.raises(StaleVersion) as stale:
        answer(approval.id, "approved", by="ana", digest="0" * 64)
    assert (stale.value.expected, stale.value.found) == ("0" * 64, approval.action_digest)
    assert store.workflows.approvals.get(approval.id) == approval
    assert answer(approval.id, "approved", by="ana", digest=approval.action_digest).approval.status == "approved"


def test_a_digest_for_a_gate_without_action_was_seen_elsewhere(store: StateStore) -> None:
    """workflows W-84."""
    with pytest.raises(StaleVersion):
        store.workflows.approvals.answer(paused(store).id, "approved", by="ana", digest="0" * 64)


def test_rejecting_an_action_needs_no_digest(store: StateStore) -> None:
    """workflows W-84."""
    approval = paused(store, Gate("plan", "Go?", action=ACTION))
    answered = store.workflows.approvals.answer(approval.id, "rejected", by="ana")
    assert answered.approval.status == "rejected"
    assert store.workflows.approvals.answer(approval.id, "rejected", by="ana").repeated


def test_a_policy_answers_by_its_name(store: StateStore) -> None:
    """workflows W-82."""
    answered = store.workflows.approvals.answer(paused(store).id, "approved", by="policy:trusted", via="policy")
    assert answered.approval.answered_via == "policy"


def test_the_run_waits_while_a_gate_that_blocks_it_is_left(store: StateStore, raw: Raw) -> None:
    """workflows W-11, W-85: a note says that one of them was answered."""
    first = paused(store)
    second = blocking(store, raw, first.run_id)
    answered = store.workflows.approvals.answer(first.id, "approved", by="ana")
    assert answered.run.status == "paused"
    assert raw.transitions(first.run_id)[-1] == ("paused", "paused", "question.answered")
    assert store.workflows.approvals.answer(second.id, "approved", by="bo").run.status == "running"


def test_a_gate_that_does_not_block_keeps_no_run_waiting(store: StateStore) -> None:
    """workflows W-32, W-85."""
    approval = paused(store)
    beside = store.workflows.approvals.create(approval.run_id, Gate("beside", "And this?"))
    assert store.workflows.approvals.answer(beside.id, "approved", by="bo").run.status == "paused"
    assert store.workflows.approvals.answer(approval.id, "approved", by="ana").run.status == "running"


def test_an_answer_beside_a_claimed_run_leaves_it_to_its_holder(store: StateStore, raw: Raw) -> None:
    """workflows W-14, W-85: responders are not fenced, and a running run keeps its status and its claim."""
    run = started(store)
    claim = raw.hold(run.id)
    approval = store.workflows.approvals.create(run.id, PLAN, claim=claim)
    answered = store.workflows.approvals.answer(approval.id, "approved", by="ana", scratch={"seen": True})
    assert (answered.run.status, answered.run.claim_owner, answered.run.claim_epoch) == ("running", "worker-1", 1)
    assert answered.run.scratch == {"seen": True}
    notes = ["question.asked", "question.answered"]
    assert raw.transitions(run.id)[1:] == [("running", "running", note) for note in notes]


def test_a_rejection_beside_a_claimed_run_fails_it_and_fences_the_holder(store: StateStore, raw: Raw) -> None:
    """workflows W-18, W-85."""
    run = started(store)
    claim = raw.hold(run.id)
    approval = store.workflows.approvals.create(run.id, PLAN, claim=claim)
    answered = store.workflows.approvals.answer(approval.id, "rejected", by="ana")
    assert (answered.run.status, answered.run.claim_owner, answered.run.claim_epoch) == (
        "failed",
        None,
        claim.epoch + 1,
    )


def test_a_run_paused_for_something_else_stays_paused(store: StateStore, raw: Raw) -> None:
    """workflows W-85."""
    for why in ("operator", "timer", "signal"):
        approval = paused(store)
        raw("UPDATE workflow_runs SET pause_reason = ? WHERE id = ?", why, approval.run_id)
        answered = store.workflows.approvals.answer(approval.id, "approved", by="ana")
        assert (answered.run.status, answered.run.pause_reason) == ("paused", why)


def test_a_run_paused_by_another_program_was_paused_for_its_gate(store: StateStore, raw: Raw) -> None:
    """workflows W-106: a NULL pause reason reads as gate."""
    approval = paused(store)
    raw("UPDATE workflow_runs SET pause_reason = NULL WHERE id = ?", approval.run_id)
    assert store.workflows.approvals.answer(approval.id, "approved", by="ana").run.status == "running"


def test_a_queued_run_keeps_its_place(store: StateStore, raw: Raw) -> None:
    """workflows W-85."""
    run = started(store)
    approval = store.workflows.approvals.create(run.id, PLAN)
    raw("UPDATE workflow_runs SET status = 'queued' WHERE id = ?", run.id)
    assert store.workflows.approvals.answer(approval.id, "approved", by="ana").run.status == "queued"


def test_a_gate_of_an_ended_run_takes_no_answer(store: StateStore, raw: Raw) -> None:
    """workflows W-85: rows of another program may be so."""
    run = started(store)
    approval = store.workflows.approvals.create(run.id, PLAN)
    raw("UPDATE workflow_runs SET status = 'succeeded' WHERE id = ?", run.id)
    attempts: list[Callable[[], Any]] = [
        lambda: store.workflows.approvals.answer(approval.id, "rejected", by="ana"),
        lambda: store.workflows.approvals.cancel(approval.id, by="ana", reason="obsolete"),
    ]
    for attempt in attempts:
        with pytest.raises(Conflict) as refused:
            attempt()
        assert refused.value.code == "run_status"
    assert store.workflows.approvals.get(approval.id) == approval


def test_a_cancelled_runs_gate_is_closed(store: StateStore, raw: Raw) -> None:
    """workflows W-18, W-83."""
    approval = paused(store)
    raw.execution(approval.run_id)
    store.workflows.runs.cancel(approval.run_id, by="ana", reason="stop")
    closed = store.workflows.approvals.get(approval.id)
    assert (closed.status, closed.closed_reason) == ("cancelled", "run.cancelled")
    assert not store.workflows.approvals.list_pending().items
    with pytest.raises(Conflict) as refused:
        store.workflows.approvals.answer(approval.id, "approved", by="bo")
    assert refused.value.code == "approval_cancelled"
    assert [outcome for (outcome,) in raw("SELECT outcome FROM executions")] == ["cancelled"]


def test_an_answer_in_a_transaction_that_raises_is_not_given(store: StateStore) -> None:
    """workflows case 55."""
    told: list[WorkflowRun] = []
    store.workflows.on_terminal(told.append)
    approval = paused(store)
    with undone(store) as tx:
        assert tx.workflows.approvals.answer(approval.id, "rejected", by="ana").run.status == "failed"
    assert store.workflows.approvals.get(approval.id) == approval
    assert store.workflows.runs.get(approval.run_id).status == "paused"
    assert not told


def blocking(store: StateStore, raw: Raw, run_id: str, gate: str = "second") -> Any:
    """Another gate that holds the run, as a question to a person would."""
    approval = store.workflows.approvals.create(run_id, Gate(gate, "And this?"))
    raw("UPDATE workflow_approvals SET blocks_run = ? WHERE id = ?", True, approval.id)
    return approval
