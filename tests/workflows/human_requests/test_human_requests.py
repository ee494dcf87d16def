"""Asking people, with and without a pause; cancelling, and asking again."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest
from support.each import with_each
from support.refusal import refused
from support.workflows.asking import FORM, PERSON, SURE, WHICH, WHO, asked
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
    StateError,
)
from lastlight_state.testing import FrozenClock
from lastlight_state.workflows import NodeRef, PhaseEntry

HOUR = timedelta(hours=1)


def node_state(raw: Raw, run_id: str) -> list[tuple[Any, ...]]:
    return raw("SELECT node_id, iteration, state FROM run_nodes WHERE run_id = ?", run_id)


def test_a_pause_stores_marker_scratch_request_and_status_together(store: StateStore, raw: Raw) -> None:
    """workflows W-90."""
    run = started(store, scratch={"a": 1})
    request = store.workflows.human_requests.pause(run.id, FORM, marker=PhaseEntry("plan", True), scratch={"b": 2})
    stored = store.workflows.runs.get(run.id)
    assert (stored.status, stored.pause_reason, stored.status_reason) == ("paused", "gate", "run.paused.gate")
    assert (stored.scratch, stored.current_phase, stored.phase_count) == ({"a": 1, "b": 2}, "plan", 1)
    assert (request.status, request.blocks_run, request.schema, request.reopened) == ("pending", True, PERSON, 0)
    assert (request.kind, request.prompt, request.on_expiry) == ("form", "Who are you?", "resume")
    assert store.workflows.human_requests.get(request.id) == request
    assert store.workflows.human_requests.find(request.id) == request
    assert raw.transitions(run.id)[1:] == [("running", "paused", "run.paused.gate")]


def test_a_request_beside_a_run_leaves_it_running(store: StateStore, raw: Raw) -> None:
    """workflows W-90."""
    run = started(store)
    request = store.workflows.human_requests.create(run.id, WHICH)
    assert (request.blocks_run, request.options) == (False, ["eu", "us", 1, None])
    assert raw.transitions(run.id)[1:] == [("running", "running", "question.asked")]
    gate = paused(store)
    store.workflows.human_requests.create(gate.run_id, WHO)
    answered = store.workflows.approvals.answer(gate.id, "approved", by="ana")
    assert answered.run.status == "running"


def test_the_node_waits_for_the_person_and_then_goes_on(store: StateStore, raw: Raw) -> None:
    """workflows W-90, W-91: ``waiting_person``, then ``pending``; a node that was never put is made."""
    request = asked(store, replace(WHO, node=NodeRef("who", 2)))
    assert node_state(raw, request.run_id) == [("who", 2, "waiting_person")]
    store.workflows.human_requests.answer(request.id, "bo")
    assert node_state(raw, request.run_id) == [("who", 2, "pending")]
    store.workflows.human_requests.reopen(request.id, reason="who is bo?")
    assert node_state(raw, request.run_id) == [("who", 2, "waiting_person")]
    store.workflows.human_requests.cancel(request.id, by="ana", reason="obsolete")
    assert node_state(raw, request.run_id) == [("who", 2, "pending")]


def test_only_the_holder_asks_and_asks_again(store: StateStore, raw: Raw) -> None:
    """workflows W-14, W-92."""
    run = started(store)
    answered = store.workflows.human_requests.create(run.id, SURE)
    store.workflows.human_requests.answer(answered.id, True)
    stale = raw.hold(run.id)
    claim = raw.hold(run.id, "worker-2")
    requests = store.workflows.human_requests
    attempts: tuple[Callable[..., object], ...] = (
        partial(requests.pause, run.id, WHO),
        partial(requests.create, run.id, WHO),
        partial(requests.reopen, answered.id, reason="really?"),
    )
    for attempt in attempts:
        for presented in (stale, None):
            with pytest.raises(ClaimLost):
                attempt(claim=presented)
    assert requests.reopen(answered.id, reason="really?", claim=claim).status == "pending"
    requests.pause(run.id, WHO, claim=claim)
    with pytest.raises(ClaimLost) as lost:
        store.workflows.runs.append_phase(run.id, PhaseEntry("late", True), claim=claim)
    assert lost.value.status == "paused"


def test_asking_for_a_missing_run_stores_nothing(store: StateStore, raw: Raw) -> None:
    """workflows W-13."""
    for ask in (store.workflows.human_requests.pause, store.workflows.human_requests.create):
        with pytest.raises(NotFound) as missing:
            ask("no-such-run", WHO)
        assert (missing.value.kind, missing.value.key) == ("workflow_run", "no-such-run")
    assert not raw("SELECT 1 FROM human_requests")
    assert not raw("SELECT 1 FROM run_nodes")


def test_a_pause_that_fails_leaves_everything_as_it_was(store: StateStore, raw: Raw) -> None:
    """workflows W-81."""
    run = started(store)
    with pytest.raises(PayloadTooLarge):
        store.workflows.human_requests.pause(run.id, WHO, marker=PhaseEntry("plan", True), scratch={"a": "x" * 65_536})
    assert store.workflows.runs.get(run.id) == run
    assert not raw("SELECT 1 FROM human_requests")
    assert not raw("SELECT 1 FROM run_nodes")


@with_each("status", ["queued", "paused", "succeeded"])
def test_only_a_running_run_is_paused_for_a_request(store: StateStore, status: str) -> None:
    """workflows W-12."""
    run = started(store, status="queued" if status == "queued" else "running")
    if status == "paused":
        store.workflows.human_requests.pause(run.id, SURE)
    if status == "succeeded":
        store.workflows.runs.finish(run.id, "succeeded")
    with pytest.raises(Conflict) as conflict:
        store.workflows.human_requests.pause(run.id, WHO)
    assert (conflict.value.code, conflict.value.details["found"]) == ("run_status", status)


def test_the_same_request_again_is_the_stored_one_whatever_became_of_it(store: StateStore, raw: Raw) -> None:
    """workflows W-90: repeat-safe after a crash, and in any status."""
    request = asked(store, FORM)
    ask = store.workflows.human_requests.pause
    assert ask(request.run_id, FORM) == request
    answered = store.workflows.human_requests.answer(request.id, {"name": "bo"}).request
    assert ask(request.run_id, FORM) == answered
    again = asked(store, WHICH)
    cancelled = store.workflows.human_requests.cancel(again.id, by="ana", reason="obsolete")
    assert ask(again.run_id, WHICH) == cancelled
    store.workflows.runs.cancel(request.run_id, by="ana", reason="stop")
    assert ask(request.run_id, FORM) == answered
    assert len(raw("SELECT 1 FROM human_requests")) == 2


@with_each(
    "other",
    [
        {"prompt": "Who else?"},
        {"schema": {**PERSON, "required": []}},
        {"kind": "text", "schema": None},
        {"expires_at": datetime(2027, 1, 1, tzinfo=UTC)},
        {"on_expiry": "fail"},
    ],
)
def test_the_same_id_with_another_content_is_refused(store: StateStore, other: dict[str, Any]) -> None:
    """workflows W-90."""
    request = asked(store, FORM)
    for ask in (store.workflows.human_requests.pause, store.workflows.human_requests.create):
        with pytest.raises(AlreadyExists) as taken:
            ask(request.run_id, replace(FORM, **other))
        assert (taken.value.kind, taken.value.key) == ("human_request", request.id)


def test_the_id_is_made_of_run_node_and_iteration(store: StateStore) -> None:
    """workflows W-90."""
    run = started(store, id="r-1")
    requests = store.workflows.human_requests
    assert requests.create(run.id, WHO).id == "human:r-1:who:0"
    assert requests.create(run.id, replace(WHO, node=NodeRef("who", 1))).id == "human:r-1:who:1"
    assert requests.create(run.id, replace(WHO, id="mine")).id == "mine"


def test_an_id_past_its_limit_is_its_digest(store: StateStore) -> None:
    """workflows W-90: bytes count, and 256 of them still fit."""
    run = started(store, id="r" * 200)
    fits, longer = "é" * 23 + "n", "é" * 24
    requests = store.workflows.human_requests
    plain = requests.create(run.id, replace(WHO, node=NodeRef(fits))).id
    assert plain == f"human:{run.id}:{fits}:0"
    assert len(plain.encode()) == 256
    digest = hashlib.sha256(f"human:{run.id}:{longer}:0".encode()).hexdigest()
    assert requests.create(run.id, replace(WHO, node=NodeRef(longer))).id == digest


def test_an_id_belongs_to_one_run(store: StateStore) -> None:
    """workflows W-90."""
    question = replace(WHO, id="mine")
    asked(store, question)
    with pytest.raises(AlreadyExists):
        asked(store, question)


@with_each(
    ("question", "where"),
    [
        (replace(WHO, kind="riddle"), "question.kind"),  # type: ignore[arg-type]
        (replace(WHO, on_expiry="explode"), "question.on_expiry"),  # type: ignore[arg-type]
        (replace(WHO, prompt=" \n"), "question.prompt"),
        (replace(WHO, prompt="x" * 16_385), "question.prompt"),
        (replace(WHO, prompt="\0"), "question.prompt"),
        (replace(WHO, node=NodeRef("")), "question.node.node_id"),
        (replace(WHO, node=NodeRef("n", -1)), "question.node.iteration"),
        (replace(WHO, id="x" * 257), "question.id"),
        (replace(WHO, expires_at=datetime(2027, 1, 1)), "question.expires_at"),  # noqa: DTZ001
        (replace(WHO, options=["a"]), "question.options"),
        (replace(SURE, schema={}), "question.schema"),
        (replace(WHICH, options=None), "question.options"),
        (replace(WHICH, options=[]), "question.options"),
        (replace(WHICH, options="eu"), "question.options"),
        (replace(WHICH, options=["x" * 16_384]), "question.options"),
        (replace(FORM, schema=None), "question.schema"),
        (replace(FORM, schema={"const": "x" * 65_536}), "question.schema"),
        (replace(FORM, schema={"type": "riddle"}), "question.schema.type"),
        ("Who?", "question"),
    ],
)
def test_what_cannot_be_asked_is_refused_before_any_statement(
    state_store: StateStore, question: Any, where: str
) -> None:
    """workflows W-1, W-2, W-3, W-90."""
    with pytest.raises(InvalidValue) as conflict:
        state_store.workflows.human_requests.pause("no-such-run", question)
    assert conflict.value.where == where


def test_an_expiry_that_is_not_ahead_is_refused(store: StateStore, frozen_clock: FrozenClock) -> None:
    """workflows W-90."""
    run = started(store)
    with pytest.raises(InvalidValue) as conflict:
        store.workflows.human_requests.pause(run.id, replace(WHO, expires_at=frozen_clock.now()))
    assert conflict.value.where == "question.expires_at"
    assert store.workflows.runs.get(run.id) == run


def test_a_request_cancelled_by_an_operator_lets_the_run_go_on(store: StateStore, raw: Raw) -> None:
    """workflows W-92: repeat-safe."""
    request = asked(store)
    cancelled = store.workflows.human_requests.cancel(request.id, by="ana", reason="obsolete")
    assert (cancelled.status, cancelled.answered_by, cancelled.closed_reason) == ("cancelled", "ana", "obsolete")
    assert store.workflows.human_requests.cancel(request.id, by="bo", reason="again") == cancelled
    assert store.workflows.runs.get(request.run_id).status == "running"
    assert raw.transitions(request.run_id)[-1] == ("paused", "running", "run.resumed.gate")


def test_an_answered_request_is_not_cancelled(store: StateStore) -> None:
    """workflows W-92."""
    request = asked(store)
    answered = store.workflows.human_requests.answer(request.id, "bo", by="ana").request
    with pytest.raises(AlreadyAnswered) as conflict:
        store.workflows.human_requests.cancel(request.id, by="bo", reason="late")
    assert conflict.value.winner == answered


def test_a_cancelled_run_closes_its_requests(store: StateStore) -> None:
    """workflows W-18: not in the inbox, and answering is a conflict."""
    request = asked(store)
    beside = store.workflows.human_requests.create(request.run_id, SURE)
    store.workflows.runs.cancel(request.run_id, by="ana", reason="stop")
    for closed in (request, beside):
        stored = store.workflows.human_requests.get(closed.id)
        assert (stored.status, stored.closed_reason) == ("cancelled", "run.cancelled")
    assert store.workflows.human_requests.list_pending().items == ()
    with pytest.raises(Conflict) as conflict:
        store.workflows.human_requests.answer(request.id, "bo")
    assert conflict.value.code == "request_cancelled"


def test_an_answer_that_was_sent_back_is_given_again(store: StateStore, frozen_clock: FrozenClock) -> None:
    """workflows W-92: two answers in order; the expiry stands."""
    request = asked(store, replace(WHO, expires_at=frozen_clock.now() + HOUR))
    requests = store.workflows.human_requests
    first = requests.answer(request.id, "bo", by="ana").request
    assert (first.response, first.reopened) == ("bo", 0)
    frozen_clock.advance(seconds=1)
    reopened = requests.reopen(request.id, reason="bo has left")
    assert (reopened.status, reopened.reopened, reopened.closed_reason) == ("pending", 1, "bo has left")
    assert (reopened.response, reopened.answered_by, reopened.answered_at) == (None, None, None)
    assert (reopened.expires_at, reopened.blocks_run) == (request.expires_at, True)
    assert [pending.reopened for pending in requests.list_pending()] == [1]
    second = requests.answer(request.id, "cy", by="bo").request
    assert (second.response, second.answered_by, second.reopened) == ("cy", "bo", 1)
    assert first.answered_at is not None
    assert second.answered_at == first.answered_at + timedelta(seconds=1)


def test_a_reopened_request_holds_a_run_that_pauses_for_it(store: StateStore) -> None:
    """workflows W-85, W-92."""
    request = asked(store)
    requests = store.workflows.human_requests
    assert requests.answer(request.id, "bo").run.status == "running"
    requests.reopen(request.id, reason="who is bo?")
    gate = store.workflows.approvals.pause(request.run_id, PLAN)
    assert store.workflows.approvals.answer(gate.id, "approved", by="ana").run.status == "paused"
    assert requests.answer(request.id, "cy").run.status == "running"


def test_only_an_answered_request_of_a_run_at_work_is_asked_again(store: StateStore, frozen_clock: FrozenClock) -> None:
    """workflows W-92: expired or cancelled is a conflict; so is pending, and an ended run."""
    requests = store.workflows.human_requests
    pending = asked(store)
    cancelled = requests.cancel(asked(store).id, by="ana", reason="obsolete")
    expired = asked(store, replace(WHO, expires_at=frozen_clock.now() + HOUR))
    ended = requests.answer(asked(store).id, "bo").request
    store.workflows.runs.finish(ended.run_id, "succeeded")
    frozen_clock.advance(HOUR)
    assert requests.expire_due() == (expired.id,)
    cases = {
        pending.id: "request_pending",
        cancelled.id: "request_cancelled",
        expired.id: "request_expired",
        ended.id: "run_status",
    }
    for request_id, code in cases.items():
        before = requests.get(request_id)
        with pytest.raises(Conflict) as conflict:
            requests.reopen(request_id, reason="again")
        assert conflict.value.code == code
        assert requests.get(request_id) == before


def test_an_unknown_request_is_not_found(store: StateStore) -> None:
    """workflows W-13: only find gives None."""
    requests = store.workflows.human_requests
    calls: tuple[Callable[[], object], ...] = (
        lambda: requests.get("nothing"),
        lambda: requests.answer("nothing", "bo"),
        lambda: requests.cancel("nothing", by="ana", reason="x"),
        lambda: requests.reopen("nothing", reason="x"),
    )
    for call in calls:
        with pytest.raises(NotFound) as missing:
            call()
        assert (missing.value.kind, missing.value.key) == ("human_request", "nothing")
    assert requests.find("nothing") is None


def test_asking_in_a_transaction_is_part_of_it(store: StateStore, raw: Raw) -> None:
    """workflows W-90."""
    run = started(store)
    with undone(store) as tx:
        request = tx.workflows.human_requests.pause(run.id, WHO)
        assert tx.workflows.human_requests.answer(request.id, "bo").run.status == "running"
        with pytest.raises(StateError):
            tx.workflows.human_requests.answer(request.id, "")
        assert tx.workflows.human_requests.get(request.id).response == "bo"
    assert store.workflows.runs.get(run.id) == run
    assert not raw("SELECT 1 FROM human_requests")


@pytest.mark.parametrize("status", ["cancelled", "expired"])
def test_the_database_keeps_a_closed_request_closed(every_backend: StateStore, raw: Raw, status: str) -> None:
    """workflows G-4, G-6: whoever asks; and it is never deleted."""
    request = asked(every_backend)
    raw("UPDATE human_requests SET status = ? WHERE id = ?", status, request.id)
    for other in ("pending", "answered", "cancelled" if status == "expired" else "expired"):
        with refused():
            raw("UPDATE human_requests SET status = ? WHERE id = ?", other, request.id)
    with refused():
        raw("DELETE FROM human_requests WHERE id = ?", request.id)
    raw("UPDATE human_requests SET status = ?, closed_reason = 'x' WHERE id = ?", status, request.id)
    assert every_backend.workflows.human_requests.get(request.id).status == status


def test_the_database_lets_an_answered_request_be_asked_again(every_backend: StateStore, raw: Raw) -> None:
    """workflows G-6: only cancelled and expired are final."""
    request = asked(every_backend)
    raw("UPDATE human_requests SET status = 'answered' WHERE id = ?", request.id)
    raw("UPDATE human_requests SET status = 'pending' WHERE id = ?", request.id)
    assert every_backend.workflows.human_requests.get(request.id).status == "pending"


def test_an_adopted_kind_is_read_but_not_answered(store: StateStore, raw: Raw) -> None:
    """workflows W-1: on read an unknown word comes back as it is."""
    request = asked(store)
    raw("UPDATE human_requests SET kind = 'riddle' WHERE id = ?", request.id)
    assert store.workflows.human_requests.get(request.id).kind == "riddle"
    with pytest.raises(InvalidValue):
        store.workflows.human_requests.answer(request.id, "42")
