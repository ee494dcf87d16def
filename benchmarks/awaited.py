"""Awaited calls, alone and with 16 tasks, against the same driver code called directly."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from itertools import count

from benchmarks.databases import Side
from benchmarks.goals import goal
from benchmarks.measure import Result, compare
from benchmarks.runs import TRIGGER
from lastlight_state import AsyncStateStore

CALLS, TASKS = 320, 16


def results(side: Side) -> Iterator[Result]:
    """One get, one write, and writes from many tasks."""
    store = side.store
    run_id = store.workflows.runs.create("triage", trigger=TRIGGER, phase="start").id
    runs = AsyncStateStore(store).workflows.runs
    every = ", ".join(type(store.workflows.runs.get(run_id)).model_fields)
    get = side.read(f"SELECT {every} FROM workflow_runs WHERE id = ?", lambda: (run_id,))
    update = "UPDATE workflow_runs SET trace_id = ?, span_id = ? WHERE id = ?"
    changing = map(str, count())
    write = _alone(side, update, lambda: (next(changing), "s", run_id))

    def trace() -> Awaitable[None]:
        return runs.set_trace(run_id, trace_id=next(changing), span_id="s")

    loop = asyncio.new_event_loop()
    try:
        for path, call, raw, tasks in (
            ("awaited get", lambda: runs.get(run_id), get, 1),
            ("awaited write", trace, write, 1),
            ("awaited write, 16 tasks", trace, write, TASKS),
        ):
            yield _awaited(side, path, loop, call, raw, tasks)
    finally:
        loop.close()


def _alone(side: Side, text: str, values: Callable[[], Sequence[object]]) -> Callable[[], object]:
    """The write as one would write it by hand: in autocommit on SQLite, between BEGIN and COMMIT on Postgres."""
    if side.name == "postgresql":
        return side.unit((text, values))
    sql, execute = side.sql(text), side.driver.execute
    return lambda: execute(sql, values())


def _awaited(
    side: Side,
    path: str,
    loop: asyncio.AbstractEventLoop,
    call: Callable[[], Awaitable[object]],
    raw: Callable[[], object],
    tasks: int,
) -> Result:
    async def one() -> None:
        for _ in range(CALLS // tasks):
            await call()

    async def all_of_them() -> None:
        await asyncio.gather(*(one() for _ in range(tasks)))

    def many_raw() -> None:
        for _ in range(CALLS):
            raw()

    found = compare(
        path,
        side.name,
        lambda: loop.run_until_complete(all_of_them()),
        many_raw,
        goal=goal(path, side.name),
        calls=1,
    )
    return found.divided(CALLS)
