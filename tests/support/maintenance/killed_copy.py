"""Copies that are killed between two batches.

``python killed_copy.py SOURCE TARGET BATCH …`` copies by one process after the other. Each is killed with SIGKILL after
the batch of this number, and the next one takes its work over at once.
"""

import os
import signal
import sys
from datetime import UTC, datetime
from itertools import count
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from support.loading import load

from lastlight_state import StateStore
from lastlight_state.maintenance import CopyProgress
from lastlight_state.testing import FrozenClock

START = datetime(2026, 2, 3, tzinfo=UTC)


def copy(source: str, target: str, turn: int, last: int) -> None:
    """Begin the copy, or go on with it, and die after a batch."""
    batches = count(1)

    def die(progress: CopyProgress) -> None:
        if progress.phase == "copied" and next(batches) == last:
            os.kill(os.getpid(), signal.SIGKILL)

    clock = FrozenClock(START)
    with StateStore.open(source, clock=clock) as store:
        if turn:
            store.maintenance.copy.resume(target, batch_rows=2, on_progress=die)
        else:
            store.maintenance.copy.run(target, batch_rows=2, on_progress=die)


if __name__ == "__main__":
    source, target, *batches = sys.argv[1:]
    load("maintenance", "receipts", "backends", "outputs")
    for turn, last in enumerate(map(int, batches)):
        pid = os.fork()
        if pid == 0:
            try:
                copy(source, target, turn, last)
            finally:
                os._exit(1)
        assert os.waitpid(pid, 0)[1] == signal.SIGKILL
