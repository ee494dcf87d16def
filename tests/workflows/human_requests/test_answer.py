"""Answering people's requests: what each kind takes, one answer, and the run after it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from support.each import with_each
from support.workflows.asking import FORM, SURE, WHICH, WHO, asked
from support.workflows.steps import PLAN, Raw, started

from lastlight_state import StateStore
from lastlight_state.errors import AlreadyAnswered, Conflict, InvalidValue, PayloadTooLarge, StaleVersion
from lastlight_state.testing import FrozenClock
from lastlight_state.workflows import Question, Trigger

HOUR = timedelta(hours=1)


def test_an_answer_is_stored_and_the_run_goes_on(store: StateStore, raw: Raw, frozen_clock: FrozenClock) -> None:
    """workflows W-91, W-85."""
    request = asked(store)
    at = frozen_clock.advance(seconds=1)
    answered = store.workflows.human_requests.answer(request.id, "bo", by="ana")
    assert not answered.repeated
    assert (answered.request.status, answered.request.response) == ("answered", "bo")
    assert (answered.request.answered_by, answered.request.answered_at) == ("ana", at)
    assert answered.request == store.workflows.human_requests.get(request.id)
    stored = store.workflows.runs.get(request.run_id)
    assert answered.run == stored.model_copy(update={"node_statuses": None})
    assert (answered.run.status, answered.run.claim_owner, answered.run.pause_reason) == ("running", None, None)
    assert raw.transitions(request.run_id)[-1] == ("paused", "running", "run.resumed.gate")
    raw.check_history(request.run_id)


@with_each(
    ("question", "response"),
    [
        (WHO, " bo\n"),
        (SURE, True),
        (SURE, False),
        (WHICH, "eu"),
        (WHICH, 1),
        (WHICH, 1.0),
        (WHICH, None),
        (replace(WHICH, options=[{"id": 1, "label": "one"}]), {"label": "one", "id": 1}),
        (FORM, {"name": "bo", "ages": [1, 2], "more": None}),
        (replace(FORM, schema={}), None),
        (replace(FORM, schema=True), ["anything", 2**53]),
    ],
)
def test_each_kind_takes_its_answers(store: StateStore, question: Question, response: Any) -> None:
    """workflows W-91."""
    request = asked(store, question)
    stored = store.workflows.human_requests.answer(request.id, response).request
    assert stored.response == response
    assert type(stored.response) is type(response) or response == 1
    assert store.workflows.human_requests.answer(request.id, response).repeated


@with_each(
    ("question", "response"),
    [
        (WHO, ""),
        (WHO, " \n\t"),
        (WHO, None),
        (WHO, 7),
        (WHO, ["bo"]),
        (WHO, "\0"),
        (WHO, "\ud800"),
        (WHO, b"bo"),
        (SURE, 1),
        (SURE, 0),
        (SURE, "true"),
        (SURE, None),
        (WHICH, "asia"),
        (WHICH, True),
        (WHICH, "1"),
        (WHICH, ["eu"]),
        (WHICH, float("nan")),
        (replace(WHICH, options=[True, "x"]), 1),
        (FORM, {}),
        (FORM, None),
        (FORM, [{}]),
    ],
)
def test_what_a_kind_does_not_take_is_refused(state_store: StateStore, question: Question, response: Any) -> None:
    """workflows W-91: nothing is written."""
    request = asked(state_store, question)
    run = state_store.workflows.runs.get(request.run_id)
    with pytest.raises(InvalidValue) as refused:
        state_store.workflows.human_requests.answer(request.id, response)
    assert refused.value.where.startswith("response")
    assert state_store.workflows.human_requests.get(request.id) == request
    assert state_store.workflows.runs.get(request.run_id) == run


def test_a_confirmation_a_choice_and_a_form_are_refused_with_their_path(store: StateStore, raw: Raw) -> None:
    """workflows W-91."""
    cases = [
        (SURE, 1, "response"),
        (WHICH, "asia", "response"),
        (FORM, {"name": "bo", "ages": [1, "two"]}, "response.ages[1]"),
        (FORM, {"ages": []}, "response.name"),
    ]
    for question, response, where in cases:
        request = asked(store, question)
        with pytest.raises(InvalidValue) as refused:
            store.workflows.human_requests.answer(request.id, response)
        assert refused.value.where == where
    assert raw("SELECT DISTINCT status FROM human_requests") == [("pending",)]
    assert raw("SELECT DISTINCT status FROM workflow_runs") == [("paused",)]


def test_every_problem_of_a_form_is_told_with_its_path(store: StateStore) -> None:
    """workflows W-91: and no text of the response."""
    request = asked(store, FORM)
    with pytest.raises(InvalidValue) as refused:
        store.workflows.human_requests.answer(request.id, {"ages": ["secret", 2, None]})
    assert set(refused.value.details["problems"]) == {
        ("response.name", "missing"),
        ("response.ages[0]", "not of type integer"),
        ("response.ages[2]", "not of type integer"),
    }
    assert "secret" not in str(refused.value)
    assert all(path in str(refused.value) for path in ("response.name", "response.ages[0]", "response.ages[2]"))


def test_a_response_has_a_limit(store: StateStore) -> None:
    """workflows W-3: 64 KiB of JSON, exactly the limit is accepted."""
    late, request = asked(store), asked(store)
    with pytest.raises(PayloadTooLarge):
        store.workflows.human_requests.answer(late.id, "é" * 32_767 + "x")
    stored = store.workflows.human_requests.answer(request.id, "é" * 32_767).request
    assert len(stored.response.encode()) == 65_536 - len('""')


def test_the_same_answer_again_is_repeated_and_any_other_lost(store: StateStore, raw: Raw) -> None:
    """workflows W-91, W-83: also long after the run went on."""
    request = asked(store, FORM)
    answer = store.workflows.human_requests.answer
    first = answer(request.id, {"name": "bo", "ages": [1]}, by="ana")
    store.workflows.runs.finish(request.run_id, "succeeded")
    again = answer(request.id, {"ages": [1.0], "name": "bo"}, by="ana")
    assert (again.repeated, again.request, again.run.status) == (True, first.request, "succeeded")
    others: list[tuple[Any, str | None]] = [
        ({"name": "cy", "ages": [1]}, "ana"),
        ({"name": "bo", "ages": [1]}, "bo"),
        ({"name": "bo", "ages": [1]}, None),
    ]
    for response, by in others:
        with pytest.raises(AlreadyAnswered) as lost:
            answer(request.id, response, by=by)
        assert lost.value.winner == first.request
    assert len(raw.transitions(request.run_id)) == 4


def test_an_answer_of_null_is_not_what_a_cancelled_request_has(store: StateStore) -> None:
    """workflows W-83, W-91: nobody has answered it, so nothing is repeated."""
    request = asked(store, WHICH)
    store.workflows.human_requests.cancel(request.id, by="ana", reason="no need")
    with pytest.raises(Conflict) as refused:
        store.workflows.human_requests.answer(request.id, None, by="ana")
    assert refused.value.code == "request_cancelled"


def test_true_and_one_are_two_answers(store: StateStore) -> None:
    """workflows W-83, W-91."""
    request = asked(store, replace(WHICH, options=[1, True]))
    store.workflows.human_requests.answer(request.id, True)
    with pytest.raises(AlreadyAnswered):
        store.workflows.human_requests.answer(request.id, 1)


def test_an_answer_at_the_expiry_is_too_late_before_any_sweep(store: StateStore, frozen_clock: FrozenClock) -> None:
    """workflows W-91: one millisecond earlier it is accepted."""
    question = replace(WHO, expires_at=frozen_clock.now() + HOUR)
    early, late = asked(store, question), asked(store, question)
    frozen_clock.advance(HOUR - timedelta(milliseconds=1))
    answered = store.workflows.human_requests.answer(early.id, "bo", by="ana").request
    assert answered.status == "answered"
    frozen_clock.advance(timedelta(milliseconds=1))
    with pytest.raises(Conflict) as refused:
        store.workflows.human_requests.answer(late.id, "bo", by="ana")
    assert (refused.value.code, refused.value.details["found"]) == ("request_expired", "expired")
    assert store.workflows.runs.get(late.run_id).status == "paused"
    assert store.workflows.human_requests.answer(early.id, "bo", by="ana").repeated


def test_a_run_goes_on_when_neither_kind_of_question_blocks_it(store: StateStore, raw: Raw) -> None:
    """workflows W-85: gates and requests are counted alike."""
    for first_is_gate in (True, False):
        request = asked(store, trigger=Trigger(f"t-{first_is_gate}"))
        gate = store.workflows.approvals.create(request.run_id, PLAN)
        raw("UPDATE workflow_approvals SET blocks_run = ? WHERE id = ?", True, gate.id)
        answers: list[Callable[[], Any]] = [
            partial(store.workflows.approvals.answer, gate.id, "approved", by="ana"),
            partial(store.workflows.human_requests.answer, request.id, "bo"),
        ]
        if not first_is_gate:
            answers.reverse()
        assert [answer().run.status for answer in answers] == ["paused", "running"]


def test_a_request_that_does_not_block_wakes_a_run_that_pauses_for_it(store: StateStore) -> None:
    """workflows W-32, W-85: any of the questions named; one that is answered already is not slept through."""
    run = started(store)
    requests = store.workflows.human_requests
    first, second = requests.create(run.id, WHO), requests.create(run.id, SURE)
    assert store.workflows.waits.pause(run.id, gates=[first.id, second.id]).status == "paused"
    assert requests.answer(second.id, True).run.status == "running"
    with pytest.raises(StaleVersion):
        store.workflows.waits.pause(run.id, gates=[first.id, second.id])
    assert store.workflows.runs.get(run.id).status == "running"


def test_an_operator_does_not_resume_past_a_request_that_blocks(store: StateStore) -> None:
    """workflows W-33."""
    request = asked(store)
    with pytest.raises(Conflict) as refused:
        store.workflows.waits.resume(request.run_id, by="ana", reason="go")
    assert (refused.value.code, list(refused.value.details["ids"])) == ("gate_pending", [request.id])


def test_a_run_that_waits_for_something_else_stays_as_it_is(store: StateStore) -> None:
    """workflows W-85: paused by an operator, queued, running."""
    requests = store.workflows.human_requests
    run = started(store)
    asked_beside = [requests.create(run.id, question) for question in (WHO, SURE)]
    assert requests.answer(asked_beside[0].id, "bo").run.status == "running"
    store.workflows.waits.pause(run.id)
    assert requests.answer(asked_beside[1].id, True).run.status == "paused"
    requeued = started(store)
    last = requests.create(requeued.id, WHO)
    store.workflows.queue.requeue(requeued.id, reason="back-pressure")
    assert requests.answer(last.id, "bo").run.status == "queued"


def test_a_request_of_an_ended_run_takes_no_answer(store: StateStore, raw: Raw) -> None:
    """workflows W-85: of another program's, which closed nothing."""
    request = store.workflows.human_requests.create(started(store).id, WHO)
    raw("UPDATE workflow_runs SET status = 'failed' WHERE id = ?", request.run_id)
    with pytest.raises(Conflict) as refused:
        store.workflows.human_requests.answer(request.id, "bo")
    assert refused.value.code == "run_status"
    assert store.workflows.human_requests.get(request.id) == request


@pytest.mark.parametrize("by", ["", "x" * 129, 7])
def test_a_responder_has_a_name_or_none(state_store: StateStore, by: Any) -> None:
    """workflows W-2."""
    request = asked(state_store)
    with pytest.raises(InvalidValue):
        state_store.workflows.human_requests.answer(request.id, "bo", by=by)
    assert state_store.workflows.human_requests.answer(request.id, "bo").request.answered_by is None
