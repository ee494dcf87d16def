"""Writers that are killed at moments nobody chose, and what they had been promised by then.

``python killed_writers.py URL LOG ROUNDS SEED`` runs one writer after the other, each in a process of its own, and
kills each with SIGKILL. A writer says each promise on a pipe at the moment that a call returns. Prints the promises of
all rounds as one JSON line: the ids of pairs, the last value of the counter, and the numbers of lines.
"""

import json
import os
import random
import signal
import sys
import time
from pathlib import Path
from typing import Any

from lastlight_state import StateStore
from lastlight_state.codec import dump_line
from lastlight_state.files.jsonl.writer import LineWriter
from lastlight_state.messaging import ConversationKey
from lastlight_state.workflows import PhaseEntry, Trigger
from lastlight_state.workflows.arguments import RunOptions

SHARED = "shared"
KEY = ConversationKey("slack", "C", "U")
TRIGGER = Trigger(type="cli", id="t")


def write_for_ever(url: str, log: Path, start: int, promises: int) -> None:
    """Write until the end, which comes from outside. Each kind of write is promised by itself."""
    lines = LineWriter(log)
    with StateStore.open(url) as store:
        session = store.messaging.sessions.resume(KEY).session.id
        number = start
        while True:
            number += 1
            run = store.run(lambda tx: pair(tx, session))
            os.write(promises, f"pair {run}\n".encode())
            store.workflows.runs.merge_scratch(SHARED, {"counter": number})
            os.write(promises, f"counter {number}\n".encode())
            lines.append([dump_line({"number": number, "text": "x" * 3000})])
            os.write(promises, f"line {number}\n".encode())


def pair(tx: Any, session: str) -> str:
    """A run with a phase, and a message that names it: all or none."""
    run: str = tx.workflows.runs.create("pair", trigger=TRIGGER, phase="p", context={"text": "x" * 20_000}).id
    tx.workflows.runs.append_phase(run, PhaseEntry("half", True))
    tx.messaging.messages.append(session, role="user", content=run)
    return run


def killed(url: str, log: Path, start: int, seconds: float) -> list[str]:
    """One round: what the writer was promised before it was killed, so many seconds after its first promise."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(read)
        try:
            write_for_ever(url, log, start, write)
        finally:
            os._exit(1)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        first = pipe.readline()
        time.sleep(seconds)
        os.kill(pid, signal.SIGKILL)
        rest = pipe.read()
    assert os.waitpid(pid, 0)[1] == signal.SIGKILL
    return (first + rest).decode().splitlines()


def main() -> None:
    url, log, rounds, chance = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), random.Random(sys.argv[4])
    with StateStore.open(url) as store:
        store.workflows.runs.create("shared", trigger=TRIGGER, phase="p", options=RunOptions(id=SHARED))
        store.messaging.sessions.resume(KEY)
    promised: dict[str, Any] = {"pair": [], "counter": [0], "line": []}
    for _ in range(rounds):
        for promise in killed(url, log, promised["counter"][-1], chance.uniform(0, 0.12)):
            kind, _, value = promise.partition(" ")
            promised[kind].append(value if kind == "pair" else int(value))
    print(json.dumps(promised))  # noqa: T201 - read by the test


if __name__ == "__main__":
    main()
