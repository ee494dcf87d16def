"""Threads that write while connections die, and what each of their calls was promised."""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from lastlight_state import BackendError, StateStore
from lastlight_state.workflows import Trigger
from lastlight_state.workflows.arguments import RunOptions

TRIGGER = Trigger(type="cli", id="t")


@dataclass
class Promises:
    """Names of runs, by what the call that was to make them said in the end."""

    kept: set[str] = field(default_factory=set)
    nothing_written: set[str] = field(default_factory=set)
    unknown: set[str] = field(default_factory=set)
    keyed: set[str] = field(default_factory=set)
    """Those whose call may be repeated at any time."""

    def note(self, name: str, call: Callable[[], object]) -> None:
        """Make the call, and note what it promises."""
        try:
            call()
        except BackendError as error:
            (self.unknown if error.outcome == "unknown" else self.nothing_written).add(name)
        else:
            self.kept.add(name)

    def hold(self, stored: list[str]) -> None:
        """Compare with the names of the runs that are there."""
        assert len(stored) == len(set(stored)), "a committed write was doubled"
        found = set(stored)
        assert self.kept <= found, "a committed write was lost"
        assert not self.nothing_written & found, "a write took place whose call said that nothing was written"
        assert found <= self.kept | self.unknown


def write(store: StateStore, promises: Promises, name: str) -> None:
    """Make runs in three ways: one statement, a keyed unit, a whole transaction. Names are unique."""
    runs = store.workflows.runs
    trigger = TRIGGER
    promises.note(f"{name} one", lambda: runs.create(f"{name} one", trigger=trigger, phase="p"))
    promises.keyed.add(f"{name} key")
    promises.note(f"{name} key", lambda: runs.ensure("key", f"{name} key", trigger=trigger, phase="p"))

    def work(tx: Any) -> None:
        run = tx.workflows.runs.create(f"{name} tx", trigger=trigger, phase="p", options=RunOptions(id=f"{name} id"))
        tx.workflows.runs.merge_scratch(run.id, {"n": 1})

    promises.note(f"{name} tx", lambda: store.run(work))


def under_load(
    store: StateStore, enough: Callable[[Promises], bool], disturb: Callable[[], object], threads: int = 6
) -> Promises:
    """Write from many threads until it is enough, disturbed again and again; what was promised."""
    promises = Promises()
    over = threading.Event()
    failed: list[BaseException] = []

    def go(thread: int) -> None:
        number = 0
        try:
            while not over.is_set():
                number += 1
                write(store, promises, f"{thread}.{number}")
        except BaseException as error:
            failed.append(error)
            raise

    running = [threading.Thread(target=go, args=(thread,)) for thread in range(threads)]
    for thread in running:
        thread.start()
    try:
        while not failed and not enough(promises):
            disturb()
    finally:
        over.set()
        for thread in running:
            thread.join()
    assert failed == []
    return promises


def names(store: StateStore) -> list[str]:
    """The names of all runs that are stored."""
    found, token = [], None
    while True:
        page = store.workflows.runs.list(limit=500, page_token=token)
        found += [run.workflow_name for run in page]
        token = page.next_page_token
        if token is None:
            return found
