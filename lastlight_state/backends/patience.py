"""How long a call waits for others, and waits that end early when nobody wants the answer any more.

A call waits for its turn, for the file's lock and between repetitions. All of that ends at its `Deadline`. What runs on
a worker thread for a coroutine can be told meanwhile that it was cancelled; then it stops waiting, with `BackendBusy`.
It never stops working.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Self
from weakref import ref

from lastlight_state.errors import BackendBusy

#: The ``reason`` of a `BackendBusy` that came of nobody's locks: the caller wants no answer any more.
CANCELLED = "cancelled"

_of_thread = threading.local()


class Patience:
    """Of one call: lasts until `end`, which any thread may call."""

    def __init__(self) -> None:
        self.over = False
        self._gate: threading.Lock | None = None

    def end(self) -> None:
        """Let the call stop waiting, now or when it would begin to."""
        self.over = True
        if self._gate is not None:
            wake(self._gate)

    def wait(self, gate: threading.Lock, seconds: float) -> None:
        """Wait until somebody opens the gate, or the patience is over."""
        self._gate = gate
        try:
            if not self.over:
                gate.acquire(timeout=seconds)
        finally:
            self._gate = None


class Deadline:
    """Ends all waits of one call: so many seconds after the first of them began.

    It holds for everything that this thread does inside the ``with`` block, however many units, files and repetitions
    that takes. Inside the block of another deadline, the other one holds.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._end: float | None = None

    @property
    def end(self) -> float:
        """The moment on the monotonic clock. Asking for the first time begins the count."""
        if self._end is None:
            self._end = time.monotonic() + self._seconds
        return self._end

    def __enter__(self) -> Deadline | Self:
        outer = _deadline()
        if outer is not None:
            return outer
        _of_thread.deadline = ref(self)  # not the deadline itself: one that was cut off ends with its block
        return self

    def __exit__(self, *_: object) -> None:
        if _deadline() is self:
            _of_thread.deadline = None


def until(seconds: float) -> float:
    """The moment when a wait of so many seconds ends: with the deadline of this thread's call, where that is sooner."""
    end, deadline = time.monotonic() + seconds, _deadline()
    return end if deadline is None else min(end, deadline.end)


def _deadline() -> Deadline | None:
    found: ref[Deadline] | None = getattr(_of_thread, "deadline", None)
    return None if found is None else found()


def lend(patience: Patience | None) -> None:
    """From now on this thread's waits are as patient as that, or without end."""
    _of_thread.patience = patience


@contextmanager
def none() -> Iterator[None]:
    """A block whose calls do not wait: where they would, they raise `BackendBusy`."""
    before: Patience | None = getattr(_of_thread, "patience", None)
    over = Patience()
    over.end()
    lend(over)
    try:
        yield
    finally:
        lend(before)


def wait(gate: threading.Lock, seconds: float) -> None:
    """Wait at a closed gate. Raises `BackendBusy` when this call's patience is over."""
    patience: Patience | None = getattr(_of_thread, "patience", None)
    if patience is None:
        gate.acquire(timeout=seconds)
    else:
        patience.wait(gate, seconds)
        refuse_ended()


def pause(seconds: float) -> None:
    """Sleep. Raises `BackendBusy` when this call's patience is over."""
    if getattr(_of_thread, "patience", None) is None:
        time.sleep(seconds)
    else:
        wait(closed_gate(), seconds)


def refuse_ended() -> None:
    """Raise `BackendBusy` when this call's patience is over."""
    patience: Patience | None = getattr(_of_thread, "patience", None)
    if patience is not None and patience.over:
        raise BackendBusy("the call was cancelled while it waited", final=True, reason=CANCELLED)


def closed_gate() -> threading.Lock:
    """A lock that is taken, for one thread to wait at and others to open."""
    gate = threading.Lock()
    gate.acquire()
    return gate


def wake(gate: threading.Lock) -> None:
    """Open a gate. Opening one that is open changes nothing."""
    try:
        gate.release()
    except RuntimeError:
        return
