"""Approve once, act once."""

from __future__ import annotations

from typing import Any

import pytest
from support.workflows.steps import PLAN, Raw, paused, started

from lastlight_state import StateStore
from lastlight_state.errors import ClaimLost, Conflict, InvalidValue, NotFound, StaleVersion
from lastlight_state.testing import FrozenClock
from lastlight_state.workflows import Approval, Gate

ACTION = {"command": "deploy", "retries": 2}


def approved(store: StateStore, action: Any = ACTION) -> Approval:
    asked = paused(store, Gate("plan", "Go?", action=action))
    return store.workflows.approvals.answer(asked.id, "approved", by="ana", digest=asked.action_digest).approval


def test_a_consumed_gate_says_who_used_it_and_when(store: StateStore, raw: Raw, frozen_clock: FrozenClock) -> None:
    """workflows W-86: an equal action, whatever its spelling."""
    approval = approved(store)
    execution = raw.execution(approval.run_id)
    at = frozen_clock.advance(seconds=1)
    used = store.workflows.approvals.consume(
        approval.id, action={"retries": 2.0, "command": "deploy"}, execution_id=execution
    )
    assert (used.consumed_by, used.consumed_at, used.status) == (execution, at, "approved")
    frozen_clock.advance(seconds=1)
    assert store.workflows.approvals.consume(approval.id, action=ACTION, execution_id=execution) == used
    assert store.workflows.approvals.get(approval.id) == used


def test_another_execution_may_not_use_the_gate_again(store: StateStore, raw: Raw) -> None:
    """workflows W-86."""
    approval = approved(store)
    first, second = (raw.execution(approval.run_id, f"e-{i}") for i in (1, 2))
    store.workflows.approvals.consume(approval.id, action=ACTION, execution_id=first)
    with pytest.raises(Conflict) as refused:
        store.workflows.approvals.consume(approval.id, action=ACTION, execution_id=second)
    assert (refused.value.code, refused.value.details["by"]) == ("approval_consumed", first)


def test_a_changed_action_is_not_the_one_approved(store: StateStore, raw: Raw) -> None:
    """workflows W-86."""
    cases: list[Any] = [{"command": "drop"}, None]
    for action in cases:
        approval = approved(store)
        execution = raw.execution(approval.run_id)
        with pytest.raises(StaleVersion) as stale:
            store.workflows.approvals.consume(approval.id, action=action, execution_id=execution)
        assert stale.value.found == approval.action_digest
        assert store.workflows.approvals.get(approval.id) == approval


def test_a_gate_without_action_is_consumed_for_none(store: StateStore, raw: Raw) -> None:
    """workflows W-86."""
    approval = approved(store, None)
    execution = raw.execution(approval.run_id)
    with pytest.raises(StaleVersion):
        store.workflows.approvals.consume(approval.id, action=ACTION, execution_id=execution)
    assert store.workflows.approvals.consume(approval.id, action=None, execution_id=execution).consumed_by == execution


def test_only_an_approved_gate_is_used(store: StateStore, raw: Raw) -> None:
    """workflows W-86."""
    cases: list[Any] = [None, "rejected"]
    for decision in cases:
        run = started(store)
        approval = store.workflows.approvals.create(run.id, Gate("plan", "Go?", on_reject="resume"))
        if decision:
            store.workflows.approvals.answer(approval.id, decision, by="ana")
        with pytest.raises(Conflict) as refused:
            store.workflows.approvals.consume(approval.id, action=None, execution_id=raw.execution(run.id))
        assert refused.value.code == f"approval_{decision or 'pending'}"


def test_only_the_holder_acts(store: StateStore, raw: Raw) -> None:
    """workflows W-14, W-86: also when it only asks whether it may go on."""
    approval = approved(store)
    execution = raw.execution(approval.run_id)
    claim = raw.hold(approval.run_id)
    store.workflows.approvals.consume(approval.id, action=ACTION, execution_id=execution, claim=claim)
    raw.hold(approval.run_id, "worker-2")
    with pytest.raises(ClaimLost):
        store.workflows.approvals.consume(approval.id, action=ACTION, execution_id=execution, claim=claim)


def test_nobody_acts_for_a_run_that_has_ended(store: StateStore, raw: Raw) -> None:
    """workflows W-86."""
    approval = approved(store)
    execution = raw.execution(approval.run_id)
    store.workflows.runs.cancel(approval.run_id, by="ana", reason="stop")
    with pytest.raises(Conflict) as refused:
        store.workflows.approvals.consume(approval.id, action=ACTION, execution_id=execution)
    assert refused.value.code == "run_status"


def test_the_execution_that_acts_is_one_of_the_run(store: StateStore, raw: Raw) -> None:
    """workflows W-13, W-86."""
    approval = approved(store)
    with pytest.raises(NotFound) as missing:
        store.workflows.approvals.consume(approval.id, action=ACTION, execution_id="nothing")
    assert (missing.value.kind, missing.value.key) == ("execution", "nothing")
    other = raw.execution(paused(store, PLAN).run_id, "e-other")
    with pytest.raises(InvalidValue) as refused:
        store.workflows.approvals.consume(approval.id, action=ACTION, execution_id=other)
    assert refused.value.where == "execution_id"
    assert store.workflows.approvals.get(approval.id) == approval
