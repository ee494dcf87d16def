"""One process with a mixed load, and what it holds: ``python mixed_load.py SQLITE POSTGRES SECONDS SAMPLES``.

Threads and tasks work on both databases. Each sample is one JSON line: what the process holds, and the calls so far.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import re
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from lastlight_state import AsyncStateStore, StateStore
from lastlight_state.maintenance import PrunePolicy
from lastlight_state.messaging import ConversationKey
from lastlight_state.workflows import Gate, PhaseEntry, Trigger

THREADS, TASKS = 3, 4
#: Seconds of idleness after each round, because other tests use the machine, too.
PAUSE = 0.05
TRIGGER = Trigger("7", type="webhook", repo="acme/widgets", actor="ana")
CONTEXT = {"text": "x" * 2_000}


class Load:
    """The rounds of one store, whose rows are pruned all the time, so that what grows is the process."""

    def __init__(self, url: str, stop: threading.Event) -> None:
        self.store = StateStore.open(url, migrate=True)
        self.stop = stop
        self.calls = count()
        self.failed: list[BaseException] = []

    def threads(self) -> list[threading.Thread]:
        works: list[Callable[[], object]] = [*[self.round] * THREADS, self.prune]
        threads = [threading.Thread(target=self.repeat, args=(work,)) for work in works]
        return [*threads, threading.Thread(target=lambda: asyncio.run(self.tasks()))]

    def repeat(self, work: Callable[[], object]) -> None:
        try:
            while not self.stop.wait(PAUSE):
                work()
        except BaseException as error:
            self.failed.append(error)
            self.stop.set()
            raise

    def round(self) -> None:
        workflows, messaging, events = self.store.workflows, self.store.messaging, self.store.journal.events
        number = next(self.calls)
        run = workflows.runs.create("load", trigger=TRIGGER, phase="start", context=CONTEXT)
        claim = workflows.claims.take(run.id, owner=f"thread-{number}")
        workflows.runs.append_phase(run.id, PhaseEntry("build", True), scratch={"n": number}, claim=claim)
        execution = workflows.executions.start("triage", run_id=run.id, claim=claim)
        workflows.executions.finish(execution.id, "succeeded", claim=claim)
        events.append(run.id, "said", {"number": number})
        claim = workflows.claims.heartbeat_many([claim])[run.id]  # type: ignore[assignment] # held by nobody else
        workflows.approvals.pause(run.id, Gate("plan", "Go?"), claim=claim)
        workflows.runs.list(limit=20)
        workflows.health.get_state(run.id)
        workflows.runs.cancel(run.id, by="ana", reason="enough")
        session = messaging.sessions.resume(ConversationKey("slack", "C", f"U{number}")).session.id
        for size in range(1 + number % 5):
            messaging.messages.append(session, role="user", content="x" * 50 * size, platform_message_id=str(size))
        messaging.messages.history(session)
        messaging.sessions.close(session)
        with self.store.transaction() as tx:
            tx.workflows.runs.cancel(
                tx.workflows.runs.create("load", trigger=TRIGGER, phase="p").id, by="a", reason="r"
            )

    def prune(self) -> None:
        for kind in ("runs", "messaging"):
            self.store.maintenance.prune.run(PrunePolicy(kind, keep_days=0, keep_n=50))

    async def tasks(self) -> None:
        store = AsyncStateStore(self.store)
        await asyncio.gather(*(self.awaiting(store, number) for number in range(TASKS)))

    async def awaiting(self, store: AsyncStateStore, number: int) -> None:
        try:
            while not self.stop.is_set():
                next(self.calls)
                run = await store.workflows.runs.create("awaited", trigger=TRIGGER, phase="start", context=CONTEXT)
                await store.workflows.runs.merge_scratch(run.id, {"n": number})
                await store.journal.events.append(run.id, "said", {"number": number})
                await store.read(partial(_run_of, run.id))
                await store.workflows.runs.finish(run.id, "succeeded")
                await asyncio.sleep(PAUSE)
        except BaseException as error:
            self.failed.append(error)
            self.stop.set()
            raise


def held(loads: list[Load]) -> dict[str, float]:
    """Return what this process holds. Of the memory only its own: mapped pages of the database are not counted."""
    gc.collect()
    [anonymous] = re.findall(r"RssAnon:\s+(\d+) kB", Path("/proc/self/status").read_text(encoding="ascii"))
    asked = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
    prepared = "SELECT count(*) FROM pg_prepared_statements"
    return {
        "memory": round(int(anonymous) / 1024, 1),
        "blocks": sys.getallocatedblocks(),
        "descriptors": len(os.listdir("/proc/self/fd")),  # noqa: PTH208
        "threads": threading.active_count(),
        "connections": _told(loads[1].store, asked),
        "prepared": max(_told(loads[1].store, prepared) for _ in range(10)),  # of whichever connection is lent
    }


def _run_of(run_id: str, view: Any) -> object:
    return view.workflows.runs.get(run_id)


def _told(store: StateStore, query: str) -> int:
    def told(view: Any) -> int:
        return int(view.connection.execute(sa.text(query)).scalar_one())

    return store.read(told)


def main() -> None:
    stop = threading.Event()
    loads = [Load(url, stop) for url in sys.argv[1:3]]
    seconds, samples = float(sys.argv[3]), int(sys.argv[4])
    threads = [thread for load in loads for thread in load.threads()]
    for thread in threads:
        thread.start()
    begun = time.monotonic()
    for number in range(1, samples + 1):
        if stop.wait(max(0.0, begun + number * seconds / samples - time.monotonic())):
            break
        calls = sum(int(repr(load.calls)[6:-1]) for load in loads)
        print(json.dumps({**held(loads), "rounds": calls}), flush=True)  # noqa: T201 - read by the test
    stop.set()
    for thread in threads:
        thread.join()
    for load in loads:
        load.store.close()
    sys.exit(any(load.failed for load in loads))


if __name__ == "__main__":
    main()
