"""A worker of coroutines drives runs as one of threads does."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any, TypeVar

import pytest

from lastlight_state.aio import AsyncStateStore
from lastlight_state.testing import Database
from lastlight_state.worker import AsyncJob, AsyncWorker, RunFailed
from lastlight_state.workflows import RunningExecution, RunOptions, Trigger, WorkflowRun

T = TypeVar("T")

SECONDS = 30
SHORT = timedelta(milliseconds=300)


async def new(store: AsyncStateStore, context: Any = None) -> WorkflowRun:
    """A run for a worker."""
    trigger, options = Trigger("issue-7", type="webhook"), RunOptions(offered=True)
    async with store.transaction() as tx:
        run = await tx.workflows.runs.create("review", trigger=trigger, phase="p", options=options, context=context)
        await tx.outputs.inputs.ensure(run.id, {"n": 1})
    return run


async def until(condition: Callable[[], Awaitable[T | None]]) -> T:
    """What it gives, once that is true."""
    async with asyncio.timeout(SECONDS):
        while not (found := await condition()):  # noqa: ASYNC110 - nothing tells when a row has changed
            await asyncio.sleep(0.01)
    return found


async def reached(store: AsyncStateStore, run: WorkflowRun, status: str) -> WorkflowRun:
    """The run, once it has this status."""

    async def look() -> WorkflowRun | None:
        found = await store.workflows.runs.get(run.id)
        return found if found.status == status else None

    return await until(look)


def at_work(
    database: Database,
    function: Callable[[AsyncJob], Awaitable[Any]],
    story: Callable[[AsyncStateStore, AsyncWorker], Awaitable[Any]],
) -> None:
    """Let a story happen beside a worker with this function, and stop the worker."""

    async def work() -> None:
        async with await AsyncStateStore.open(database.url) as store:
            worker = AsyncWorker(store, slots=2, lease=SHORT, grace=SHORT)
            worker.workflow("review", input=dict)(function)
            running = asyncio.create_task(worker.run())
            await story(store, worker)
            worker.stop()
            await asyncio.wait_for(running, SECONDS)

    asyncio.run(work())


def test_phases_are_done_once_and_a_question_pauses_the_run(database: Database) -> None:
    """workflows W-187."""
    calls = []

    async def plan() -> int:
        calls.append("plan")
        return 7

    async def review(job: AsyncJob) -> None:
        await job.emit("planned", {"n": await job.phase("plan", plan)})
        assert (await job.ask("ship", "Ship it?")).status == "approved"

    async def story(store: AsyncStateStore, worker: AsyncWorker) -> None:
        run = await new(store)
        await reached(store, run, "paused")
        assert worker.health().is_healthy
        [question] = await store.workflows.approvals.list_pending(run_id=run.id)
        await store.workflows.approvals.answer(question.id, "approved", by="ana")
        assert (await reached(store, run, "succeeded")).scratch == {"plan": 7}
        assert "planned" in [event.type for event in await store.journal.events.list(run.id)]

    at_work(database, review, story)
    assert calls == ["plan"]


def test_a_coroutine_may_fail_its_run_for_good(database: Database) -> None:
    """workflows W-187."""

    async def review(job: AsyncJob) -> None:
        raise RunFailed(f"no {job.run.context}")

    async def story(store: AsyncStateStore, _: AsyncWorker) -> None:
        assert (await reached(store, await new(store, "pull"), "failed")).error == "no pull"

    at_work(database, review, story)


@pytest.mark.parametrize("checks", [True, False])
def test_a_run_that_is_to_be_cancelled_or_given_back_leaves_its_coroutine(database: Database, *, checks: bool) -> None:
    """workflows W-187: at its next check, or where it waits after the grace."""
    began = asyncio.Event()

    async def review(job: AsyncJob) -> None:
        began.set()
        while True:
            await asyncio.sleep(0.01)
            if checks:
                job.check()

    async def story(store: AsyncStateStore, worker: AsyncWorker) -> None:
        run = await new(store)
        await began.wait()
        if checks:
            await store.workflows.runs.request_cancel(run.id, by="ana", reason="enough")
            await reached(store, run, "cancelled")
            return
        worker.stop()
        took = await until(lambda: store.workflows.claims.try_take(run.id, owner="next"))
        assert took.restart_count == 0

    at_work(database, review, story)


def test_every_step_of_a_job_is_there_for_coroutines(database: Database) -> None:
    """workflows W-187: phases of agents, turns of a loop, a signal, a sleep, an input."""
    seen: list[object] = []

    async def think(execution: RunningExecution) -> str:
        execution.session_id = "s-1"
        return "what about the tests? " * 200

    async def review(job: AsyncJob) -> None:
        async for turn in job.loop("socratic", limit=9):
            text = await turn.phase("ask", think, returns=str)
            reply = await turn.ask("reply", text[:20], kind="reply")
            if reply.response == "clear":
                seen.append(([gate.response for gate in await turn.answers()], await turn.last_output() == text))
                break
        await job.sleep(timedelta(milliseconds=50))
        merged = await job.wait_for("merged", timeout=timedelta(hours=1))
        seen.append((job.input, merged and merged.payload))

    async def story(store: AsyncStateStore, _: AsyncWorker) -> None:
        run = await new(store)
        for text in ("why", "clear"):
            await reached(store, run, "paused")
            [question] = await store.workflows.approvals.list_pending(run_id=run.id)
            await store.workflows.approvals.answer(question.id, "replied", by="ana", response=text)

        async def waits() -> bool:
            return (await store.workflows.runs.get(run.id)).waiting_for == "merged"

        await until(waits)
        await store.journal.signals.send(run.id, "merged", 7)
        assert (await reached(store, run, "succeeded")).restart_count == 0
        sessions = [one.session_id for one in await store.workflows.executions.list(run_id=run.id)]
        assert sessions == ["s-1", "s-1"]

    at_work(database, review, story)
    assert (seen[0], seen[-1]) == ((["why"], True), ({"n": 1}, 7))
