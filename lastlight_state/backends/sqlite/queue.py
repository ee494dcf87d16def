"""A lock that is given in the order it was asked for.

Writers of one SQLite file queue on it before they queue on the file, because the file's own lock is a lottery that
some thread can lose for seconds.
"""

from __future__ import annotations

import threading
from collections import deque


class FairLock:
    """First come, first served, between threads of one process."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._held = False
        self._waiting: deque[threading.Lock] = deque()

    @property
    def held(self) -> bool:
        """Whether somebody has the lock."""
        return self._held

    def acquire(self, timeout: float) -> bool:
        """Wait for at most ``timeout`` seconds; whether the lock is now held."""
        with self._guard:
            if not self._held:
                self._held = True
                return True
            turn = threading.Lock()
            turn.acquire()
            self._waiting.append(turn)
        try:
            if turn.acquire(timeout=timeout):
                return True
        except BaseException:  # Ctrl-C: whoever has gone must not be handed the lock
            if not self._leave(turn):
                self.release()
            raise
        return not self._leave(turn)

    def release(self) -> None:
        """Hand the lock to the one that waits longest, if any."""
        with self._guard:
            if self._waiting:
                self._waiting.popleft().release()
            else:
                self._held = False

    def _leave(self, turn: threading.Lock) -> bool:
        """Give up waiting; False when the lock was handed over in the very moment that the wait ended."""
        with self._guard:
            if turn in self._waiting:
                self._waiting.remove(turn)
                return True
            return False
