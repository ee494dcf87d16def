"""Writes that share commits, against the same calls with a commit each: threads and tasks, each durability."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path
from typing import Any

from benchmarks.goals import goal
from benchmarks.measure import Result, compare
from benchmarks.runs import TRIGGER
from lastlight_state import AsyncStateStore, StateStore

CALLS = 1280
CROWDS = (1, 16, 64)


def results() -> Iterator[Result]:
    """Yield the cost of writing one column of a run, each time by a call of its own."""
    for durability in ("full", "normal"):
        with tempfile.TemporaryDirectory() as folder:
            path = str(Path(folder) / "bench.db")
            with StateStore.open(path, state_dir=folder, durability=durability) as store:
                yield from _threads(store, durability)
                yield from _tasks(store, durability)


def _threads(store: StateStore, durability: str) -> Iterator[Result]:
    runs, changing = store.workflows.runs, map(str, count())
    run_id = runs.create("triage", trigger=TRIGGER, phase="start").id

    def some(calls: int) -> None:
        for _ in range(calls):
            runs.set_trace(run_id, trace_id=next(changing), span_id="s")

    for crowd in CROWDS:
        with ThreadPoolExecutor(crowd) as threads:

            def all_of_them(threads: ThreadPoolExecutor = threads, crowd: int = crowd) -> None:
                list(threads.map(some, [CALLS // crowd] * crowd))

            yield _compared(f"write, {durability}, {crowd} threads", store, all_of_them)


def _tasks(store: StateStore, durability: str) -> Iterator[Result]:
    changing = map(str, count())
    run_id = store.workflows.runs.create("triage", trigger=TRIGGER, phase="start").id
    runs = AsyncStateStore(store).workflows.runs
    loop = asyncio.new_event_loop()

    async def some(calls: int) -> None:
        for _ in range(calls):
            await runs.set_trace(run_id, trace_id=next(changing), span_id="s")

    async def many(crowd: int) -> None:
        await asyncio.gather(*(some(CALLS // crowd) for _ in range(crowd)))

    try:
        for crowd in CROWDS:

            def all_of_them(crowd: int = crowd) -> None:
                loop.run_until_complete(many(crowd))

            yield _compared(f"write, {durability}, {crowd} tasks", store, all_of_them)
    finally:
        loop.close()


def _compared(path: str, store: StateStore, work: Callable[[], object]) -> Result:
    scope: Any = store._scope

    def alone() -> None:
        scope._shares = False
        try:
            work()
        finally:
            scope._shares = True

    return compare(path, "sqlite", work, alone, goal=goal(path, "sqlite"), calls=1).divided(CALLS)
