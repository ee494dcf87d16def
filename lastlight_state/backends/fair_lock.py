"""A fair lock between threads: callers get the lock in the order of their requests.

Writers of one SQLite file wait here before they request the file's lock, because SQLite serves waiters in random order,
so that some thread could wait for seconds. Callers of a Postgres pool wait here for a connection.

The queue itself is the lock: the callers at its front hold the places. So an exception at any point cannot leave a
place taken without a known holder. Waiting callers check whether the callers in front still exist. Each step is one
operation of a deque, which no other thread can interrupt; iterating over the deque would be many operations.
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

#: The seconds between two checks of a waiting caller whether those in front are still there.
LOOK_SECONDS = 0.05


class GroupFailed(BackendBusy):
    """Raised in each unit of a group that was rolled back as a whole. Each unit is then run again by itself."""


class Turn(HeldResource):
    """A caller's entry in the queue of a `FairLock`."""

    #: The gate at which the caller's thread waits, if it had to wait.
    gate: threading.Lock | None = None
    thread: int = 0
    #: True if the holder of the lock may run this caller's work as well (`backends.sqlite.group_commit`).
    groupable = False
    #: The context for that work, while the caller waits. The thread that pops it runs the work.
    offered: list[Context] | None = None
    #: The group that runs this caller's work.
    group: Group | None = None

    def make(self) -> None:
        """Run the caller's work, called by another thread. Only a `groupable` caller is run so."""

    def withdraw(self) -> bool:
        """Withdraw the offer that another thread may run this caller's work.

        Returns False if the work has already begun: the caller must then wait for its outcome.
        """
        if self.offered:
            with suppress(IndexError):
                self.offered.pop()
                return True
        return self.group is None


class Group:
    """A group of callers. The first one runs the work of all, while the others wait."""

    state: Literal["open", "committing", "committed"] = "open"


class FairLock:
    """A lock with one or more places for threads of one process, served in the order of requests."""

    def __init__(self, places: int = 1) -> None:
        self._turns: deque[Turn] = deque()
        self._places = places

    def __len__(self) -> int:
        return len(self._turns)

    def enter(self, turn: Turn, timeout: float) -> bool:
        """Wait up to ``timeout`` seconds for a place. Return True if the caller has a place, or no longer needs one.

        If this raises, call `leave`.
        """
        turn.thread = get_ident()
        self._turns.append(turn)
        return len(self._turns) <= self._places or self._wait(turn, timeout)

    def leave(self, turn: Turn) -> None:
        """Give up the caller's place, or stop waiting for one. Does nothing if the caller is not in the queue."""
        turns = self._turns
        if turn.offered:
            turn.withdraw()
        try:
            turns.remove(turn)
        except ValueError:
            return
        if len(turns) >= self._places:
            self._call_forward()

    def waiting_turns(self) -> list[Turn]:
        """Return the waiting callers in the order of the queue."""
        return list(islice(self._turns.copy(), self._places, None))

    def dismiss(self, turns: Sequence[Turn]) -> None:
        """Remove callers that no longer need a place from the queue, and wake them."""
        for turn in turns:
            with suppress(ValueError):  # it has left
                self._turns.remove(turn)
            if turn.gate is not None:
                waiting.wake(turn.gate)

    def serves(self, turn: Turn) -> bool:
        """True if the caller is near enough to the front of the queue to have a place."""
        return turn in self._served_turns()

    def _wait(self, turn: Turn, timeout: float) -> bool:
        gate = turn.gate = waiting.closed_gate()
        end = waiting.until(waiting.left_of(timeout))
        if turn.groupable:
            turn.offered = [copy_context()]
        while True:
            group = turn.group
            if group is not None and group.state == "committed":
                return True
            self._dismiss_the_gone()
            served = self._served_turns()
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
        for turn in self._served_turns():
            if turn.is_gone:
                self.leave(turn)

    def _refuse_itself(self, turn: Turn, served: list[Turn]) -> None:
        """Raise `NestedTransaction` if a thread in a signal handler or finalizer would wait for itself."""
        if self._places == 1 and any(first.thread == turn.thread for first in served):
            raise NestedTransaction("this call came in the middle of another one of its own thread, and waits for it")

    def _call_forward(self) -> None:
        for turn in self._served_turns():
            if turn.gate is not None:
                waiting.wake(turn.gate)

    def _served_turns(self) -> list[Turn]:
        """Return the callers that have a place now."""
        return list(islice(self._turns.copy(), self._places))


def _wait_at(gate: threading.Lock, turn: Turn, seconds: float) -> None:
    """Wait at the gate for these seconds, or until it is opened.

    If a group already runs the caller's work, a cancelled call keeps waiting for the outcome.
    """
    if turn.group is not None:
        gate.acquire(timeout=LOOK_SECONDS)
        return
    try:
        waiting.wait(gate, max(seconds, 0))
    except BackendBusy:
        if turn.withdraw():
            raise
