"""The outcomes of awaited calls: delivers them to the event loop, and handles calls that wait for a thread."""

from __future__ import annotations

import asyncio
import time
import weakref
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from typing import Any

from lastlight_state.backends.waiting import Patience

Call = Callable[[], Any]

#: Seconds after which an event loop is woken again if it has not delivered an outcome. Also seconds between a lane's
#: looks at whether its block's loop is closed. A loop can lose a callback: a signal handler may raise in it. A loop
#: that such an exception ends may leave a task that is never resumed.
AGAIN = 0.25
#: Seconds between two looks of a loop at its calls that wait for a thread.
LOOK = 0.1


class Outcome(asyncio.Future[Any]):
    """The future result of a call.

    If a task is cancelled before a thread has begun its call, it gets CancelledError at once, and the call is never
    made. If a thread has begun the call, the call is told of the cancellation, so that it ends its waits. The task
    still waits for the call's end, so that the outcome of a write is known. Then CancelledError is raised.
    """

    #: Called on cancellation, so that the call's wait can end.
    on_cancel: Callable[[], object] | None = None
    #: How long the call waits for locks and connections. None for a cleanup call, which runs even if cancelled.
    patience: Patience | None = None
    #: Monotonic time at which the call began to wait for a thread, or 0 if a thread was free.
    waits_since = 0.0
    is_judged = False

    def __init__(self, call: Call, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop=loop)
        #: The call in a list, which the thread that begins it empties.
        self.call = [call]

    def take(self) -> Call | None:
        """Return the call to the first thread that requests it. Return None to every later thread."""
        try:
            return self.call.pop()
        except IndexError:
            return None

    def refuse(self, error: BaseException) -> None:
        """Make the caller's await raise ``error``, unless a thread has begun the call.

        Call this in the loop's thread.
        """
        if self.take() is not None and not self.done():
            self.set_exception(error)

    def cancel(self, msg: Any = None) -> bool:
        """Cancel the call. Return True if it will never be made."""
        if self.on_cancel is not None:
            self.on_cancel()
        if self.patience is None:
            return False
        self.patience.end()
        return self.take() is not None and super().cancel(msg)


@dataclass(frozen=True)
class Limit:
    """How long a lane's calls may wait for a thread, and how they are handled during this wait."""

    seconds: float
    #: Creates the error for a call that has waited too long.
    refusal: Callable[[], Exception]
    #: Checks the arguments of a waiting call. If they are wrong, the error is raised where the call is awaited.
    judge: Callable[[Outcome], object]


class WaitingCalls:
    """The calls of one event loop that wait for a thread. While there are any, they are checked every `LOOK` seconds.

    After `LOOK` seconds a call's arguments are checked, so that a wrong one is reported early. At the limit the call is
    refused. In a lane whose threads keep finishing calls, neither happens.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, limit: Limit) -> None:
        self._loop = weakref.ref(loop)
        self._limit = limit
        self._pause = min(LOOK, limit.seconds)
        self._outcomes: list[Outcome] = []
        self._looks_at = -inf

    def add(self, outcome: Outcome) -> None:
        """Begin to watch a call that waits for a thread."""
        now = outcome.waits_since = time.monotonic()
        self._outcomes.append(outcome)
        if now > self._looks_at + AGAIN:  # no look is scheduled, or the loop has lost it
            self._look_later(now)

    def _look_later(self, now: float) -> None:
        loop = self._loop()
        if loop is not None:
            self._looks_at = now + self._pause
            loop.call_later(self._pause, self._look)

    def _look(self) -> None:
        self._outcomes = [outcome for outcome in self._outcomes if outcome.call]
        now = time.monotonic()
        for outcome in self._outcomes:
            waited = now - outcome.waits_since
            if waited >= self._limit.seconds:
                outcome.refuse(self._limit.refusal())
            elif waited >= self._pause and not outcome.is_judged:
                outcome.is_judged = True
                self._limit.judge(outcome)
        if self._outcomes:
            self._look_later(now)
        else:
            self._looks_at = -inf


class Completions:
    """Delivers outcomes to one event loop. Outcomes that arrive together wake the loop once."""

    def __init__(self, loop: asyncio.AbstractEventLoop, limit: Limit | None = None) -> None:
        self._loop = weakref.ref(loop)
        #: The loop's calls that wait for a thread. None if the lane has no time limit.
        self.waiting_calls = None if limit is None else WaitingCalls(loop, limit)
        self._done: deque[tuple[Outcome, Any, BaseException | None]] = deque()
        self._woken = False

    def put(self, outcome: Outcome, result: Any, error: BaseException | None) -> None:
        """Add an outcome from a worker thread. It is dropped if the loop is closed."""
        if isinstance(error, StopIteration):  # a future does not accept it
            error = RuntimeError("the call raised StopIteration").with_traceback(error.__traceback__)
        self._done.append((outcome, result, error))
        if not self._woken:
            self._woken = True
            self.wake()

    @property
    def has_outcomes(self) -> bool:
        """True if there are outcomes to deliver."""
        return bool(self._done)

    @property
    def is_over(self) -> bool:
        """True if the loop is closed or no longer exists, so that none of its tasks will continue."""
        loop = self._loop()
        return loop is None or loop.is_closed()

    @property
    def is_running(self) -> bool:
        """True if the loop is running now."""
        loop = self._loop()
        return loop is not None and loop.is_running()

    def wake(self) -> None:
        """Make the loop deliver all outcomes. An unnecessary call does no harm."""
        loop = self._loop()
        try:
            if loop is not None:
                loop.call_soon_threadsafe(self._deliver)
        except RuntimeError:
            self._done.clear()

    def _deliver(self) -> None:
        self._woken = False
        done = self._done
        try:
            while done:
                outcome, result, error = done[0]
                if not outcome.done():
                    _settle(outcome, result, error)
                done.popleft()  # only after it is settled: a signal handler may raise before
        finally:
            if done:
                done[0][0].get_loop().call_soon(self._deliver)


def _settle(outcome: Outcome, result: Any, error: BaseException | None) -> None:
    if error is None:
        outcome.set_result(result)
    else:
        outcome.set_exception(error)
