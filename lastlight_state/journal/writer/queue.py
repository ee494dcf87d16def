"""The queue of events that wait to be stored, and of callers that wait for them.

An exception from outside, for example of a signal handler, may interrupt a caller between any two instructions. So each
change of the queue is a single operation of a deque. Each entry holds the sum of all sizes up to itself: the queue's
size is the difference of two such sums, and stays right after an interruption.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from itertools import islice

from lastlight_state.backends import waiting
from lastlight_state.errors import StateError
from lastlight_state.journal.events.checks import EventDraft
from lastlight_state.locks import RLock

#: Seconds after which waiting callers check for themselves, in case nothing woke them.
LOOK_SECONDS = 0.25


class Entry:
    """A queued event: its columns, and once decided, its number or its error."""

    __slots__ = ("error", "has_left", "is_keyed", "queued_at", "row", "seq", "size", "total")

    def __init__(self, row: EventDraft, *, is_keyed: bool) -> None:
        self.row = row
        #: True if the caller gave the key, so that the event may have been stored before it was queued.
        self.is_keyed = is_keyed
        payload = row["payload"]
        self.size = len(payload) if payload.isascii() else len(payload.encode())
        #: The sum of the sizes of all entries that were ever queued, up to this one.
        self.total = 0
        self.queued_at = time.monotonic()
        self.seq: int | None = None
        self.error: Exception | None = None
        self.has_left = False

    @property
    def is_decided(self) -> bool:
        """True if the event is stored or given up."""
        return self.seq is not None or self.error is not None


class Queue:
    """A first-in, first-out queue of entries. Callers append, and one thread removes entries from the front."""

    def __init__(self, most: int, most_bytes: int) -> None:
        #: The error that refuses further entries, or None while the queue takes entries.
        self.refusal: StateError | None = None
        self._most = most
        self._most_bytes = most_bytes
        self._entries: deque[Entry] = deque()
        self._left_total = 0
        self._lock = RLock()  # a signal's handler may append in the middle of an append
        self._wakers: deque[Callable[[], object]] = deque()

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def bytes(self) -> int:
        """Return the total size of all queued payloads, in bytes."""
        return self._total() - self._left_total

    @property
    def last(self) -> Entry | None:
        """Return the last entry, or None if the queue is empty."""
        try:
            return self._entries[-1]
        except IndexError:
            return None

    def entries(self) -> list[Entry]:
        """Return all entries, the first one first."""
        return list(self._entries)

    def head(self, most: int) -> list[Entry]:
        """Return up to ``most`` entries from the front."""
        return list(islice(self._entries.copy(), most))  # a copy does not change while it is read

    def offer(self, entry: Entry) -> bool:
        """Append the entry and return True, or return False if there is no room.

        Raises the error if entries are refused.
        """
        with self._lock:
            self.refuse_if_over()
            if not self.has_room(entry.size):
                return False
            entry.total = self._total() + entry.size
            self._entries.append(entry)
        return True

    def has_room(self, size: int) -> bool:
        """True if an entry of this size can be appended. An empty queue accepts an entry of any size."""
        return not self._entries or (len(self._entries) < self._most and self.bytes + size <= self._most_bytes)

    def refuse(self, error: StateError) -> None:
        """Refuse further entries with this error, unless an earlier error refuses them already."""
        with self._lock:
            self.refusal = self.refusal or error

    def refuse_if_over(self) -> None:
        """Raise a copy of the error with which the queue refuses entries, if there is one."""
        if self.refusal is not None:
            raise type(self.refusal)(str(self.refusal))

    def remove(self, entry: Entry) -> None:
        """Remove the entry from the queue if it is the first."""
        if self._entries and self._entries[0] is entry:
            self._left_total = entry.total
            self._entries.popleft()
            entry.has_left = True

    def wait(self, until: Callable[[], bool], seconds: float | None) -> bool:
        """Wait until ``until()`` is true, for at most ``seconds``. Returns whether it became true.

        Calls ``until`` again whenever an entry was stored or given up. Raises `BackendBusy` if the call runs for a
        coroutine that was cancelled.
        """
        gate = waiting.closed_gate()
        end = None if seconds is None else time.monotonic() + seconds
        with self.registered_waker(partial(waiting.wake, gate)):
            while not until():
                left = LOOK_SECONDS if end is None else end - time.monotonic()
                if left <= 0:
                    return False
                waiting.wait(gate, min(left, LOOK_SECONDS))
            return True

    @contextmanager
    def registered_waker(self, waker: Callable[[], object]) -> Iterator[None]:
        """Call ``waker`` whenever an entry may have been stored or given up, until the block ends."""
        self._wakers.append(waker)
        try:
            yield
        finally:
            with suppress(ValueError):
                self._wakers.remove(waker)

    def wake(self) -> None:
        """Call all wakers, so that waiting callers check their condition again."""
        for waker in list(self._wakers):
            waker()

    def after_fork(self, error: StateError) -> None:
        """Drop all entries and refuse further ones with this error, in a child process after ``fork()``."""
        self._lock = RLock()
        self.refusal = error
        for entry in self._entries:
            entry.error = error
        self._entries.clear()
        self._wakers.clear()

    def _total(self) -> int:
        last = self.last
        return self._left_total if last is None else last.total
