"""A program: starts of a service whose threads make their first calls, each interrupted by one signal.

``first_calls.py FOLDER SIGNAL STARTS`` forks a process for each start, in which the libraries below are loaded and
`lastlight_state` is not. The signal comes after more and more time of the processor. Prints one line for each start.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from importlib import import_module
from operator import attrgetter
from pathlib import Path
from typing import Any

BELOW = ("alembic.command", "alembic.script", "orjson", "pydantic_settings", "sqlalchemy.orm")
THREADS = 8
#: What each thread uses of a store.
USED = (
    "workflows.queue.list",
    "workflows.claims",
    "workflows.approvals.list_pending",
    "workflows.executions",
    "journal.events",
    "states",
    "messaging.sessions.list",
    "schedules.crons.list",
    "conversations.sessions.list",
    "outputs.catalog",
    "checkpoints",
    "receipts",
    "maintenance.prune",
    "maintenance.imports",
    "agent_log",
    "run_log",
    "mailbox",
)
#: The signal comes within so many seconds of the processor; a start takes about as long.
LATEST = 1.0
#: What waits for so long waits for ever.
HANGS = 30.0


def serve(path: Path, threads: list[threading.Thread], errors: list[str]) -> None:
    """Open a store and use all of it, in several threads at once."""
    ours = import_module("lastlight_state")
    with ours.StateStore.open(path) as store:
        for number in range(THREADS):
            thread = threading.Thread(target=call_all, args=(store, number, errors), daemon=True)
            threads.append(thread)
            thread.start()
        call_all(store, THREADS, errors)
        for thread in threads:
            thread.join()


def call_all(store: Any, number: int, errors: list[str]) -> None:
    """Use each domain once, each thread in an order of its own."""
    for place in range(len(USED)):
        path = USED[(place + 2 * number) % len(USED)]
        try:
            found = attrgetter(path)(store)
            if ".list" in path:
                found()
        except Exception as error:  # noqa: BLE001 - the store may be closed by then
            if type(error).__name__ != "StoreClosed":
                errors.append(repr(error))


def start(path: Path, number: int, after: float) -> str:
    """Return what became of one start."""
    signal.signal(signal.SIGPROF, lambda *_: os.kill(os.getpid(), number))
    signal.setitimer(signal.ITIMER_PROF, after)
    threads: list[threading.Thread] = []
    errors: list[str] = []
    came = "nothing"
    try:
        stopping = nullcontext()
        if number == signal.SIGTERM:
            stopping = import_module("lastlight_state.stopping").stop_on_sigterm()
        with stopping:
            serve(path, threads, errors)
    except BaseException as error:  # noqa: BLE001
        came = type(error).__name__
    signal.setitimer(signal.ITIMER_PROF, 0)
    end = time.monotonic() + HANGS
    begun = [thread for thread in threads if thread.ident is not None]
    for thread in begun:
        thread.join(max(0.0, end - time.monotonic()))
    return f"{came}: {sum(thread.is_alive() for thread in begun)} hang, {errors}"


def forked(made: Callable[[], str]) -> str:
    """Return what a child makes, or that it does not come back."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)  # ends it
        signal.alarm(int(2 * HANGS))
        try:
            os.write(writer, made().encode())
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as told:
        said = told.read()
    os.waitpid(child, 0)
    return said or "it hangs"


def main() -> None:
    folder, number, starts = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    for name in BELOW:
        import_module(name)
    assert not any(name.startswith("lastlight_state") for name in sys.modules)
    for count in range(starts):
        after = LATEST * (count + 1) / starts
        path = folder / f"{count}.db"
        sys.stdout.write(forked(partial(start, path, number, after)) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
