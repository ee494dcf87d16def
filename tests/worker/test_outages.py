"""A database that is away while a run is driven: each step waits for it, and nothing is done or counted twice."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from datetime import timedelta
from functools import wraps
from typing import Any

import pytest
from worker.test_worker import ended, new, until, working

from lastlight_state import StateStore
from lastlight_state.aio import AsyncStateStore
from lastlight_state.errors import BackendBusy, BackendUnavailable
from lastlight_state.testing import Database
from lastlight_state.worker import AsyncJob, AsyncWorker, Job, Retry, Worker, common
from lastlight_state.workflows import WorkflowRun
from lastlight_state.workflows.approvals import Approvals
from lastlight_state.workflows.executions import Executions
from lastlight_state.workflows.loops import Loops
from lastlight_state.workflows.runs import Runs
from lastlight_state.workflows.waits import Waits

ONCE = Retry(attempts=1)
VERBS = [
    (Executions, "start"),
    (Executions, "finish_phase"),
    (Loops, "find"),
    (Loops, "advance"),
    (Waits, "pause"),
    (Approvals, "pause"),
    (Runs, "finish"),
]


@pytest.fixture(autouse=True)
def little_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(common, "PAUSE_SECONDS", 0.01)


def failing_once(monkeypatch: pytest.MonkeyPatch, of: type, verb: str, *, outcome: str) -> list[str]:
    """Let the verb fail once: before it does anything, or when all is stored. Returns a list that is empty then."""
    real, left = getattr(of, verb), [outcome]

    @wraps(real)  # the store looks whether it takes a claim
    def call(*given: Any, **named: Any) -> Any:
        if left == ["none"]:
            left.clear()
            raise BackendBusy("busy")
        found = real(*given, **named)
        if left:
            left.clear()
            raise BackendUnavailable("gone", outcome="unknown")
        return found

    monkeypatch.setattr(of, verb, call)
    return left


def on_a_thread(database: Database, calls: list[str]) -> WorkflowRun:
    """Drive a run through every kind of step; return how it ended."""
    with StateStore.open(database.url) as store:
        worker = Worker(store)

        @worker.workflow("review", retry=ONCE)
        def review(job: Job) -> None:
            for turn in job.loop("talk", limit=2):
                turn.phase("draft", lambda: calls.append("draft"))
            job.sleep(timedelta(milliseconds=1))
            job.ask("ship", "Ship it?")
            job.phase("ship", lambda: calls.append("ship"))

        with working(worker):
            return answered_beside(database)


def answered_beside(database: Database) -> WorkflowRun:
    """Offer a run, answer its question, and return how it ended."""
    with StateStore.open(database.url) as store:
        run = new(store)
        until(lambda: store.workflows.approvals.list_pending(run_id=run.id).items)
        [gate] = store.workflows.approvals.list_pending(run_id=run.id)
        store.workflows.approvals.answer(gate.id, "approved", by="ana")
        return ended(store, run)


def in_a_task(database: Database, calls: list[str]) -> WorkflowRun:
    """Do the same with a coroutine."""

    async def work() -> WorkflowRun:
        async with await AsyncStateStore.open(database.url) as store:
            worker = AsyncWorker(store)

            @worker.workflow("review", retry=ONCE)
            async def review(job: AsyncJob) -> None:
                async def draft() -> None:
                    calls.append("draft")

                async def ship() -> None:
                    calls.append("ship")

                async for turn in job.loop("talk", limit=2):
                    await turn.phase("draft", draft)
                await job.sleep(timedelta(milliseconds=1))
                await job.ask("ship", "Ship it?")
                await job.phase("ship", ship)

            running = asyncio.create_task(worker.run())
            # On a thread: a write here would wait for a transaction of the worker, which needs this loop to go on.
            found = await asyncio.to_thread(answered_beside, database)
            worker.stop()
            await asyncio.wait_for(running, 30)
            return found

    return asyncio.run(work())


@pytest.mark.logs("waits for the database")
@pytest.mark.parametrize("driven", [on_a_thread, in_a_task])
@pytest.mark.parametrize("outcome", ["none", "unknown"])
@pytest.mark.parametrize(("of", "verb"), VERBS, ids=lambda one: getattr(one, "__name__", one))
def test_a_step_outlasts_a_database_that_is_away(
    database: Database,
    monkeypatch: pytest.MonkeyPatch,
    of: type,
    verb: str,
    outcome: str,
    driven: Callable[[Database, list[str]], WorkflowRun],
) -> None:
    """workflows W-220: an outage is no failed try, also where nobody knows whether the call was carried out."""
    left, calls = failing_once(monkeypatch, of, verb, outcome=outcome), list[str]()
    run = driven(database, calls)
    assert (run.status, run.restart_count, run.error, left) == ("succeeded", 0, None, [])
    assert calls == ["draft", "draft", "ship"]
    assert [entry.phase for entry in run.phase_history] == ["talk.draft", "talk.draft", "ship"]


def test_a_worker_leaves_leases_to_their_holders_after_a_long_outage(
    every_backend: StateStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """workflows W-220: for half a lease, because the holders could not renew them either."""
    worker, takes = Worker(every_backend, lease=timedelta(hours=1)), list[Any]()
    worker.workflow("review")(lambda _: None)
    monkeypatch.setattr(type(every_backend.workflows.claims), "take_next", lambda *_, **given: takes.append(given))
    worker._note_outage(time.monotonic() - 3_600)
    with working(worker):
        queued = ended(every_backend, new(every_backend, queued=True))
    assert (queued.status, takes) == ("succeeded", [])


def test_a_short_outage_keeps_no_run_waiting(every_backend: StateStore) -> None:
    """workflows W-220."""
    worker = Worker(every_backend, lease=timedelta(hours=1))
    worker.workflow("review")(lambda _: None)
    worker._note_outage(time.monotonic() - 60)
    with working(worker):
        assert ended(every_backend, new(every_backend)).status == "succeeded"
