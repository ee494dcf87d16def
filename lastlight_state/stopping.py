"""Ends a process in an orderly way when a supervisor sends SIGTERM.

By default Python ends immediately on SIGTERM: no block is exited, so a held claim stays held until its lease expires.
This module turns the signal into an exception, but only for a block that requests it, because a process's signal
handlers belong to its author.
"""

from __future__ import annotations

import _thread
import asyncio
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from lastlight_state.errors import MisuseError

#: The exit status of a process that SIGTERM ended.
STATUS = 128 + signal.SIGTERM


@contextmanager
def stop_on_sigterm() -> Iterator[None]:
    """Leave the block by `SystemExit` when the process gets SIGTERM: ``with stop_on_sigterm():``

    Blocks inside it end in order, so a run that `claims.driving` holds is released without a restart, and a store is
    closed. Then the process ends with status 143. In a coroutine, the block's task is cancelled, and also leaves the
    block by `SystemExit`. While the block ends, further SIGTERMs are ignored. At its end the earlier handler is
    restored. Raises `MisuseError` outside the main thread, where Python receives no signals.
    """
    if threading.current_thread() is not threading.main_thread():
        raise MisuseError("signals arrive in the main thread: use stop_on_sigterm() there")
    task = _current_task()
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield from _raise_on_signal() if task is None else _cancel_on_signal(task)
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL if before is None else before)


def _raise_on_signal() -> Iterator[None]:
    """Run a block in a thread. The signal ends the block by an exception.

    Python drops an exception that a handler raises inside a finalizer or a weak reference's callback, and only reports
    it to `sys.unraisablehook`. In that case the signal is sent again.
    """
    stop: SystemExit | None = None
    told = sys.unraisablehook
    main = threading.get_ident()

    def raise_once(_number: int, _frame: object) -> None:
        nonlocal stop
        if stop is None:
            stop = SystemExit(STATUS)
            raise stop

    def send_again_if_lost(unraisable: sys.UnraisableHookArgs) -> None:
        nonlocal stop
        if stop is None or unraisable.exc_value is not stop:
            told(unraisable)
        else:
            stop = None
            # No `Thread` starts here, because the interrupted code may hold a lock of `threading`.
            _thread.start_new_thread(_send_soon, (main,))

    signal.signal(signal.SIGTERM, raise_once)
    sys.unraisablehook = send_again_if_lost
    try:
        yield
    finally:
        if sys.unraisablehook is send_again_if_lost:
            sys.unraisablehook = told


def _send_soon(thread: int) -> None:
    time.sleep(0.001)  # until the finalizer has ended
    signal.pthread_kill(thread, signal.SIGTERM)


def _cancel_on_signal(task: asyncio.Task[object]) -> Iterator[None]:
    """Run a block in a task. The signal cancels the task."""
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
