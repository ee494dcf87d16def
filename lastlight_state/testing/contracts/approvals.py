"""The contract of gates."""

from __future__ import annotations

from datetime import timedelta

import pytest

from lastlight_state import AlreadyAnswered, StateStore
from lastlight_state.testing.clock import FrozenClock
from lastlight_state.testing.contracts.steps import paused


class ApprovalsContract:
    """``store.workflows.approvals``"""

    def test_a_gate_pauses_its_run_and_an_approval_lets_it_go_on(self, store: StateStore) -> None:
        approval = paused(store)
        assert store.workflows.runs.get(approval.run_id).status == "paused"
        answered = store.workflows.approvals.answer(approval.id, "approved", by="ana", response="fine")
        assert (answered.approval.status, answered.approval.answered_by) == ("approved", "ana")
        assert store.workflows.runs.get(approval.run_id).status == "running"

    def test_a_rejection_fails_the_run(self, store: StateStore) -> None:
        approval = paused(store)
        store.workflows.approvals.answer(approval.id, "rejected", by="ana")
        assert store.workflows.runs.get(approval.run_id).status == "failed"

    def test_there_is_one_answer_and_the_loser_learns_it(self, store: StateStore) -> None:
        approval = paused(store)
        store.workflows.approvals.answer(approval.id, "approved", by="ana")
        with pytest.raises(AlreadyAnswered) as caught:
            store.workflows.approvals.answer(approval.id, "rejected", by="bo")
        assert (caught.value.winner.status, caught.value.winner.answered_by) == ("approved", "ana")

    def test_a_gate_whose_time_has_come_expires(self, store: StateStore, frozen_clock: FrozenClock) -> None:
        approval = paused(store, expires_at=frozen_clock.now() + timedelta(minutes=5))
        frozen_clock.advance(timedelta(minutes=6))
        assert approval.id in store.workflows.approvals.expire_due()
        assert store.workflows.approvals.get(approval.id).status == "expired"
