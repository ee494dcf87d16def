"""Copies that are killed at any instant, on either side, and gone on with until they end.

``python attacked_copy.py SOURCE TARGET SEED`` forks a process for each attempt, which copies or resumes, and kills it
with SIGKILL after a time drawn at random, also within a statement. Prints how many were killed before the one that
ended. With ``at:NUMBER`` for a seed the first attempt kills itself at that step instead: before a statement of either
side, or before or after a commit or a batch of rows. The caller compares the databases.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import time
import traceback
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

from support.loading import load

from lastlight_state import StateStore
from lastlight_state.backends.base import Checkout
from lastlight_state.backends.postgres import PostgresBackend
from lastlight_state.backends.sqlite import SqliteBackend
from lastlight_state.errors import Conflict, NotFound, SchemaMismatch

#: How many attempts are killed at most, and the seconds within which.
KILLS, WITHIN = 6, 0.6


def copy(source: str, target: str) -> None:
    """Go on with the copy, or begin it where nothing of it is there, or leave it where it has ended."""
    with StateStore.open(source) as store:
        copying = store.maintenance.copy
        try:
            copying.resume(target, batch_rows=2)
        except (NotFound, SchemaMismatch):
            try:
                copying.run(target, batch_rows=2, migrate=True)
            except Conflict as refused:
                if refused.code != "target_not_empty" or not has_ended(target):
                    raise


def has_ended(target: str) -> bool:
    """Whether an attempt was killed after its copy had ended, and before its process had."""
    with StateStore.open(target, migrate=False) as store:
        return bool(store.receipts.list(kind="copy", state="done").items)


def die_at(number: int) -> None:
    """Let this process kill itself at the step of this number."""
    steps = count(1)

    def step() -> None:
        if next(steps) == number:
            os.kill(os.getpid(), signal.SIGKILL)

    def counted(run: Callable[..., Any]) -> Callable[..., Any]:
        def around(*given: Any, **named: Any) -> Any:
            step()
            found = run(*given, **named)
            step()
            return found

        return around

    def before(run: Callable[..., Any]) -> Callable[..., Any]:
        def stepped(*given: Any) -> Any:
            step()
            return run(*given)

        return stepped

    lend = Checkout.attach

    def lent(self: Checkout, driver: Any, *given: Any, **named: Any) -> None:
        lend(self, driver, *given, **named)
        self.execute = before(self.execute)

    Checkout.attach = lent  # type: ignore[method-assign]
    for backend in (PostgresBackend, SqliteBackend):
        for name in ("commit", "insert_rows"):
            setattr(backend, name, counted(getattr(backend, name)))


def attempt(source: str, target: str, seconds: float | None, at: int | None = None) -> bool:
    """Whether an attempt came to its end. None kills nobody."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            if at is not None:
                die_at(at)
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
    if seed.startswith("at:"):
        ended = attempt(source, target, None, int(seed.removeprefix("at:")))
        print(0 if ended else 1)  # noqa: T201 - the answer
        sys.exit(0 if ended or attempt(source, target, None) else 1)
    chance = random.Random(int(seed))
    killed = 0
    while not attempt(source, target, chance.uniform(0, WITHIN) if killed < KILLS else None):
        killed += 1
    print(killed)  # noqa: T201 - the answer
