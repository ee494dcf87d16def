"""A fair lock between threads: callers get it in the order in which they came.

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
from collections.abc import Sequence
from contextlib import suppress
from contextvars import Context, copy_context
from itertools import islice
from threading import get_ident
from typing import Literal

from lastlight_state.backends import waiting
from lastlight_state.errors import BackendBusy, NestedTransaction
from lastlight_state.unwinding import HeldResource

#: How often those who wait look whether those in front are still there.
LOOK_SECONDS = 0.05


class GroupFailed(BackendBusy):
    """Turns that one of them did together were undone: each is done again, alone."""


class Turn(HeldResource):
    """A caller that waits in a line."""

    #: Where its thread waits, if it had to.
    gate: threading.Lock | None = None
    thread: int = 0
    #: Whether the one that has the place may do what this one waits for (`backends.sqlite.group_commit`).
    shares = False
    #: The context to do it in, while it waits and nobody has taken it over: who pops it does it.
    offered: list[Context] | None = None
    #: What it was taken over by.
    group: Group | None = None

    def make(self) -> None:
        """Do what the caller waits for. Only where it `shares`."""

    def withdraw(self) -> bool:
        """Let nobody else do what the caller waits for. False if somebody has begun: wait for the outcome."""
        if self.offered:
            with suppress(IndexError):
                self.offered.pop()
                return True
        return self.group is None


class Group:
    """Several turns that the first of them does together, while the others wait."""

    state: Literal["open", "committing", "committed"] = "open"


class FairLock:
    """First come, first served, between threads of one process."""

    def __init__(self, places: int = 1) -> None:
        self._turns: deque[Turn] = deque()
        self._places = places

    def __len__(self) -> int:
        return len(self._turns)

    def enter(self, turn: Turn, timeout: float) -> bool:
        """Wait for at most ``timeout`` seconds. Return whether the caller has a place, or needs none any more.

        `leave` in any case that raises.
        """
        turn.thread = get_ident()
        self._turns.append(turn)
        return len(self._turns) <= self._places or self._wait(turn, timeout)

    def leave(self, turn: Turn) -> None:
        """Give up the place, or waiting for one. Does nothing if the caller is not in the line."""
        turns = self._turns
        if turn.offered:
            turn.withdraw()
        try:
            turns.remove(turn)
        except ValueError:
            return
        if len(turns) >= self._places:
            self._call_forward()

    def waiting(self) -> list[Turn]:
        """Return the callers that wait, in their order."""
        return list(islice(self._turns.copy(), self._places, None))

    def dismiss(self, turns: Sequence[Turn]) -> None:
        """Wake callers that wait and need no place any more, and take them out of the line."""
        for turn in turns:
            with suppress(ValueError):  # it has gone
                self._turns.remove(turn)
            if turn.gate is not None:
                waiting.wake(turn.gate)

    def serves(self, turn: Turn) -> bool:
        """Return whether the caller has a place."""
        return turn in self._served()

    def _wait(self, turn: Turn, timeout: float) -> bool:
        gate = turn.gate = waiting.closed_gate()
        end = waiting.until(waiting.left_of(timeout))
        if turn.shares:
            turn.offered = [copy_context()]
        while True:
            group = turn.group
            if group is not None and group.state == "committed":
                return True
            self._dismiss_the_gone()
            served = self._served()
            if turn in served:
                turn.withdraw()
                return True
            self._refuse_itself(turn, served)
            left = end - time.monotonic()
            if left <= 0 and turn.withdraw():
                self.leave(turn)
                return False
            _wait_at(gate, turn, min(left, LOOK_SECONDS))

    def _dismiss_the_gone(self) -> None:
        for turn in self._served():
            if turn.gone:
                self.leave(turn)

    def _refuse_itself(self, turn: Turn, served: list[Turn]) -> None:
        """Raise where a thread would wait for itself for ever: in a signal's handler, or in a finalizer."""
        if self._places == 1 and any(first.thread == turn.thread for first in served):
            raise NestedTransaction("this call came in the middle of another one of its own thread, and waits for it")

    def _call_forward(self) -> None:
        for turn in self._served():
            if turn.gate is not None:
                waiting.wake(turn.gate)

    def _served(self) -> list[Turn]:
        """Return the callers that have a place."""
        return list(islice(self._turns.copy(), self._places))


def _wait_at(gate: threading.Lock, turn: Turn, seconds: float) -> None:
    """Wait for a moment. There is no limit where somebody has begun to do what the caller waits for."""
    if turn.group is not None:
        gate.acquire(timeout=LOOK_SECONDS)
        return
    try:
        waiting.wait(gate, max(seconds, 0))
    except BackendBusy:
        if turn.withdraw():
            raise
