"""Copies that are killed at any instant, on either side, and gone on with until they end.

``python attacked_copy.py SOURCE TARGET SEED`` forks a process for each attempt, which copies or resumes, and kills it
with SIGKILL after a time drawn at random, also within a statement. Prints how many were killed before the one that
ended. The caller compares the databases.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import time
import traceback
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from support.loading import load

from lastlight_state import StateStore
from lastlight_state.errors import NotFound, SchemaMismatch

#: How many attempts are killed at most, and the seconds within which.
KILLS, WITHIN = 6, 0.6


def copy(source: str, target: str) -> None:
    """Go on with the copy, or begin it where nothing of it is there."""
    with StateStore.open(source) as store:
        copying = store.maintenance.copy
        try:
            copying.resume(target, batch_rows=2)
        except (NotFound, SchemaMismatch):
            copying.run(target, batch_rows=2, migrate=True)


def attempt(source: str, target: str, seconds: float | None) -> bool:
    """Whether an attempt came to its end. None kills nobody."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            copy(source, target)
            code = 0
        finally:
            if code:
                traceback.print_exc()
            os._exit(code)
    if seconds is not None:
        time.sleep(seconds)
        os.kill(pid, signal.SIGKILL)
    status = os.waitpid(pid, 0)[1]
    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0, "the attempt was refused"
    return not os.WIFSIGNALED(status)


if __name__ == "__main__":
    source, target, seed = sys.argv[1:]
    load("maintenance", "receipts", "backends", "outputs", "migrations")
    chance = random.Random(int(seed))
    killed = 0
    while not attempt(source, target, chance.uniform(0, WITHIN) if killed < KILLS else None):
        killed += 1
    print(killed)  # noqa: T201 - the answer
