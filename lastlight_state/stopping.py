"""Stopping in good order when a supervisor sends SIGTERM.

Python ends at once on SIGTERM: no block is left, so what a process holds stays held until its lease is over. This
module turns the signal into an exception, for a block that asks for it: the handlers of a process belong to its author.
"""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from lastlight_state.errors import MisuseError

#: The exit status of a process that SIGTERM has ended.
STATUS = 128 + signal.SIGTERM


@contextmanager
def stop_on_sigterm() -> Iterator[None]:
    """Leave the block by `SystemExit` when the process gets SIGTERM: ``with stop_on_sigterm():``

    Blocks inside it end in order, so a run that `claims.driving` holds is released at no restart and a store is closed.
    Then the process ends with status 143. In a coroutine the task of the block is cancelled, and leaves the block by
    `SystemExit` too. While the block ends, further SIGTERMs are ignored. At its end the earlier handler is put back.
    Raises `MisuseError` outside the main thread, where Python takes no signals.
    """
    if threading.current_thread() is not threading.main_thread():
        raise MisuseError("signals arrive in the main thread: use stop_on_sigterm() there")
    task = _current_task()
    before = signal.getsignal(signal.SIGTERM)
    try:
        if task is None:
            signal.signal(signal.SIGTERM, _stop)
            yield
        else:
            yield from _cancelling(task)
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL if before is None else before)


def _stop(number: int, _frame: object) -> None:
    signal.signal(number, signal.SIG_IGN)
    raise SystemExit(STATUS)


def _cancelling(task: asyncio.Task[object]) -> Iterator[None]:
    """Yield the block of a task, which the signal cancels."""
    came = False
    loop = task.get_loop()

    def cancel() -> None:
        nonlocal came
        if not came:
            came = True
            task.cancel()

    loop.add_signal_handler(signal.SIGTERM, cancel)
    try:
        yield
    except asyncio.CancelledError:
        if not came:
            raise
    finally:
        loop.remove_signal_handler(signal.SIGTERM)
    if came:
        raise SystemExit(STATUS)


def _current_task() -> asyncio.Task[object] | None:
    try:
        return asyncio.current_task()
    except RuntimeError:
        return None
