"""Gates under many hands: threads of one process, and several processes."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from support.workflows.crew import Crew
from support.workflows.steps import PLAN, Raw, paused, started, together

from lastlight_state import AsyncStateStore, StateStore
from lastlight_state.errors import AlreadyAnswered, AlreadyExists, Conflict
from lastlight_state.testing import Database, racing
from lastlight_state.workflows import Answered, Approval, Gate

Rounds = pytest.mark.parametrize("rounds", [15, pytest.param(200, marks=pytest.mark.soak)])


def test_of_fifty_responders_one_wins(every_backend: StateStore, raw: Raw) -> None:
    """workflows W-83, case 2."""
    approval = paused(every_backend)
    answers = together(
        [
            partial(every_backend.workflows.approvals.answer, approval.id, _decision(index), by=f"person-{index}")
            for index in range(50)
        ]
    )
    [won] = [answer for answer in answers if isinstance(answer, Answered)]
    lost = [answer for answer in answers if answer is not won]
    assert {type(answer) for answer in lost} == {AlreadyAnswered}, lost
    assert all(answer.winner == won.approval for answer in lost if isinstance(answer, AlreadyAnswered))
    assert won.run.status == ("running" if won.approval.status == "approved" else "failed")
    assert every_backend.workflows.runs.get(won.run.id) == won.run
    assert len(raw.transitions(won.run.id)) == 3
    raw.check_history(won.run.id)


ANSWER = """
from concurrent.futures import ThreadPoolExecutor
from lastlight_state import StateStore
from lastlight_state.errors import AlreadyAnswered

def answer(thread):
    try:
        answered = store.workflows.approvals.answer(
            approval_id, "rejected" if thread % 2 else "approved", by=f"{me}-{thread}", response=me
        )
    except AlreadyAnswered as lost:
        return ["lost", lost.winner.answered_by]
    return ["won", answered.approval.answered_by]

url, me, approval_id, threads = arguments
with StateStore.open(url, migrate=False) as store, ThreadPoolExecutor(threads) as pool:
    ready()
    result = list(pool.map(answer, range(threads)))
"""


@pytest.mark.parametrize("threads", [4, pytest.param(50, marks=pytest.mark.soak)])
def test_of_four_processes_that_answer_one_wins(fresh_database: Database, crew: Crew, threads: int) -> None:
    """workflows W-83, case 2."""
    store, raw = fresh_database.open(), Raw(fresh_database)
    approval = paused(store)
    told = crew.race(ANSWER, *([fresh_database.url, f"p{index}", approval.id, threads] for index in range(4)))
    outcomes = [outcome for process in told for outcome in process]
    won = store.workflows.approvals.get(approval.id)
    assert sorted(outcome for outcome, _ in outcomes) == ["lost"] * (4 * threads - 1) + ["won"]
    assert {responder for _, responder in outcomes} == {won.answered_by}
    run = store.workflows.runs.get(approval.run_id)
    assert run.status == ("running" if won.status == "approved" else "failed")
    assert len(raw.transitions(run.id)) == 3
    raw.check_history(run.id)


@Rounds
def test_two_last_answers_at_one_instant_never_leave_the_run_paused(
    every_backend: StateStore, raw: Raw, rounds: int
) -> None:
    """workflows W-10, W-85, case 3."""
    for _ in range(rounds):
        first = paused(every_backend)
        second = every_backend.workflows.approvals.create(first.run_id, Gate("second", "And this?"))
        raw("UPDATE workflow_approvals SET blocks_run = ? WHERE id = ?", True, second.id)
        answers = together(
            [
                partial(every_backend.workflows.approvals.answer, gate.id, "approved", by=gate.gate)
                for gate in (first, second)
            ]
        )
        assert sorted(answer.run.status for answer in answers if isinstance(answer, Answered)) == ["paused", "running"]
        assert every_backend.workflows.runs.get(first.run_id).status == "running"
        raw.check_history(first.run_id)


@Rounds
def test_an_answer_and_a_cancel_at_one_instant_end_in_one_of_them(
    every_backend: StateStore, raw: Raw, rounds: int
) -> None:
    """workflows W-10, W-18."""
    for _ in range(rounds):
        approval = paused(every_backend)
        both: list[Callable[[], object]] = [
            partial(every_backend.workflows.approvals.answer, approval.id, "approved", by="ana"),
            partial(every_backend.workflows.runs.cancel, approval.run_id, by="bo", reason="stop"),
        ]
        answered, cancelled = together(both)
        assert not isinstance(cancelled, BaseException)
        run = every_backend.workflows.runs.get(approval.run_id)
        gate = every_backend.workflows.approvals.get(approval.id)
        if isinstance(answered, Answered):
            assert (run.status, gate.status) == ("cancelled", "approved")
        else:
            assert isinstance(answered, Conflict)
            assert (answered.code, gate.status) == ("approval_cancelled", "cancelled")
        raw.check_history(run.id)


def test_of_many_pauses_one_opens_its_gate(every_backend: StateStore, raw: Raw) -> None:
    """workflows W-81."""
    run = started(every_backend)
    pauses = together([partial(every_backend.workflows.approvals.pause, run.id, PLAN) for _ in range(8)])
    [won] = [outcome for outcome in pauses if isinstance(outcome, Approval)]
    assert all(isinstance(outcome, Conflict) for outcome in pauses if outcome is not won)
    assert [gate.id for gate in every_backend.workflows.approvals.list_for_run(run.id)] == [won.id]
    raw.check_history(run.id)


def test_one_gate_id_for_two_runs_is_given_once(every_backend: StateStore) -> None:
    """workflows W-81: the runs' locks do not meet, the id does."""
    runs = [started(every_backend) for _ in range(8)]
    gate = Gate("plan", "Go?", id="gate-1")
    pauses = together([partial(every_backend.workflows.approvals.pause, run.id, gate) for run in runs])
    [won] = [outcome for outcome in pauses if isinstance(outcome, Approval)]
    assert all(isinstance(outcome, AlreadyExists) for outcome in pauses if outcome is not won)
    statuses = {run.id: every_backend.workflows.runs.get(run.id).status for run in runs}
    assert [run_id for run_id, status in statuses.items() if status == "paused"] == [won.run_id]


def test_of_two_executions_one_uses_the_approval(every_backend: StateStore, raw: Raw) -> None:
    """workflows W-86: approve once, act once."""
    approval = paused(every_backend, Gate("plan", "Go?", action={"a": 1}))
    run_id = approval.run_id
    every_backend.workflows.approvals.answer(approval.id, "approved", by="ana", digest=approval.action_digest)
    executions = [raw.execution(run_id, f"e-{index}") for index in range(8)]
    consume = every_backend.workflows.approvals.consume
    uses = together([partial(consume, approval.id, action={"a": 1}, execution_id=each) for each in executions])
    [won] = [use for use in uses if isinstance(use, Approval)]
    lost = [use for use in uses if isinstance(use, Conflict)]
    assert [use.code for use in lost] == ["approval_consumed"] * 7
    assert {use.details["by"] for use in lost} == {won.consumed_by}


def test_two_sweeps_expire_each_gate_once(every_backend: StateStore, raw: Raw, database: Database) -> None:
    """workflows W-87."""
    expires_at = database.clock.advance(seconds=60)
    database.clock.advance(seconds=-60)
    gates = [paused(every_backend, Gate("plan", "Go?", expires_at=expires_at)) for _ in range(10)]
    database.clock.advance(seconds=60)
    sweeps: list[Any] = together([every_backend.workflows.approvals.expire_due for _ in range(4)])
    assert sorted(approval_id for sweep in sweeps for approval_id in sweep) == sorted(gate.id for gate in gates)
    for gate in gates:
        raw.check_history(gate.run_id)


def test_a_cancelled_answer_is_stored_or_not_and_a_retry_says_which(every_backend: StateStore) -> None:
    """workflows case 65."""
    approvals = [paused(every_backend) for _ in range(20)]

    async def answer_and_cancel(store: AsyncStateStore, approval: Approval, begun: bool) -> Answered:
        under_way, go_on = threading.Event(), threading.Event()

        def hold() -> None:
            under_way.set()
            go_on.wait(30)

        with racing(every_backend) as race:
            if begun:
                race.before(1, hold)
            answering = asyncio.ensure_future(store.workflows.approvals.answer(approval.id, "approved", by="ana"))
            if begun:
                await asyncio.to_thread(under_way.wait, 10)
            answering.cancel()
            go_on.set()
            with pytest.raises(asyncio.CancelledError):
                await answering
        stored = await store.workflows.approvals.get(approval.id)
        again = await store.workflows.approvals.answer(approval.id, "approved", by="ana")
        assert again.repeated == (stored.status == "approved")
        return again

    async def go() -> list[Answered]:
        store = AsyncStateStore(every_backend)
        return [await answer_and_cancel(store, approval, bool(turn % 2)) for turn, approval in enumerate(approvals)]

    retried = asyncio.run(go())
    assert {again.approval.status for again in retried} == {"approved"}
    assert {again.run.status for again in retried} == {"running"}
    assert len({again.repeated for again in retried}) == 2  # cancelled before it began, and while it was under way


def _decision(index: int) -> Any:
    return "rejected" if index % 2 else "approved"
