"""The contract of requests to people."""

from __future__ import annotations

from datetime import timedelta

import pytest

from lastlight_state import AlreadyAnswered, Conflict, InvalidValue, StateStore
from lastlight_state.testing.clock import FrozenClock
from lastlight_state.testing.contracts.steps import started
from lastlight_state.workflows import HumanRequest, NodeRef, Question

ASK = NodeRef("ask")


class HumanRequestsContract:
    """``store.workflows.human_requests``"""

    def test_a_request_pauses_its_run_and_an_answer_lets_it_go_on(self, store: StateStore) -> None:
        request = self._asked(store, Question(ASK, "select", "Where to?", options=["north", "süd"]))
        assert store.workflows.runs.get(request.run_id).status == "paused"
        answered = store.workflows.human_requests.answer(request.id, "süd", by="ana")
        assert (answered.request.status, answered.request.response) == ("answered", "süd")
        assert store.workflows.runs.get(request.run_id).status == "running"

    def test_an_answer_that_does_not_fit_is_refused(self, store: StateStore) -> None:
        request = self._asked(store, Question(ASK, "confirm", "Sure?"))
        with pytest.raises(InvalidValue):
            store.workflows.human_requests.answer(request.id, 1, by="ana")
        assert store.workflows.human_requests.get(request.id).status == "pending"

    def test_there_is_one_answer_until_it_is_sent_back(self, store: StateStore) -> None:
        requests = store.workflows.human_requests
        request = self._asked(store, Question(ASK, "text", "Why?"))
        requests.answer(request.id, "because", by="ana")
        with pytest.raises(AlreadyAnswered):
            requests.answer(request.id, "no idea", by="bo")
        assert requests.reopen(request.id, reason="too short").reopened == 1
        assert requests.answer(request.id, "because of the lock", by="bo").request.answered_by == "bo"

    def test_a_request_whose_time_has_come_takes_no_answer(self, store: StateStore, frozen_clock: FrozenClock) -> None:
        until = frozen_clock.now() + timedelta(minutes=5)
        request = self._asked(store, Question(ASK, "text", "Why?", expires_at=until))
        frozen_clock.advance(seconds=300)
        with pytest.raises(Conflict) as caught:
            store.workflows.human_requests.answer(request.id, "late", by="ana")
        assert caught.value.code == "request_expired"
        store.workflows.human_requests.expire_due()
        assert store.workflows.runs.get(request.run_id).status == "running"

    def _asked(self, store: StateStore, question: Question) -> HumanRequest:
        return store.workflows.human_requests.pause(started(store).id, question)
