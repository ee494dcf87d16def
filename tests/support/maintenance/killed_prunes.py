"""Prunes that are killed at statements that chance chooses.

``python killed_prunes.py URL KILLS SEED KIND`` prunes all old runs, their journals or orphans, in the smallest batches,
by one process after the other. Each is killed with SIGKILL before some statement, and the next one takes its work over,
eleven minutes later by its clock. The last one is left to finish. Prints how many were killed.
"""

import os
import random
import signal
import sys
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

from support.loading import load

from lastlight_state import StateStore
from lastlight_state.db.rows.statements import Family
from lastlight_state.maintenance import PrunePolicy
from lastlight_state.maintenance.prune.candidates import STATEMENTS
from lastlight_state.testing import FrozenClock, racing


def prune(url: str, kind: str, now: datetime, last_statement: int | None) -> None:
    """Go on with the prune, or begin it, and die before this statement."""
    with StateStore.open(url, clock=FrozenClock(now)) as store, racing(store) as race:
        if last_statement is not None:
            race.before(last_statement, lambda: os.kill(os.getpid(), signal.SIGKILL))
        running = store.receipts.list(kind="prune", state="running").items
        if running:
            store.maintenance.prune.resume(running[0].id)
        else:
            store.maintenance.prune.run(PrunePolicy(kind, keep_n=0, batch_rows=1))


def survived(url: str, kind: str, now: datetime, last_statement: int | None) -> bool:
    """Whether a process of its own came to the end."""
    pid = os.fork()
    if pid == 0:
        ended = 1
        try:
            prune(url, kind, now, last_statement)
            ended = 0
        finally:
            os._exit(ended)
    status = os.waitpid(pid, 0)[1]
    assert status in (0, signal.SIGKILL), status
    return status == 0


def compile_statements(url: str) -> None:
    """Compile what the processes will execute, before they are forked."""
    found = STATEMENTS["runs"]
    with StateStore.open(url) as store:
        families: list[Family[Any]] = [found.protected, found.measured, found.bury, found.own]
        families += found.children.values()
        for size in (1, 2, 4, 8, 20):
            for family in families:
                family.of(["k"] * size)[0].on(store.backend)


def main() -> None:
    url, kills, chance, kind = sys.argv[1], int(sys.argv[2]), random.Random(sys.argv[3]), sys.argv[4]
    load("maintenance", "receipts", "backends")
    compile_statements(url)
    now, killed = FrozenClock().now(), 0
    while killed < kills:
        now += timedelta(minutes=11)
        if survived(url, kind, now, chance.randint(2, 60)):
            break
        killed += 1
    survived(url, kind, now + timedelta(minutes=11), None)
    print(killed)  # noqa: T201 - read by the test


if __name__ == "__main__":
    main()
