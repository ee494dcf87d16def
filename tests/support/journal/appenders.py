"""A program: so many processes append so many events, each to the shared run and to a run of its own.

``appenders.py <url> <shared run> <own runs, separated by commas> <events>``
"""

from __future__ import annotations

import sys
from multiprocessing import get_context

from support.loading import load

from lastlight_state import StateStore


def append(url: str, shared: str, own: str, events: int, number: int) -> None:
    """What one process does: every third event has a key."""
    with StateStore.open(url) as store:
        for i in range(events):
            key = f"{number}-{i}" if i % 3 == 0 else None
            store.journal.events.append(shared, "shared", {"by": number, "i": i}, event_id=key)
            store.journal.events.append(own, "own", {"i": i}, event_id=key)


def main() -> None:
    url, shared, owns, events = sys.argv[1:]
    load("db", "backends", "journal")  # once, before the fork
    context = get_context("fork")
    workers = [
        context.Process(target=append, args=(url, shared, own, int(events), number))
        for number, own in enumerate(owns.split(","))
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    sys.exit(any(worker.exitcode for worker in workers))


if __name__ == "__main__":
    main()
