"""Requests that nobody answers in time: by a sweep, by whoever looks into the inbox, and before either."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from support.workflows.asking import SURE, WHO, asked
from support.workflows.steps import Raw, started

from lastlight_state import StateStore
from lastlight_state.errors import Conflict, InvalidValue
from lastlight_state.testing import Database, FrozenClock
from lastlight_state.workflows import NodeRef, Question, WorkflowRun

HOUR = timedelta(hours=1)
ALMOST = HOUR - timedelta(milliseconds=1)


def expiring(clock: FrozenClock, **given: Any) -> Question:
    return replace(WHO, expires_at=clock.now() + HOUR, **given)


def statuses(raw: Raw) -> list[str]:
    return [status for (status,) in raw("SELECT status FROM human_requests ORDER BY requested_at, id")]


def test_an_expiry_lets_the_run_go_on(store: StateStore, raw: Raw, frozen_clock: FrozenClock) -> None:
    """workflows W-115: inclusive; the node can be tried again."""
    request = asked(store, expiring(frozen_clock))
    frozen_clock.advance(ALMOST)
    assert store.workflows.human_requests.expire_due() == ()
    frozen_clock.advance(timedelta(milliseconds=1))
    assert store.workflows.human_requests.expire_due() == (request.id,)
    expired = store.workflows.human_requests.get(request.id)
    assert (expired.status, expired.closed_reason, expired.answered_by) == ("expired", "gate.expired", None)
    assert raw.transitions(request.run_id)[-1] == ("paused", "running", "run.resumed.gate")
    assert raw("SELECT state FROM run_nodes") == [("pending",)]
    raw.check_history(request.run_id)
    assert store.workflows.human_requests.expire_due() == ()


def test_an_expiry_that_fails_ends_the_run(store: StateStore, raw: Raw, frozen_clock: FrozenClock) -> None:
    """workflows W-115, W-18."""
    told: list[WorkflowRun] = []
    store.workflows.on_terminal(told.append)
    request = asked(store, expiring(frozen_clock, on_expiry="fail"))
    other = store.workflows.human_requests.create(request.run_id, SURE)
    frozen_clock.advance(HOUR)
    assert store.workflows.human_requests.expire_due() == (request.id,)
    run = store.workflows.runs.get(request.run_id)
    assert (run.status, run.status_reason) == ("failed", "gate.expired")
    assert run.error == "Expired: who was not answered by 2026-02-03T13:34:56.789Z"
    assert [(each.id, each.status) for each in told] == [(run.id, "failed")]
    assert store.workflows.human_requests.get(other.id).status == "cancelled"
    assert run.node_statuses == {"who": "failed", "sure": "cancelled"}
    raw.check_history(run.id)


def test_an_overdue_request_is_seen_as_expired_before_any_sweep(
    store: StateStore, raw: Raw, frozen_clock: FrozenClock
) -> None:
    """workflows W-93: nothing is written for it."""
    request = asked(store, expiring(frozen_clock))
    requests = store.workflows.human_requests
    frozen_clock.advance(ALMOST)
    assert requests.get(request.id) == request
    frozen_clock.advance(timedelta(milliseconds=1))
    seen = requests.get(request.id)
    assert (seen.status, seen.closed_reason) == ("expired", "gate.expired")
    assert requests.find(request.id) == seen
    assert [each.status for each in requests.list_for_run(request.run_id)] == ["expired"]
    assert requests.count_pending() == 0
    assert statuses(raw) == ["pending"]
    requests.expire_due()
    assert requests.get(request.id) == seen


def test_the_inbox_expires_what_is_due_before_it_lists(store: StateStore, raw: Raw, frozen_clock: FrozenClock) -> None:
    """workflows W-93: their runs go on."""
    first, second = (asked(store, expiring(frozen_clock)) for _ in range(2))
    open_one = asked(store)
    frozen_clock.advance(HOUR)
    assert store.workflows.human_requests.count_pending() == 1
    assert statuses(raw) == ["pending", "pending", "pending"]
    assert [pending.id for pending in store.workflows.human_requests.list_pending()] == [open_one.id]
    assert store.workflows.human_requests.list_pending(run_id=first.run_id).items == ()
    assert sorted(statuses(raw)) == ["expired", "expired", "pending"]
    assert {store.workflows.runs.get(each.run_id).status for each in (first, second)} == {"running"}


def test_a_view_hides_what_is_due_and_writes_nothing(every_backend: StateStore, raw: Raw, database: Database) -> None:
    """workflows W-93: nor does a store that only reads."""
    for _ in range(2):
        asked(every_backend, expiring(database.clock))
    database.clock.advance(HOUR)
    with every_backend.view() as view:
        assert view.workflows.human_requests.list_pending().items == ()
        assert view.workflows.human_requests.count_pending() == 0
    reader = database.open(read_only=True)
    assert reader.workflows.human_requests.list_pending().items == ()
    assert statuses(raw) == ["pending", "pending"]


def test_an_inbox_is_not_held_up_by_writers(every_backend: StateStore, database: Database) -> None:
    """workflows W-93: whatever is due, or this would wait for the open transaction."""
    request = asked(every_backend)
    asked(every_backend, expiring(database.clock))
    database.clock.advance(HOUR)
    other = database.open()
    with other.transaction() as tx:
        tx.workflows.runs.set_trace(request.run_id, trace_id="t", span_id="s")
        assert [pending.id for pending in every_backend.workflows.human_requests.list_pending()] == [request.id]


def test_a_bad_argument_expires_nothing(state_store: StateStore, frozen_clock: FrozenClock) -> None:
    """workflows W-119: before any statement."""
    request = asked(state_store, expiring(frozen_clock))
    frozen_clock.advance(HOUR)
    for limit in (0, 501, True, "1"):
        with pytest.raises(InvalidValue):
            state_store.workflows.human_requests.expire_due(limit=limit)  # type: ignore[arg-type]
    assert state_store.workflows.runs.get(request.run_id).status == "paused"


def test_an_expired_request_takes_no_answer(store: StateStore, frozen_clock: FrozenClock) -> None:
    """workflows W-91, W-92."""
    request = asked(store, expiring(frozen_clock))
    frozen_clock.advance(HOUR)
    store.workflows.human_requests.expire_due()
    for attempt in (
        lambda: store.workflows.human_requests.answer(request.id, "bo"),
        lambda: store.workflows.human_requests.cancel(request.id, by="ana", reason="late"),
    ):
        with pytest.raises(Conflict) as refused:
            attempt()
        assert refused.value.code == "request_expired"


def test_a_request_that_is_asked_again_after_its_time_expires(store: StateStore, frozen_clock: FrozenClock) -> None:
    """workflows W-92, W-93: the expiry is unchanged."""
    request = asked(store, expiring(frozen_clock))
    store.workflows.human_requests.answer(request.id, "bo")
    frozen_clock.advance(HOUR)
    assert store.workflows.human_requests.expire_due() == ()
    assert store.workflows.human_requests.reopen(request.id, reason="who is bo?").status == "pending"
    assert store.workflows.human_requests.get(request.id).status == "expired"
    assert store.workflows.human_requests.expire_due() == (request.id,)
    assert store.workflows.runs.get(request.run_id).status == "running"


def test_a_sweep_takes_the_longest_overdue_first(store: StateStore, frozen_clock: FrozenClock) -> None:
    """workflows W-103: bounded, across runs and within one."""
    run = started(store)
    requests = []
    for index in range(3):
        question = expiring(frozen_clock, node=NodeRef("who", index))
        requests.append(store.workflows.human_requests.create(run.id, question))
        frozen_clock.advance(seconds=1)
    frozen_clock.advance(HOUR)
    assert store.workflows.human_requests.expire_due(limit=1) == (requests[0].id,)
    assert store.workflows.human_requests.expire_due(limit=2) == (requests[1].id, requests[2].id)


def test_a_due_request_of_an_ended_run_expires_quietly(store: StateStore, raw: Raw, frozen_clock: FrozenClock) -> None:
    """workflows W-103: rows of another program must not fill the sweep for ever."""
    request = store.workflows.human_requests.create(started(store).id, expiring(frozen_clock, on_expiry="fail"))
    raw("UPDATE workflow_runs SET status = 'succeeded' WHERE id = ?", request.run_id)
    frozen_clock.advance(HOUR)
    assert store.workflows.human_requests.expire_due() == (request.id,)
    assert [reason for *_, reason in raw.transitions(request.run_id)] == ["run.created", "question.asked"]


def test_a_sweep_is_bounded(state_store: StateStore) -> None:
    """workflows W-103."""
    cases: list[int] = [0, 501, True]
    for limit in cases:
        with pytest.raises(InvalidValue):
            state_store.workflows.human_requests.expire_due(limit=limit)
