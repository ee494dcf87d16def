"""The outcomes of awaited calls: how they come to the event loop, and what happens to calls that wait for a thread."""

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

#: Seconds after which an event loop is woken again that has not handed out an outcome, and after which a lane of one
#: block looks whether the loop is closed. A loop drops the callback in which a signal's handler raises, and one that
#: such an exception ends may leave a task that nobody will ever resume.
AGAIN = 0.25
#: How often a loop looks at its calls that no thread was free for.
LOOK = 0.1


class Outcome(asyncio.Future[Any]):
    """The outcome of a call.

    A task that is cancelled before any thread has begun its call gets its CancelledError at once, and the call is never
    made. Later the call is told, so that it stops waiting if it waits; what it does is awaited, so that no write is
    left in doubt, and then comes the CancelledError.
    """

    #: Told of a cancellation, so that what is waited for can come to its end.
    on_cancel: Callable[[], object] | None = None
    #: How long the call waits for others. None for a call that ends something, which is made even if it is cancelled.
    patience: Patience | None = None
    #: When the call was awaited, on the monotonic clock, if no thread was free then; else 0.
    waits_since = 0.0
    is_judged = False

    def __init__(self, call: Call, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop=loop)
        #: The call, while no thread has begun it.
        self.call = [call]

    def take(self) -> Call | None:
        """Return the call to the first thread that asks, and None to all others."""
        try:
            return self.call.pop()
        except IndexError:
            return None

    def refuse(self, error: BaseException) -> None:
        """Raise ``error`` where the call is awaited, unless a thread has begun it. In the loop's thread."""
        if self.take() is not None and not self.done():
            self.set_exception(error)

    def cancel(self, msg: Any = None) -> bool:
        """Cancel the call. Return whether it will never be made."""
        if self.on_cancel is not None:
            self.on_cancel()
        if self.patience is None:
            return False
        self.patience.end()
        return self.take() is not None and super().cancel(msg)


@dataclass(frozen=True)
class Limit:
    """How long the calls of a lane wait for a thread of it, and what happens to them meanwhile."""

    seconds: float
    #: Makes the error of a call that has waited so long.
    refusal: Callable[[], Exception]
    #: Judges the arguments of a call that waits, and has what is wrong with them raised where it is awaited.
    judge: Callable[[Outcome], object]


class WaitingCalls:
    """The calls of one event loop that no thread was free for. They are looked at while there are any.

    A call that waits longer than `LOOK` is judged, so that a wrong argument is told before the wait is over. At the
    limit it is refused. In a lane that moves on neither happens.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, limit: Limit) -> None:
        self._loop = weakref.ref(loop)
        self._limit = limit
        self._pause = min(LOOK, limit.seconds)
        self._outcomes: list[Outcome] = []
        self._looks_at = -inf

    def add(self, outcome: Outcome) -> None:
        """Look after a call from now on."""
        now = outcome.waits_since = time.monotonic()
        self._outcomes.append(outcome)
        if now > self._looks_at + AGAIN:  # no look is due, or the loop has dropped it
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
    """Hands outcomes to one event loop. Those that come together wake it once."""

    def __init__(self, loop: asyncio.AbstractEventLoop, limit: Limit | None = None) -> None:
        self._loop = weakref.ref(loop)
        #: The loop's calls that wait for a thread; None where they wait without a limit.
        self.waiting_calls = None if limit is None else WaitingCalls(loop, limit)
        self._done: deque[tuple[Outcome, Any, BaseException | None]] = deque()
        self._woken = False

    def put(self, outcome: Outcome, result: Any, error: BaseException | None) -> None:
        """Add an outcome, from a worker thread. Nobody is told where the loop was closed meanwhile."""
        if isinstance(error, StopIteration):  # no future takes one
            error = RuntimeError("the call raised StopIteration").with_traceback(error.__traceback__)
        self._done.append((outcome, result, error))
        if not self._woken:
            self._woken = True
            self.wake()

    @property
    def waiting(self) -> bool:
        """Return whether the loop has outcomes to hand out."""
        return bool(self._done)

    @property
    def is_over(self) -> bool:
        """Return whether the loop is closed: none of its tasks will go on."""
        loop = self._loop()
        return loop is None or loop.is_closed()

    @property
    def is_running(self) -> bool:
        """Return whether the loop runs at this moment."""
        loop = self._loop()
        return loop is not None and loop.is_running()

    def wake(self) -> None:
        """Have the loop hand out what there is. Once more does no harm."""
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
                done.popleft()  # only now: a signal's exception may come in between
        finally:
            if done:
                done[0][0].get_loop().call_soon(self._deliver)


def _settle(outcome: Outcome, result: Any, error: BaseException | None) -> None:
    if error is None:
        outcome.set_result(result)
    else:
        outcome.set_exception(error)
