"""How long a call waits for others, and waits that end early when nobody wants the answer any more.

A call waits for its turn, for the file's lock and between repetitions. All of that ends at its `Deadline`. What runs on
a worker thread for a coroutine can be told meanwhile that it was cancelled; then it stops waiting, with `BackendBusy`.
It never stops working.
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

#: The ``reason`` of a `BackendBusy` that came of nobody's locks: the caller wants no answer any more.
CANCELLED = "cancelled"

#: A look with a ``timeout`` that is shorter, such as 0, waits so many seconds for a lock all the same.
LEAST_LOOK = 0.25

T = TypeVar("T")


class _OfThread(threading.local):
    deadline: Deadline | None = None
    patience: Patience | None = None


#: What holds for the calls of a thread. Each unit looks at it, and calls nothing where there is no deadline.
of_thread = _OfThread()


def all_in_use(what: str = "connections of the pool") -> BackendUnavailable:
    """Return the error of a call that waited too long for one of these."""
    return BackendUnavailable(f"all {what} stayed in use", reason="pool")


def line_too_long() -> BackendBusy:
    """Return the error of a call that waited too long to write a SQLite file."""
    return BackendBusy("waited too long for the other writers of this process", final=True)


class Patience:
    """Of one call: lasts until `end`, which any thread may call."""

    def __init__(self) -> None:
        self.over = False
        #: For how many seconds the call has waited for a thread, until another wait has been shortened by them.
        self.spent = 0.0
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


class Deadline(HeldResource):
    """Ends all waits of one call: so many seconds after the first of them began.

    It holds for everything that this thread does inside the ``with`` block, however many units, files and repetitions
    that takes. Inside the block of another deadline, the sooner one holds.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._end: float | None = None
        self.before: Deadline | None = None

    @property
    def end(self) -> float:
        """Return the moment on the monotonic clock. Asking for the first time begins the count."""
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
    """Return the moment when a wait of so many seconds ends, or this thread's deadline if it is sooner."""
    end, deadline = time.monotonic() + seconds, _deadline()
    return end if deadline is None else min(end, deadline.end)


def shortened(seconds: float) -> float | None:
    """Return what is left until this thread's deadline, for a wait of so many seconds; None where it is no shorter.

    A wait of no seconds is one without a limit of ours.
    """
    if of_thread.deadline is None or not seconds:  # as nearly always
        return None
    deadline = _deadline()
    left = seconds if deadline is None else deadline.end - time.monotonic()
    return max(left, 0.0) if left < seconds else None


def within(seconds: float, call: Callable[[], T]) -> T:
    """Return what ``call`` gives, whose waits for locks end after so many seconds; `LEAST_LOOK` at least.

    It is for calls with a ``timeout``: a statement that waits for a lock is given up then, and none is repeated later.
    """
    with Deadline(max(seconds, LEAST_LOOK)) as deadline:
        deadline.end  # noqa: B018 - the count begins
        return call()


def left_of(seconds: float) -> float:
    """Return how much is left of a wait of so many seconds that began when the call of this thread was awaited.

    Only the first wait of a call is shortened by the time that it waited for a thread.
    """
    patience = of_thread.patience
    if patience is None or not patience.spent:
        return seconds
    spent, patience.spent = patience.spent, 0.0
    return max(seconds - spent, 0.0)


def _deadline() -> Deadline | None:
    found = of_thread.deadline
    while found is not None and found.handle is not None and found.gone:  # its block was cut off
        found = found.before
    return found


def lend(patience: Patience | None) -> None:
    """Make this thread's waits as patient as that, or endless, from now on."""
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
    """Return the patience of this thread's call: None if it is endless."""
    found = of_thread.patience
    while isinstance(found, NoPatience) and found.gone:  # its block was cut off
        found = found.before
    return found


def wait(gate: threading.Lock, seconds: float) -> None:
    """Wait at a closed gate. Raises `BackendBusy` when this call's patience is over."""
    patience = _patience()
    if patience is None:
        gate.acquire(timeout=seconds)
    else:
        patience.wait(gate, seconds)
        refuse_ended()


def pause(seconds: float) -> None:
    """Sleep. Raises `BackendBusy` when this call's patience is over."""
    if _patience() is None:
        time.sleep(seconds)
    else:
        wait(closed_gate(), seconds)


def refuse_ended() -> None:
    """Raise `BackendBusy` when this call's patience is over."""
    patience = _patience()
    if patience is not None and patience.over:
        raise BackendBusy("the call was cancelled while it waited", final=True, reason=CANCELLED)


def closed_gate() -> threading.Lock:
    """Return a lock that is taken, for one thread to wait at and others to open."""
    gate = threading.Lock()
    gate.acquire()
    return gate


def wake(gate: threading.Lock) -> None:
    """Open a gate. Opening one that is open changes nothing."""
    try:
        gate.release()
    except RuntimeError:
        return


class Flag:
    """A `threading.Event` for which one thread waits.

    An exception of a signal in the middle of `set` may come before or after it. In an event it leaves a lock behind,
    for which whoever sets or waits next waits for ever.
    """

    def __init__(self) -> None:
        self._is_set = False
        self._gate = closed_gate()

    def is_set(self) -> bool:
        """Return whether it has been set since it was last cleared."""
        return self._is_set

    def set(self) -> None:
        """Set it, and wake the thread that waits."""
        self._is_set = True
        wake(self._gate)

    def clear(self) -> None:
        """Clear it. The next wait may still return at once."""
        self._is_set = False
        self._gate.acquire(blocking=False)

    def wait(self, seconds: float) -> bool:
        """Wait until it is set, for so many seconds at most, and return whether it is."""
        if not self._is_set:
            self._gate.acquire(timeout=max(seconds, 0.0))
        return self._is_set


# Repeats a whole unit of work while the database is busy.
#
# Up to six retries, 50 ms doubling to 2 s, each stretched or shortened by up to a quarter so that writers do not meet
# again in step. The database's own busy timeout waits finely before that; this is the coarse part behind it. A lost
# connection is met by repeating once, and only when it is certain that nothing was written.

_LEAST_STRETCH, _MOST_STRETCH = 0.75, 1.25

_log = logging.getLogger("lastlight_state.backends")


@dataclass(frozen=True)
class Retry:
    """The retry budget of a store. ``sleep`` and ``stretch`` (a factor around 1) can be replaced by tests."""

    metrics: Metrics
    #: No repetition begins later than this many seconds after the first failure. None: the repeats are the limit.
    seconds: float | None = None
    #: For how long one attempt waits for a lock.
    lock_seconds: float = 0.0
    limit: int = 6
    base: float = 0.05
    cap: float = 2.0
    sleep: Callable[[float], None] = pause
    stretch: Callable[[], float] = field(default=lambda: random.uniform(_LEAST_STRETCH, _MOST_STRETCH))  # noqa: S311 - not for secrets

    def run(self, attempt: Callable[[], T], *, repeatable: bool = False, label: str | None = None) -> T:
        """Return the result of ``attempt``, which is a whole unit and may run several times.

        ``label`` names it in metrics.

        ``repeatable``: a second run after an unknown outcome finds what the first one wrote, so it may be repeated too.
        """
        try:
            return attempt()
        except BackendError as error:
            return self.again(attempt, error, repeatable=repeatable, label=label)

    def again(self, attempt: Callable[[], T], error: BackendError, *, repeatable: bool, label: str | None = None) -> T:
        """Return the result of a repetition after the first attempt failed with ``error``, or the last error."""
        own = Deadline(self._after_failure)
        with own as deadline:
            last = min(own.end - self.lock_seconds, deadline.end)
            return self._again(attempt, error, last, repeatable=repeatable, label=label)

    @property
    def most_seconds(self) -> float:
        """Return how long a call waits for locks and between its repetitions, at most."""
        return self.lock_seconds + self._after_failure

    @property
    def _after_failure(self) -> float:
        pauses = sum(min(self.cap, self.base * 2**repeat) for repeat in range(self.limit)) * _MOST_STRETCH
        last: float = pauses + max(0, self.limit - 1) * self.lock_seconds
        return (last if self.seconds is None else min(self.seconds, last)) + self.lock_seconds

    def _again(
        self, attempt: Callable[[], T], error: BackendError, last: float, *, repeatable: bool, label: str | None
    ) -> T:
        """Return the same, with no repetition that would begin later than ``last``."""
        repeats, in_doubt = 0, False
        while True:
            in_doubt = in_doubt or error.outcome == "unknown"
            busy = isinstance(error, BackendBusy)
            allowed = self._limit_when_busy(error) if busy else _when_unavailable(error, repeatable)
            pause = min(self.cap, self.base * 2**repeats) * self.stretch()
            if repeats >= allowed or time.monotonic() + pause > last:
                if in_doubt:
                    error.outcome = "unknown"  # of an earlier attempt, whatever came of the last
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
        """Count and log a call that gives up because others held the locks, and not because it was cancelled."""
        if isinstance(error, BackendBusy) and error.details.get("reason") != CANCELLED:
            self.metrics.count("gave_up", label=label)
            _log.warning("%s gave up after %d repetitions: %s", label or "a call", repeats, type(error).__name__)

    def _limit_when_busy(self, error: BackendError) -> int:
        """0 for an error that must not be retried (``final``), else the limit."""
        return 0 if error.details.get("final") else self.limit


def _when_unavailable(error: BackendError, repeatable: bool) -> int:
    if not isinstance(error, BackendUnavailable):
        return 0
    if error.outcome == "unknown" and not repeatable:
        return 0
    return int(error.details.get("repeats", 0))
