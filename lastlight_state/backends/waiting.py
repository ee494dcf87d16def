"""Limits for the time that a call waits, and waits that end early when the call is cancelled.

A call waits for its place in the queue, for the file's lock, and between retries. All of these waits end at its
`Deadline`. A call that runs on a worker thread for a coroutine can be cancelled while it waits; it then stops waiting
and raises `BackendBusy`. Work that has begun is never stopped.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Self, TypeVar

from lastlight_state.errors import BackendBusy, BackendError, BackendUnavailable
from lastlight_state.metrics import Metrics
from lastlight_state.unwinding import Exit, HeldResource

#: The ``reason`` of a `BackendBusy` without any lock: the call was cancelled.
CANCELLED = "cancelled"

#: The least seconds that a call waits for a lock, even if its ``timeout`` is shorter, such as 0.
LEAST_LOOK = 0.25

T = TypeVar("T")


class _OfThread(threading.local):
    deadline: Deadline | None = None
    patience: Patience | None = None


#: The deadline and patience of a thread's calls. Each unit reads it, and calls nothing if there is no deadline.
of_thread = _OfThread()


def all_in_use(what: str = "connections of the pool") -> BackendUnavailable:
    """Return the error for a call that waited too long because all of the things that ``what`` names were in use."""
    return BackendUnavailable(f"all {what} stayed in use", reason="pool")


def line_too_long() -> BackendBusy:
    """Return the error for a call that waited too long in the queue of a SQLite file's writers."""
    return BackendBusy("waited too long for the other writers of this process", final=True)


class Patience:
    """One call's permission to wait, which lasts until `end`. Any thread may call `end`."""

    def __init__(self) -> None:
        self.over = False
        #: The seconds that the call has waited for a thread. The next wait is shortened by them, and they become 0.
        self.spent = 0.0
        self._gate: threading.Lock | None = None

    def end(self) -> None:
        """End the call's current wait, and refuse all its later waits."""
        self.over = True
        if self._gate is not None:
            wake(self._gate)

    def wait(self, gate: threading.Lock, seconds: float) -> None:
        """Wait until the gate is opened, the seconds are over, or `end` is called."""
        self._gate = gate
        try:
            if not self.over:
                gate.acquire(timeout=seconds)
        finally:
            self._gate = None


class Deadline(HeldResource):
    """A limit for all waits of one call together, in seconds from the beginning of the first wait.

    It applies to everything that this thread does inside the ``with`` block: any number of units, files and retries.
    Inside the block of another deadline, the earlier deadline applies.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._end: float | None = None
        self.before: Deadline | None = None

    @property
    def end(self) -> float:
        """Return the deadline on the monotonic clock. The first access starts the clock."""
        if self._end is None:
            self._end = time.monotonic() + self._seconds
        return self._end

    def __enter__(self) -> Deadline | Self:
        outer = self.before = _deadline()
        if outer is not None and outer.end <= self.end:
            return outer
        of_thread.deadline = self
        return self

    def _leave(self, *_: object) -> None:
        if _deadline() is self:
            of_thread.deadline = self.before
        self.handle = None

    __exit__ = Exit(_leave)


def until(seconds: float) -> float:
    """Return the time at which a wait of these seconds ends, or this thread's deadline if that is earlier."""
    end, deadline = time.monotonic() + seconds, _deadline()
    return end if deadline is None else min(end, deadline.end)


def shorter_wait(seconds: float) -> float | None:
    """Return the seconds until this thread's deadline, but only if they are fewer than ``seconds``; else None.

    ``seconds=0`` means a wait without a limit of this library.
    """
    if of_thread.deadline is None or not seconds:  # the usual case
        return None
    deadline = _deadline()
    left = seconds if deadline is None else deadline.end - time.monotonic()
    return max(left, 0.0) if left < seconds else None


def within(seconds: float, call: Callable[[], T]) -> T:
    """Return the result of ``call``, whose waits for locks end after ``seconds`` (at least `LEAST_LOOK`).

    For calls with a ``timeout``: when it is over, a statement that waits for a lock is given up, and nothing is
    retried.
    """
    with Deadline(max(seconds, LEAST_LOOK)) as deadline:
        deadline.end  # noqa: B018 - the count begins
        return call()


def left_of(seconds: float) -> float:
    """Return how many of these seconds remain for a wait that began when a coroutine awaited this thread's call.

    The call had to wait for a free thread; this time is subtracted from its first wait only.
    """
    patience = of_thread.patience
    if patience is None or not patience.spent:
        return seconds
    spent, patience.spent = patience.spent, 0.0
    return max(seconds - spent, 0.0)


def _deadline() -> Deadline | None:
    found = of_thread.deadline
    while found is not None and found.handle is not None and found.is_gone:  # its block was interrupted
        found = found.before
    return found


def lend(patience: Patience | None) -> None:
    """Set the `Patience` of this thread's waits from now on. None lets them wait without end."""
    of_thread.patience = patience


class NoPatience(HeldResource, Patience):
    """A block whose calls raise `BackendBusy` instead of waiting."""

    def __init__(self) -> None:
        super().__init__()
        self.over = True
        self.before: Patience | None = None

    def __enter__(self) -> None:
        self.before = _patience()
        lend(self)

    def _leave(self, *_: object) -> None:
        lend(self.before)
        self.handle = None

    __exit__ = Exit(_leave)


def _patience() -> Patience | None:
    """Return the `Patience` of this thread's call; None if the call may wait without end."""
    found = of_thread.patience
    while isinstance(found, NoPatience) and found.is_gone:  # its block was interrupted
        found = found.before
    return found


def wait(gate: threading.Lock, seconds: float) -> None:
    """Wait at a closed gate. Raises `BackendBusy` if this call is cancelled."""
    patience = _patience()
    if patience is None:
        gate.acquire(timeout=seconds)
    else:
        patience.wait(gate, seconds)
        refuse_ended()


def pause(seconds: float) -> None:
    """Sleep for these seconds. Raises `BackendBusy` if this call is cancelled."""
    if _patience() is None:
        time.sleep(seconds)
    else:
        wait(closed_gate(), seconds)


def refuse_ended() -> None:
    """Raise `BackendBusy` if this call is cancelled."""
    patience = _patience()
    if patience is not None and patience.over:
        raise BackendBusy("the call was cancelled while it waited", final=True, reason=CANCELLED)


def closed_gate() -> threading.Lock:
    """Return a locked lock to use as a gate: one thread waits until another thread opens it by releasing the lock."""
    gate = threading.Lock()
    gate.acquire()
    return gate


def wake(gate: threading.Lock) -> None:
    """Open a gate. Does nothing if it is open."""
    try:
        gate.release()
    except RuntimeError:
        return


class Flag:
    """A flag like `threading.Event`, for which only one thread waits.

    If a signal handler's exception interrupts `set`, the flag is either set or not. A `threading.Event` would keep its
    inner lock, and the next thread that sets it or waits for it would wait for ever.
    """

    def __init__(self) -> None:
        self._is_set = False
        self._gate = closed_gate()

    def is_set(self) -> bool:
        """True if the flag has been set since it was last cleared."""
        return self._is_set

    def set(self) -> None:
        """Set the flag, and wake the waiting thread."""
        self._is_set = True
        wake(self._gate)

    def clear(self) -> None:
        """Clear the flag. The next wait may nevertheless return at once."""
        self._is_set = False
        self._gate.acquire(blocking=False)

    def wait(self, seconds: float) -> bool:
        """Wait up to ``seconds`` for the flag to be set. Returns True if it is."""
        if not self._is_set:
            self._gate.acquire(timeout=max(seconds, 0.0))
        return self._is_set


# Retries of a whole unit of work while the database is busy.
#
# There are up to six retries, with pauses of 50 ms doubling to 2 s. Each pause varies by up to a quarter, so that
# writers do not retry in step. The database's own busy timeout comes first and reacts faster. After a lost connection
# there is one retry, and only if it is certain that nothing was written.

_LEAST_STRETCH, _MOST_STRETCH = 0.75, 1.25

_log = logging.getLogger("lastlight_state.backends")


@dataclass(frozen=True)
class Retry:
    """The retry policy of a store. Tests may replace ``sleep``, and ``stretch``, a factor near 1 for each pause."""

    metrics: Metrics
    #: The latest start of a retry, in seconds after the first failure. None: only the number of retries is limited.
    seconds: float | None = None
    #: The seconds that one attempt waits for a lock.
    lock_seconds: float = 0.0
    limit: int = 6
    base: float = 0.05
    cap: float = 2.0
    sleep: Callable[[float], None] = pause
    stretch: Callable[[], float] = field(default=lambda: random.uniform(_LEAST_STRETCH, _MOST_STRETCH))  # noqa: S311 - not for secrets

    def run(self, attempt: Callable[[], T], *, repeatable: bool = False, label: str | None = None) -> T:
        """Run ``attempt``, a whole unit, and return its result. It may be run several times.

        ``label`` names the unit in metrics. With ``repeatable``, the attempt may also be retried after an unknown
        outcome, because it then finds its earlier writes.
        """
        try:
            return attempt()
        except BackendError as error:
            return self.again(attempt, error, repeatable=repeatable, label=label)

    def again(self, attempt: Callable[[], T], error: BackendError, *, repeatable: bool, label: str | None = None) -> T:
        """Retry ``attempt`` after it failed with ``error``, and return its result. Raises the last error."""
        own = Deadline(self._after_failure)
        with own as deadline:
            last = min(own.end - self.lock_seconds, deadline.end)
            return self._again(attempt, error, last, repeatable=repeatable, label=label)

    @property
    def most_seconds(self) -> float:
        """Return the most seconds that a call can spend waiting for locks and between retries."""
        return self.lock_seconds + self._after_failure

    @property
    def _after_failure(self) -> float:
        pauses = sum(min(self.cap, self.base * 2**repeat) for repeat in range(self.limit)) * _MOST_STRETCH
        last: float = pauses + max(0, self.limit - 1) * self.lock_seconds
        return (last if self.seconds is None else min(self.seconds, last)) + self.lock_seconds

    def _again(
        self, attempt: Callable[[], T], error: BackendError, last: float, *, repeatable: bool, label: str | None
    ) -> T:
        """Retry as `again` does, but begin no retry later than ``last``."""
        repeats, in_doubt = 0, False
        while True:
            in_doubt = in_doubt or error.outcome == "unknown"
            busy = isinstance(error, BackendBusy)
            allowed = self._limit_when_busy(error) if busy else _when_unavailable(error, repeatable)
            pause = min(self.cap, self.base * 2**repeats) * self.stretch()
            if repeats >= allowed or time.monotonic() + pause > last:
                if in_doubt:
                    error.outcome = "unknown"  # an earlier attempt's outcome is unknown, whatever the last one's is
                self.gives_up(error, repeats, label=label)
                raise error
            self.sleep(pause)
            repeats += 1
            self.metrics.count("retries", label=label)
            try:
                return attempt()
            except BackendError as next_error:
                error = next_error

    def gives_up(self, error: BackendError, repeats: int = 0, *, label: str | None = None) -> None:
        """Count and log a call that gives up because others held the locks. Cancelled calls are not counted."""
        if isinstance(error, BackendBusy) and error.details.get("reason") != CANCELLED:
            self.metrics.count("gave_up", label=label)
            _log.warning("%s gave up after %d repetitions: %s", label or "a call", repeats, type(error).__name__)

    def _limit_when_busy(self, error: BackendError) -> int:
        """Return the limit of retries, or 0 for an error that must not be retried (``final``)."""
        return 0 if error.details.get("final") else self.limit


def _when_unavailable(error: BackendError, repeatable: bool) -> int:
    if not isinstance(error, BackendUnavailable):
        return 0
    if error.outcome == "unknown" and not repeatable:
        return 0
    return int(error.details.get("repeats", 0))
