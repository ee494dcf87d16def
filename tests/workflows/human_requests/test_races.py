"""Requests to people under many hands."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from support.workflows.asking import SURE, WHO, asked
from support.workflows.crew import Crew
from support.workflows.steps import PLAN, Raw, started, together

from lastlight_state import AsyncStateStore, StateStore
from lastlight_state.errors import AlreadyAnswered, Conflict, StaleVersion
from lastlight_state.testing import Database, racing
from lastlight_state.workflows import Answered, AnsweredRequest, HumanRequest, WorkflowRun

Rounds = pytest.mark.parametrize("rounds", [10, pytest.param(200, marks=pytest.mark.soak)])


def test_of_fifty_responders_one_wins(every_backend: StateStore, raw: Raw) -> None:
    """workflows W-91, W-83, case 2."""
    request = asked(every_backend)
    answer = every_backend.workflows.human_requests.answer
    answers = together([partial(answer, request.id, f"r{index % 3}", by=f"person-{index}") for index in range(50)])
    [won] = [outcome for outcome in answers if isinstance(outcome, AnsweredRequest)]
    lost = [outcome for outcome in answers if isinstance(outcome, AlreadyAnswered)]
    assert len(lost) == 49
    assert all(outcome.winner == won.request for outcome in lost)
    assert won.run.status == "running"
    assert len(raw.transitions(won.run.id)) == 3
    raw.check_history(won.run.id)


ANSWER = """
from concurrent.futures import ThreadPoolExecutor
from lastlight_state import StateStore
from lastlight_state.errors import AlreadyAnswered

def answer(thread):
    try:
        answered = store.workflows.human_requests.answer(request_id, me, by=f"{me}-{thread}")
    except AlreadyAnswered as lost:
        return ["lost", lost.winner.answered_by]
    return ["won", answered.request.answered_by]

url, me, request_id, threads = arguments
with StateStore.open(url, migrate=False) as store, ThreadPoolExecutor(threads) as pool:
    ready()
    result = list(pool.map(answer, range(threads)))
"""


@pytest.mark.soak
def test_of_four_processes_that_answer_one_wins(fresh_database: Database, crew: Crew) -> None:
    """workflows W-91, W-83, case 2: gates, which take the same way, race in processes in every run."""
    threads = 50
    store, raw = fresh_database.open(), Raw(fresh_database)
    request = asked(store)
    told = crew.race(ANSWER, *([fresh_database.url, f"p{index}", request.id, threads] for index in range(4)))
    outcomes = [outcome for process in told for outcome in process]
    won = store.workflows.human_requests.get(request.id)
    assert sorted(outcome for outcome, _ in outcomes) == ["lost"] * (4 * threads - 1) + ["won"]
    assert {responder for _, responder in outcomes} == {won.answered_by}
    assert store.workflows.runs.get(request.run_id).status == "running"
    raw.check_history(request.run_id)


@Rounds
def test_a_gate_and_a_request_answered_at_one_instant_never_leave_the_run_paused(
    every_backend: StateStore, raw: Raw, rounds: int
) -> None:
    """workflows W-10, W-85, case 3."""
    for _ in range(rounds):
        request = asked(every_backend)
        gate = every_backend.workflows.approvals.create(request.run_id, PLAN)
        raw("UPDATE workflow_approvals SET blocks_run = ? WHERE id = ?", True, gate.id)
        both: list[Callable[[], Any]] = [
            partial(every_backend.workflows.approvals.answer, gate.id, "approved", by="ana"),
            partial(every_backend.workflows.human_requests.answer, request.id, "bo"),
        ]
        answers = together(both)
        statuses = [answer.run.status for answer in answers if isinstance(answer, Answered | AnsweredRequest)]
        assert sorted(statuses) == ["paused", "running"]
        assert every_backend.workflows.runs.get(request.run_id).status == "running"
        raw.check_history(request.run_id)


@Rounds
def test_an_answer_is_not_slept_through_by_the_pause_for_it(every_backend: StateStore, raw: Raw, rounds: int) -> None:
    """workflows W-32, case 3."""
    for _ in range(rounds):
        request = every_backend.workflows.human_requests.create(started(every_backend).id, WHO)
        both: list[Callable[[], Any]] = [
            partial(every_backend.workflows.waits.pause, request.run_id, gates=[request.id]),
            partial(every_backend.workflows.human_requests.answer, request.id, "bo"),
        ]
        paused, answered = together(both)
        assert isinstance(answered, AnsweredRequest)
        assert isinstance(paused, WorkflowRun | StaleVersion)
        assert every_backend.workflows.runs.get(request.run_id).status == "running"
        raw.check_history(request.run_id)


@Rounds
def test_an_answer_and_a_cancel_at_one_instant_end_in_one_of_them(
    every_backend: StateStore, raw: Raw, rounds: int
) -> None:
    """workflows W-10, W-18."""
    for _ in range(rounds):
        request = asked(every_backend)
        both: list[Callable[[], object]] = [
            partial(every_backend.workflows.human_requests.answer, request.id, "bo"),
            partial(every_backend.workflows.runs.cancel, request.run_id, by="bo", reason="stop"),
        ]
        answered, cancelled = together(both)
        assert not isinstance(cancelled, BaseException)
        stored = every_backend.workflows.human_requests.get(request.id)
        assert every_backend.workflows.runs.get(request.run_id).status == "cancelled"
        if isinstance(answered, AnsweredRequest):
            assert stored.status == "answered"
        else:
            assert isinstance(answered, Conflict)
            assert (answered.code, stored.status) == ("request_cancelled", "cancelled")
        raw.check_history(request.run_id)


def test_of_many_that_ask_the_same_all_get_the_one_request(every_backend: StateStore, raw: Raw) -> None:
    """workflows W-90: repeat-safe, however many at once."""
    run = started(every_backend)
    asking = together([partial(every_backend.workflows.human_requests.pause, run.id, SURE) for _ in range(8)])
    first = asking[0]
    assert isinstance(first, HumanRequest)
    assert all(request == first for request in asking)
    assert len(raw("SELECT 1 FROM human_requests")) == 1
    assert len(raw.transitions(run.id)) == 2


def test_sweeps_at_once_expire_each_request_once(every_backend: StateStore, raw: Raw, database: Database) -> None:
    """workflows W-93."""
    expires_at = database.clock.advance(seconds=60)
    database.clock.advance(seconds=-60)
    requests = [asked(every_backend, replace(WHO, expires_at=expires_at)) for _ in range(10)]
    database.clock.advance(seconds=60)
    swept = together([every_backend.workflows.human_requests.expire_due for _ in range(4)])
    assert not [outcome for outcome in swept if isinstance(outcome, BaseException)]
    expired = [each for ids in swept if not isinstance(ids, BaseException) for each in ids]
    assert sorted(expired) == sorted(request.id for request in requests)
    for request in requests:
        assert [reason for *_, reason in raw.transitions(request.run_id)][-1] == "run.resumed.gate"
        raw.check_history(request.run_id)


def test_a_cancelled_answer_is_stored_or_not_and_a_retry_says_which(every_backend: StateStore) -> None:
    """workflows case 65."""
    requests = [asked(every_backend) for _ in range(20)]

    async def answer_and_cancel(store: AsyncStateStore, request: HumanRequest, begun: bool) -> AnsweredRequest:
        under_way, go_on = threading.Event(), threading.Event()

        def hold() -> None:
            under_way.set()
            go_on.wait(30)

        with racing(every_backend) as race:
            if begun:
                race.before(1, hold)
            answering = asyncio.ensure_future(store.workflows.human_requests.answer(request.id, "bo", by="ana"))
            if begun:
                await asyncio.to_thread(under_way.wait, 10)
            answering.cancel()
            go_on.set()
            with pytest.raises(asyncio.CancelledError):
                await answering
        stored = await store.workflows.human_requests.get(request.id)
        again = await store.workflows.human_requests.answer(request.id, "bo", by="ana")
        assert again.repeated == (stored.status == "answered")
        return again

    async def go() -> list[AnsweredRequest]:
        store = AsyncStateStore(every_backend)
        return [await answer_and_cancel(store, request, bool(turn % 2)) for turn, request in enumerate(requests)]

    retried = asyncio.run(go())
    assert {again.run.status for again in retried} == {"running"}
    assert len({again.repeated for again in retried}) == 2  # cancelled before it began, and while it was under way
