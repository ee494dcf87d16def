"""What a follower, a list and the command line tell of a worker's run."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from datetime import timedelta

import pytest
from support.cli.calls import lastlight_state
from worker.test_worker import ended, new, until, working

from lastlight_state import StateStore
from lastlight_state.aio import AsyncStateStore
from lastlight_state.testing import Database
from lastlight_state.worker import AsyncJob, AsyncWorker, Job, Retry, Worker

ONCE_MORE = Retry(attempts=2, pause=timedelta(0))
BROKE = "broke\nin the second line"


def on_a_thread(url: str) -> str:
    """Drive a run that fails once, waits, and fails for good; return its id."""
    tries = list[int]()
    with StateStore.open(url) as store:
        worker = Worker(store, owner="w")

        @worker.workflow("review", retry=ONCE_MORE)
        def review(job: Job) -> None:
            def build() -> int:
                tries.append(1)
                if len(tries) == 1:
                    raise ValueError(BROKE)
                return 7

            job.phase("build", build)
            job.wait_for("merged")
            job.phase("ship", lambda: int("x"))

        with working(worker):
            run = new(store)
            until(lambda: store.workflows.runs.get(run.id).waiting_for)
            store.journal.signals.send(run.id, "merged")
            ended(store, run)
    return run.id


def in_a_task(url: str) -> str:
    """Do the same with a coroutine."""
    tries = list[int]()

    async def work() -> str:
        async with await AsyncStateStore.open(url) as store:
            worker = AsyncWorker(store, owner="w")

            @worker.workflow("review", retry=ONCE_MORE)
            async def review(job: AsyncJob) -> None:
                async def build() -> int:
                    tries.append(1)
                    if len(tries) == 1:
                        raise ValueError(BROKE)
                    return 7

                async def ship() -> int:
                    return int("x")

                await job.phase("build", build)
                await job.wait_for("merged")
                await job.phase("ship", ship)

            running = asyncio.create_task(worker.run())
            with StateStore.open(url) as beside:
                run = new(beside)
                await asyncio.to_thread(until, lambda: beside.workflows.runs.get(run.id).waiting_for)
                beside.journal.signals.send(run.id, "merged")
                await asyncio.to_thread(ended, beside, run)
            worker.stop()
            await asyncio.wait_for(running, 30)
            return run.id

    return asyncio.run(work())


@pytest.mark.parametrize("driven", [on_a_thread, in_a_task])
def test_a_follower_is_told_phases_errors_retries_and_waits(database: Database, driven: Callable[[str], str]) -> None:
    """maintenance OP-94: why a run failed and what it waits for, each in one line; a list tells the same."""
    run_id = driven(database.url)
    with StateStore.open(database.url) as store:
        followed = [entry.text for entry in store.maintenance.timeline.follow(run_id, until_end=True)]
        listed = [entry.text for entry in store.maintenance.timeline.list(run_id)]
    error = "ValueError: invalid literal for int() with base 10: 'x'"
    told = [
        "phase build failed: ValueError: broke",
        "went back to the queue: try 1 of 2 failed: ValueError: broke",
        "left the queue",
        "phase build done",
        "waits for a signal: merged",
        "goes on after a signal: merged",
        f"phase ship failed: {error}",
        f"failed: {error}",
    ]
    assert [text for text in followed if text in told] == told
    assert [text for text in listed if text.startswith("review:build failed") and text.endswith("ValueError: broke")]
    assert [text for text in listed if text in told and "goes on" not in text] == [told[1], told[2], told[4], told[-1]]


def test_a_follower_goes_on_behind_a_phase(database: Database) -> None:
    """maintenance OP-94: a cursor tells no phase twice, and misses none."""
    run_id = on_a_thread(database.url)
    with StateStore.open(database.url) as store:
        entries = list(store.maintenance.timeline.follow(run_id, until_end=True))
        for number, entry in enumerate(entries):
            rest = store.maintenance.timeline.follow(run_id, after=entry.cursor, until_end=True)
            assert list(rest) == entries[number + 1 :]


def test_the_command_line_tells_why_a_run_failed(database: Database) -> None:
    """maintenance OP-94, OP-99: as lines, as JSON, and while it follows."""
    run_id = on_a_thread(database.url)
    told = lastlight_state("timeline", run_id, "--url", database.url)
    lines = [line for line in told.out.splitlines() if "review:build failed" in line]
    assert [line.endswith("ValueError: broke") for line in lines] == [True], told
    followed = lastlight_state("timeline", run_id, "--follow", "--url", database.url).out.splitlines()
    assert [line for line in followed if "phase build" in line and line.endswith("failed: ValueError: broke")]
    lines = lastlight_state("--json", "timeline", run_id, "-f", "--url", database.url).out.splitlines()
    phases = [entry["text"] for entry in map(json.loads, lines) if entry["source"] == "phase"]
    assert phases[0] == "phase build failed: ValueError: broke"
    shown = lastlight_state("show", "run", run_id, "--url", database.url).out.splitlines()
    assert [line for line in shown if "review:build" in line and line.endswith("ValueError: broke")]
