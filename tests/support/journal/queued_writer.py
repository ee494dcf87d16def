"""A program that is killed while it appends by way of a queue.

``queued_writer.py <url> <directory> <run that ends> <run> <run>``

It queues a hundred events of the first run, ends that run and says so. Then it appends to the other two until it is
killed: by a mirror, after a commit and before the log file has the lines.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Sequence
from itertools import count
from pathlib import Path

from lastlight_state import StateStore
from lastlight_state.journal import Event, LineFileMirror, WriterOptions

BATCHES = 4


def lines_of(path: Path) -> list[int]:
    """The numbers in a log file."""
    return [json.loads(line)["seq"] for line in path.read_text().splitlines()]


def main() -> None:
    url, directory, ended, *runs = sys.argv[1:]
    store = StateStore.open(url, migrate=False)
    first = store.journal.writer(WriterOptions(linger=60))
    for i in range(100):
        first.append(ended, "a", {"i": i})
    with store.transaction() as tx:
        tx.workflows.runs.finish(ended, "succeeded")
    os.write(1, b"finished\n")
    batches = count(1)

    def kill(events: Sequence[Event]) -> None:
        if next(batches) == BATCHES:
            os.kill(os.getpid(), signal.SIGKILL)

    mirror = LineFileMirror(store.journal.events, directory)
    writer = store.journal.writer(WriterOptions(max_batch=20, max_queued=50), mirrors=[kill, mirror])
    for i in count():
        for run_id in runs:
            writer.append(run_id, "a", {"i": i})


if __name__ == "__main__":
    main()
