"""Phases of one run that go on at the same time, as tasks."""

from __future__ import annotations

import asyncio

from worker.test_async_worker import at_work, new, reached

from lastlight_state.aio import AsyncStateStore
from lastlight_state.testing import Database
from lastlight_state.worker import AsyncJob, AsyncWorker


def test_phases_that_end_together_in_a_turn_are_all_kept(database: Database) -> None:
    """workflows W-195: none of them is done again after a resume."""
    calls = list[str]()

    async def review(job: AsyncJob) -> None:
        async for turn in job.loop("talk", limit=1):
            both = asyncio.Barrier(2)

            async def work(name: str, both: asyncio.Barrier = both) -> str:
                calls.append(name)
                await both.wait()
                return name

            await asyncio.gather(turn.phase("a", lambda: work("a")), turn.phase("b", lambda: work("b")))
            await turn.ask("go", "Go on?")

    async def story(store: AsyncStateStore, _: AsyncWorker) -> None:
        run = await new(store)
        await reached(store, run, "paused")
        [gate] = (await store.workflows.approvals.list_pending(run_id=run.id)).items
        await store.workflows.approvals.answer(gate.id, "approved", by="ana")
        await reached(store, run, "succeeded")

    at_work(database, review, story)
    assert sorted(calls) == ["a", "b"]
