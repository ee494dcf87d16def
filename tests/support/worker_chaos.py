"""Runs of several phases, loops, questions, sleeps and signals, under workers that are killed and a database that goes.

Each phase of a run notes its beginning in a file of its process, which no kill and no database can take back. `verdict`
compares these notes with what the database says.
"""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from sqlalchemy.engine import make_url
from support.preloaded import Program

from lastlight_state import Settings, StateStore
from lastlight_state.errors import StateError
from lastlight_state.testing.postgres import connect
from lastlight_state.workflows import RunOptions, Trigger

SLOTS = 4
#: Each phase of a run that is ever begun, in one turn or outside of loops.
PHASES = ("plan", "talk/0/draft", "talk/1/draft", "talk/2/draft", "large", "ship")

_COMMON = """
import asyncio, os, random, sys, time
from datetime import timedelta
from pathlib import Path
from lastlight_state import AsyncStateStore, Settings, StateStore
from lastlight_state.worker import AsyncWorker, Retry, Worker
from lastlight_state.workflows import Usage

url, folder, lease, longest = sys.argv[1], Path(sys.argv[2]), float(sys.argv[3]), float(sys.argv[4])
notes = os.open(folder / f"notes.{os.getpid()}", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
settings = Settings(pool_size=6, busy_timeout=1.0, statement_timeout=5.0, pool_timeout=5.0)
given = dict(slots=4, lease=timedelta(seconds=lease), grace=timedelta(seconds=5))

def note(run, path):
    os.write(notes, f"{run} {path}\\n".encode())
    return random.uniform(0, longest)

def told(execution, size):
    execution.session_id, execution.usage = execution.id, Usage(input_tokens=1)
    return "x" * size
"""
THREADS = (
    _COMMON
    + """
with StateStore.open(url, migrate=False, settings=settings) as store:
    worker = Worker(store, **given)

    @worker.workflow("story", retry=Retry(attempts=1))
    def story(job):
        def does(path, size=1):
            def work(execution):
                time.sleep(note(job.run.id, path))
                return told(execution, size)
            return work

        job.phase("plan", does("plan"))
        for turn in job.loop("talk", limit=9):
            turn.phase("draft", does(f"talk/{turn.number}/draft", 3000))
            if turn.ask("reply", "More?", kind="reply").response == "enough":
                break
        job.sleep(timedelta(milliseconds=50))
        job.wait_for("merged")
        job.phase("large", does("large", 5000))
        job.phase("ship", does("ship"))

    worker.run()
"""
)
TASKS = (
    _COMMON
    + """
async def main():
    async with await AsyncStateStore.open(url, migrate=False, settings=settings) as store:
        worker = AsyncWorker(store, **given)

        @worker.workflow("story", retry=Retry(attempts=1))
        async def story(job):
            def does(path, size=1):
                async def work(execution):
                    await asyncio.sleep(note(job.run.id, path))
                    return told(execution, size)
                return work

            await job.phase("plan", does("plan"))
            async for turn in job.loop("talk", limit=9):
                await turn.phase("draft", does(f"talk/{turn.number}/draft", 3000))
                if (await turn.ask("reply", "More?", kind="reply")).response == "enough":
                    break
            await job.sleep(timedelta(milliseconds=50))
            await job.wait_for("merged")
            await job.phase("large", does("large", 5000))
            await job.phase("ship", does("ship"))

        await worker.run()

asyncio.run(main())
"""
)


@dataclass
class Chaos:
    """Workers over a database, and what was done to them."""

    url: str
    folder: Path
    lease: float
    longest: float
    workers: list[subprocess.Popen[str]] = field(default_factory=list)
    killed: set[int] = field(default_factory=set)
    codes: Counter[int] = field(default_factory=Counter)

    def start(self) -> None:
        """Start one more worker; every second one drives tasks."""
        program = (THREADS, TASKS)[(len(self.workers) + len(self.killed) + self.codes.total()) % 2]
        log = (self.folder / "log").open("a")
        command = [sys.executable, "-c", program, self.url, str(self.folder), str(self.lease), str(self.longest)]
        self.workers.append(Program(command, stdout=log, stderr=log, text=True))
        log.close()

    def kill(self) -> None:
        """Kill the oldest worker, and start another."""
        process = self.workers.pop(0)
        self.killed.add(process.pid)
        process.kill()
        process.wait()
        self.start()

    def stop(self) -> None:
        """Stop the oldest worker by SIGTERM, and start another."""
        process = self.workers.pop(0)
        self.start()
        process.send_signal(signal.SIGTERM)
        self.codes[process.wait(60)] += 1

    def end(self) -> None:
        """Stop all workers."""
        while self.workers:
            process = self.workers.pop()
            process.send_signal(signal.SIGTERM)
            try:
                self.codes[process.wait(60)] += 1
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
                raise

    def has_begun(self, phases: int) -> bool:
        """Return whether so many phases were begun."""
        return sum(file.read_bytes().count(b"\n") for file in self.folder.glob("notes.*")) >= phases

    def notes(self) -> dict[tuple[str, str], list[int]]:
        """Return the processes that began each phase of each run."""
        found = defaultdict(list)
        for file in self.folder.glob("notes.*"):
            for line in file.read_text().splitlines():
                run_id, path = line.split()
                found[run_id, path].append(int(file.suffix[1:]))
        return found


def offer(store: StateStore, count: int) -> list[str]:
    """Return the ids of new runs, half of them in the queue."""
    made = []
    for number in range(count):
        status: dict[str, Any] = {"status": "queued"} if number % 2 else {"offered": True}
        options = RunOptions(**status, max_restarts=50)
        made.append(store.workflows.runs.create("story", trigger=Trigger(f"t-{number}"), phase="p", options=options).id)
    return made


class People:
    """A thread that answers each question, and sends each run its signal once, while the database is there."""

    def __init__(self, url: str, runs: list[str]) -> None:
        self._url = url
        self._unsent = list(runs)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._work)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _work(self) -> None:
        random.shuffle(self._unsent)
        settings = Settings(busy_timeout=0.5, statement_timeout=5.0, pool_timeout=5.0, lock_timeout=1.0)
        with StateStore.open(self._url, migrate=False, settings=settings) as store:
            while not self._ended.wait(0.02):
                with suppress(StateError):
                    self._answer(store)

    def _answer(self, store: StateStore) -> None:
        for gate in store.workflows.approvals.list_pending(limit=20):
            text = "enough" if gate.iteration == 2 else "more"
            store.workflows.approvals.answer(gate.id, "replied", by="ana", response=text)
        for run_id in self._unsent[:2]:
            store.journal.signals.send(run_id, "merged", signal_id="once")
            self._unsent.remove(run_id)


@contextmanager
def away(database: str) -> Iterator[None]:
    """Hold the SQLite file locked by another process, or let no process connect to the database on Postgres."""
    url = make_url(database if "://" in database else f"sqlite:///{database}")
    if url.get_backend_name() == "sqlite":
        program = "import sqlite3, sys; c = sqlite3.connect(sys.argv[1], timeout=30); c.execute('BEGIN EXCLUSIVE')"
        program += "; print('locked', flush=True); sys.stdin.read()"
        command = [sys.executable, "-c", program, str(url.database)]
        with Program(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout
            assert process.stdout.readline() == "locked\n"
            yield
            process.communicate("")
        return
    name = url.database
    with closing(connect(url.set(database="postgres").render_as_string(hide_password=False))) as raw:
        raw.execute(f'ALTER DATABASE "{name}" ALLOW_CONNECTIONS false')
        try:
            raw.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", (name,))
            yield
        finally:
            raw.execute(f'ALTER DATABASE "{name}" ALLOW_CONNECTIONS true')


def play(chaos: Chaos, store: StateStore, *, runs: int, kills: int, seconds_away: float) -> dict[str, Any]:
    """Drive runs to their end while workers are killed and stopped and the database goes; return the `verdict`.

    Something happens each time that so many more phases were begun.
    """
    offered = offer(store, runs)
    every = len(PHASES) * runs // (kills + 1)
    try:
        with People(chaos.url, offered):
            for _ in range(3):
                chaos.start()
            for number in range(kills):
                wait_until(partial(chaos.has_begun, every * (number + 1)), 300)
                if number % 4 == 1:
                    chaos.stop()
                elif number % 4 == 3:
                    with away(chaos.url):
                        chaos.kill()
                        time.sleep(seconds_away)
                else:
                    chaos.kill()
            wait_until(lambda: ended(store, offered), 120 + 2 * chaos.lease)
    finally:
        chaos.end()
    return verdict(store, chaos, offered)


def ended(store: StateStore, runs: list[str]) -> bool:
    """Return whether all runs have ended."""
    return all(store.workflows.runs.get(run_id).finished_at is not None for run_id in runs)


def wait_until(condition: Callable[[], object], seconds: float) -> None:
    """Wait until the condition holds, but no longer."""
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.05)


def verdict(store: StateStore, chaos: Chaos, runs: list[str]) -> dict[str, Any]:
    """Return what went wrong and how much was done: stuck runs, and phases that were done twice without a kill."""
    notes, found = chaos.notes(), [store.workflows.runs.get(run_id) for run_id in runs]
    twice, redone, odd = list[Any](), 0, list[Any]()
    for run_id in runs:
        listed = list(store.workflows.executions.list(run_id=run_id, limit=500))
        outcomes = Counter(one.outcome for one in listed)
        if outcomes["succeeded"] != len(PHASES) or set(outcomes) - {"succeeded", "interrupted"}:
            odd.append((run_id, dict(outcomes)))
        for path in PHASES:
            begun = notes[run_id, path]
            living = [pid for pid in begun if pid not in chaos.killed]
            redone += len(begun) - 1
            if len(living) > 1 or not begun:
                twice.append((run_id, path, begun))
        if sum(len(notes[run_id, path]) for path in PHASES) > len(listed):
            odd.append((run_id, "more calls than executions"))
    return {
        "stuck": [run.id for run in found if run.status not in ("succeeded", "failed")],
        "failed": [(run.id, run.error) for run in found if run.status == "failed"],
        "twice": twice,
        "odd": odd,
        "redone": redone,
        "restarts": sum(run.restart_count for run in found),
        "kills": len(chaos.killed),
        "codes": dict(chaos.codes),
        "logs": [
            one.id
            for run_id in runs
            for one in store.workflows.executions.list(run_id=run_id, limit=500)
            if one.outcome == "succeeded" and not one.session_id
        ],
    }
