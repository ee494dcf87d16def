"""Processes that change conversations.

``talkers.py URL append PROCESSES APPENDS SHARED`` appends to the branch ``main``: each process so many times a message
of its own and one of those that all share.

``talkers.py URL kill`` makes each call of `CALLS` by one process after the other, of which the first is killed with
SIGKILL before its first statement, the next before its second, and so on, until one comes to its end. Prints, as JSON,
which one that was.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

from support.loading import load

from lastlight_state import StateStore
from lastlight_state.conversations import NewBranch, NewMessage
from lastlight_state.testing import racing

#: Calls about ``main`` and its session ``s``, each about rows of its own by a number.
CALLS: dict[str, Callable[[Any, int], object]] = {
    "create": lambda c, n: c.branches.create(
        "s", NewBranch(id=f"branch-{n}", system=NewMessage("system", n, id=f"system-{n}"))
    ),
    "append": lambda c, n: c.branches.append("main", [NewMessage("user", n, id=f"said-{n}")]),
    "transition": lambda c, n: c.lifecycle.transition(f"s-{n}", "failed"),
}


def append(url: str, number: int, appends: int, shared: int) -> None:
    """What one process says."""
    with StateStore.open(url) as store:
        for i in range(appends):
            said = [NewMessage("user", i, id=f"own-{number}-{i}"), NewMessage("user", 0, id=f"shared-{i % shared}")]
            store.conversations.branches.append("main", said)


def call(url: str, name: str, number: int) -> None:
    """Make the call, and die before the statement of this number."""
    with StateStore.open(url) as store, racing(store) as race:
        race.before(number, lambda: os.kill(os.getpid(), signal.SIGKILL))
        CALLS[name](store.conversations, number)


def begun(work: Callable[..., object], *given: Any) -> int:
    """The id of a process of its own that does this."""
    pid = os.fork()
    if pid == 0:
        ended = 1
        try:
            work(*given)
            ended = 0
        finally:
            os._exit(ended)
    return pid


def ended(pid: int) -> bool:
    """Whether the process came to its end; otherwise it was killed."""
    status = os.waitpid(pid, 0)[1]
    assert status in (0, signal.SIGKILL), status
    return status == 0


def main() -> None:
    url, way, *numbers = sys.argv[1:]
    load("conversations", "backends")
    if way == "append":
        processes, appends, shared = map(int, numbers)
        talking = [begun(append, url, number, appends, shared) for number in range(processes)]
        sys.exit(sum(not ended(pid) for pid in talking))
    lasts = {name: next(n for n in count(1) if ended(begun(call, url, name, n))) for name in CALLS}
    print(json.dumps(lasts))  # noqa: T201 - read by the test


if __name__ == "__main__":
    main()
