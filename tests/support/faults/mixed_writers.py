"""Many processes that write all sorts of things at once, and say what was promised to them.

``python mixed_writers.py URL PROCESSES SECONDS`` prints one JSON line for each process: the ids of the runs it created,
how often it wrote to what all share, and the last value it left in its own key of the shared run.
"""

import json
import os
import sys
import time
import traceback
from contextlib import suppress
from typing import Any

from lastlight_state import NotFound, StateStore
from lastlight_state.messaging import ConversationKey
from lastlight_state.workflows import PhaseEntry, Trigger
from lastlight_state.workflows.arguments import RunOptions

SHARED = "shared"
KEY = ConversationKey("slack", "C", "U")
MOST_PHASES = 100


class Writer:
    """One process: goes round its kinds of work until the time is over."""

    def __init__(self, store: StateStore, number: int) -> None:
        self.store = store
        self.number = number
        self.session = store.messaging.sessions.resume(KEY).session.id
        self.report: dict[str, Any] = {"runs": [], "pairs": [], "phases": 0, "messages": [], "counter": 0}

    def work(self, seconds: float) -> dict[str, Any]:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            for step in (self.run, self.counter, self.phase, self.message, self.pair, self.undone):
                step()
        return {**self.report, "number": self.number, "retries": self.store.metrics.retries}

    def run(self) -> None:
        run = self.store.workflows.runs.create("own", trigger=Trigger(type="cli", id=str(self.number)), phase="p")
        self.store.workflows.runs.finish(run.id, "succeeded")
        self.report["runs"].append(run.id)

    def counter(self) -> None:
        value = self.report["counter"] + 1
        self.store.workflows.runs.merge_scratch(SHARED, {f"counter {self.number}": value})
        self.report["counter"] = value

    def phase(self) -> None:
        if self.report["phases"] < MOST_PHASES:
            self.store.workflows.runs.append_phase(SHARED, PhaseEntry(f"by {self.number}", True))
            self.report["phases"] += 1

    def message(self) -> None:
        text = f"{self.number}: {len(self.report['messages'])}"
        made = self.store.messaging.messages.append(self.session, role="user", content=text)
        self.report["messages"].append(made.message.id)

    def pair(self) -> None:
        """A run and a message in one transaction."""

        def both(tx: Any) -> str:
            run = tx.workflows.runs.create("pair", trigger=Trigger(type="cli", id="t"), phase="p")
            tx.messaging.messages.append(self.session, role="assistant", content=run.id)
            return str(run.id)

        self.report["pairs"].append(self.store.run(both))

    def undone(self) -> None:
        """A transaction that fails after its writes."""
        with suppress(NotFound), self.store.transaction() as tx:
            tx.workflows.runs.create("undone", trigger=Trigger(type="cli", id="t"), phase="p")
            tx.messaging.messages.append(self.session, role="assistant", content="undone")
            tx.workflows.runs.get("none")


def prepare(url: str) -> None:
    with StateStore.open(url) as store:
        trigger = Trigger(type="cli", id="t")
        store.workflows.runs.create("shared", trigger=trigger, phase="p", options=RunOptions(id=SHARED))
        store.messaging.sessions.resume(KEY)


def child(url: str, number: int, seconds: float, out: int) -> None:
    try:
        with StateStore.open(url) as store:
            report = Writer(store, number).work(seconds)
        os.write(out, json.dumps(report).encode())
        os._exit(0)
    finally:  # with a traceback, if the line above was not reached
        traceback.print_exc()
        os._exit(1)


def main() -> None:
    url, processes, seconds = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
    prepare(url)
    children = []
    for number in range(processes):
        read, write = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(read)
            child(url, number, seconds, write)
        os.close(write)
        children.append((pid, read))
    failed = 0
    for pid, read in children:
        with os.fdopen(read) as pipe:
            print(pipe.read(), flush=True)  # noqa: T201 - read by the test
        failed += os.waitpid(pid, 0)[1] != 0
    sys.exit(failed)


if __name__ == "__main__":
    main()
