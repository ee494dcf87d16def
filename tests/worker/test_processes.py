"""Workers in processes of their own, which are stopped and killed."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from support.preloaded import Program
from worker.test_worker import ended, new, until

from lastlight_state import StateStore
from lastlight_state.testing import Database

SYNC = """
import faulthandler, sys, time
from datetime import timedelta
from lastlight_state import StateStore
from lastlight_state.worker import Worker

faulthandler.enable()
with StateStore.open(sys.argv[1], migrate=False) as store:
    worker = Worker(store, lease=timedelta(seconds=1), grace=timedelta(seconds=0.2))

    @worker.workflow("review")
    def review(job):
        job.phase("plan", lambda: 7)
        def ship():
            print("at work", flush=True)
            if sys.argv[2] == "hang":
                time.sleep(600)
        job.phase("ship", ship)

    worker.run()
"""
ASYNC = """
import asyncio, faulthandler, sys
from datetime import timedelta
from lastlight_state import AsyncStateStore
from lastlight_state.worker import AsyncWorker

async def main():
    async with await AsyncStateStore.open(sys.argv[1], migrate=False) as store:
        worker = AsyncWorker(store, lease=timedelta(seconds=1), grace=timedelta(seconds=0.2))

        @worker.workflow("review")
        async def review(job):
            async def plan():
                return 7
            async def ship():
                print("at work", flush=True)
                if sys.argv[2] == "hang":
                    await asyncio.sleep(600)
            await job.phase("plan", plan)
            await job.phase("ship", ship)

        await worker.run()

faulthandler.enable()
asyncio.run(main())
"""
PROGRAMS = pytest.mark.parametrize("program", [SYNC, ASYNC], ids=["threads", "tasks"])
SECONDS = 30


@contextmanager
def worker(program: str, database: Database, mode: str) -> Iterator[subprocess.Popen[str]]:
    """A worker in a process of its own."""
    command = [sys.executable, "-c", program, database.url, mode]
    with Program(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def code(process: subprocess.Popen[str], seconds: float = SECONDS) -> int:
    """Return its exit code. One that does not end in time writes where each of its threads is."""
    try:
        return process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGABRT)
        process.wait(SECONDS)
        raise


def at_work(process: subprocess.Popen[str]) -> None:
    """Wait until it is in the middle of a phase."""
    assert process.stdout
    assert process.stdout.readline() == "at work\n"


@PROGRAMS
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_in_the_middle_of_a_phase_gives_the_run_back_at_no_restart(
    database: Database, program: str, number: signal.Signals
) -> None:
    """workflows W-184: another worker goes on at once, and the process ends as it should."""
    with StateStore.open(database.url) as store, worker(program, database, "hang") as first:
        run = new(store)
        at_work(first)
        first.send_signal(number)
        assert code(first) == 0
        assert store.workflows.runs.get(run.id).status == "running"
        with worker(program, database, "go") as second:
            done = ended(store, run)
            second.send_signal(number)
            assert code(second) == 0
    assert (done.status, done.restart_count, done.scratch) == ("succeeded", 0, {"plan": 7, "ship": None})


@PROGRAMS
def test_a_worker_that_was_killed_costs_a_restart_and_its_execution_is_interrupted(
    database: Database, program: str
) -> None:
    """workflows W-188."""
    with StateStore.open(database.url) as store, worker(program, database, "hang") as first:
        run = new(store)
        at_work(first)
        first.kill()
        first.wait(SECONDS)
        with worker(program, database, "go") as second:
            done = ended(store, run)
            second.terminate()
            assert code(second) == 0
        outcomes = [execution.outcome for execution in store.workflows.executions.list(run_id=run.id)]
    assert (done.status, done.restart_count) == ("succeeded", 1)
    assert outcomes == ["succeeded", "interrupted", "succeeded"]


@PROGRAMS
def test_a_worker_that_waits_ends_at_once(database: Database, program: str) -> None:
    """workflows W-184."""
    with StateStore.open(database.url) as store, worker(program, database, "go") as process:
        ended(store, new(store))
        until(lambda: not store.workflows.claims.take_next(owner="me"))
        process.terminate()
        assert code(process, 5) == 0
