"""Processes that change conversations.

``talkers.py URL append PROCESSES APPENDS SHARED`` appends to the branch ``main``: each process so many times a message
of its own and one of those that all share.

``talkers.py URL exchange SENDERS READERS MESSAGES`` sends to the inbox ``box``: each sender so many messages. One
reader takes two and is killed; the others take and acknowledge until nothing is open.

``talkers.py URL kill`` makes each call of `CALLS` by one process after the other, of which the first is killed with
SIGKILL before its first statement, the next before its second, and so on, until one comes to its end. Prints, as JSON,
which one that was.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable
from datetime import timedelta
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
    "send": lambda c, n: c.exchange.send(NewMessage("user", n, id=f"sent-{n}"), to=["box", f"other-{n}"]),
    "transition": lambda c, n: c.lifecycle.transition(f"s-{n}", "failed"),
}


def append(url: str, number: int, appends: int, shared: int) -> None:
    """What one process says."""
    with StateStore.open(url) as store:
        for i in range(appends):
            said = [NewMessage("user", i, id=f"own-{number}-{i}"), NewMessage("user", 0, id=f"shared-{i % shared}")]
            store.conversations.branches.append("main", said)


def send(url: str, number: int, messages: int) -> None:
    """What one sender sends."""
    with StateStore.open(url) as store:
        for i in range(messages):
            store.conversations.exchange.send(NewMessage("user", i, id=f"sent-{number}-{i}"), to="box")


def take(url: str, number: int, all_: int) -> None:
    """One reader, until all that are sent are acknowledged by somebody."""
    with StateStore.open(url) as store:
        exchange, name = store.conversations.exchange, f"reader-{number}"
        while True:
            taken = exchange.take("box", reader=name, limit=3)
            for one in taken:
                exchange.ack("box", one.ord, reader=name)
            everything = exchange.inbox("box", state="all", limit=500).items
            if len(everything) == all_ and all(one.acked_by for one in everything):
                return
            if not taken:
                time.sleep(0.01)


def die(url: str) -> None:
    """A reader that is killed with what it has taken."""
    with StateStore.open(url) as store:
        taken = 0
        while taken < 2:
            lease = timedelta(milliseconds=500)
            taken += len(store.conversations.exchange.take("box", reader="dead", limit=1, lease=lease))
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGKILL)


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
    if way == "exchange":
        senders, readers, messages = map(int, numbers)
        dying = begun(die, url)
        working = [begun(send, url, number, messages) for number in range(senders)]
        lived = ended(dying)  # before the others read: there must be two for it
        working += [begun(take, url, number, senders * messages) for number in range(readers)]
        sys.exit(lived + sum(not ended(pid) for pid in working))
    lasts = {name: next(n for n in count(1) if ended(begun(call, url, name, n))) for name in CALLS}
    print(json.dumps(lasts))  # noqa: T201 - read by the test


if __name__ == "__main__":
    main()
