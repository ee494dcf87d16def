"""A line of those who want a place, served in the order they came.

Writers of one SQLite file stand in it before they queue on the file, because the file's own lock is a lottery that some
thread can lose for seconds; callers of a Postgres pool stand in it for a connection.

The line itself is the lock: who stands far enough in front has a place. So there is no moment at which a place is taken
and nobody known to have it, whatever is raised in between, and whoever waits looks whether those in front are still
there. Each step is one operation of a deque, which no other thread interrupts: to iterate over it would be many.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from itertools import islice
from threading import get_ident

from lastlight_state.backends import patience
from lastlight_state.errors import NestedTransaction
from lastlight_state.unwinding import Held

#: How often those who wait look whether those in front are still there.
LOOK_SECONDS = 0.05


class Turn(Held):
    """A caller that waits in a line."""

    #: Where its thread waits, if it had to.
    gate: threading.Lock | None = None
    thread: int = 0


class Line:
    """First come, first served, between threads of one process."""

    def __init__(self, places: int = 1) -> None:
        self._turns: deque[Turn] = deque()
        self._places = places

    def __len__(self) -> int:
        return len(self._turns)

    def enter(self, turn: Turn, timeout: float) -> bool:
        """Wait for at most ``timeout`` seconds; whether it has a place now. `leave` in any case that raises."""
        turn.thread = get_ident()
        self._turns.append(turn)
        return len(self._turns) <= self._places or self._wait(turn, timeout)

    def leave(self, turn: Turn) -> None:
        """Give up the place, or waiting for one. Whoever is not in the line, is not in it afterwards either."""
        turns = self._turns
        try:
            turns.remove(turn)
        except ValueError:
            return
        if len(turns) >= self._places:
            self._call_forward()

    def serves(self, turn: Turn) -> bool:
        """Whether it has a place."""
        return turn in self._served()

    def _wait(self, turn: Turn, timeout: float) -> bool:
        gate = turn.gate = patience.closed_gate()
        end = patience.until(timeout)
        while True:
            self._dismiss_the_gone()
            served = self._served()
            if turn in served:
                return True
            self._refuse_itself(turn, served)
            left = end - time.monotonic()
            if left <= 0:
                self.leave(turn)
                return False
            patience.wait(gate, min(left, LOOK_SECONDS))

    def _dismiss_the_gone(self) -> None:
        for turn in self._served():
            if turn.gone:
                self.leave(turn)

    def _refuse_itself(self, turn: Turn, served: list[Turn]) -> None:
        """A thread that waited for itself would wait for ever: in a signal's handler, or in a finalizer."""
        if self._places == 1 and any(first.thread == turn.thread for first in served):
            raise NestedTransaction("this call came in the middle of another one of its own thread, and waits for it")

    def _call_forward(self) -> None:
        for turn in self._served():
            if turn.gate is not None:
                patience.wake(turn.gate)

    def _served(self) -> list[Turn]:
        """Those who have a place."""
        return list(islice(self._turns.copy(), self._places))
