"""The only source of new ids: UUIDv7 as text, strictly increasing within a process.

The layout is that of RFC 9562 with its monotonic counter: 48 bits of Unix milliseconds, then 12 + 62 bits that count up
while the millisecond does not increase. If the clock is set back, ids still increase.
"""

from __future__ import annotations

import hashlib
import os
import re
import time
from collections.abc import Callable, Iterator

from lastlight_state.locks import Lock

#: The form of agent session ids, wherever they are stored: they are used as file names.
SESSION_ID = re.compile(r"[A-Za-z0-9_-]{1,200}")

_RANDOM_BITS = 74
_FRESH_BITS = 72  # a new millisecond starts at a value with room for counting up


class IdSource:
    """A source of ids. It returns each id only once, even to concurrent threads."""

    def __init__(self, millis: Callable[[], int] = lambda: time.time_ns() // 1_000_000) -> None:
        self._millis = millis
        self._lock = Lock()
        self._last_millis = -1
        self._tail = 0

    def fresh(self) -> str:
        """Return a new id that sorts as text after every id that this object returned before."""
        with self._lock:
            now = self._millis()
            if now > self._last_millis:
                self._last_millis = now
                self._tail = int.from_bytes(os.urandom(9), "big")
            else:
                self._tail += 1 + int.from_bytes(os.urandom(4), "big")
                if self._tail >> _RANDOM_BITS:
                    self._last_millis += 1
                    self._tail = int.from_bytes(os.urandom(9), "big")
            return _as_text(self._last_millis, self._tail)

    def after_fork(self) -> None:
        """Start a new series of ids in a forked child, because the parent continues with the same counter."""
        self._lock = Lock()
        self._last_millis = -1


def series(seed: str) -> Iterator[str]:
    """Yield increasing ids that have the millisecond of the id ``seed``. The same seed always yields the same ids."""
    millis = int(seed[:8] + seed[9:13], 16)
    tail = int.from_bytes(hashlib.sha256(seed.encode()).digest()[: _FRESH_BITS // 8], "big")
    while True:
        yield _as_text(millis, tail)
        tail += 1


def _as_text(millis: int, tail: int) -> str:
    high = (millis << 16) | 0x7000 | (tail >> 62)
    low = 0x8000000000000000 | (tail & 0x3FFFFFFFFFFFFFFF)
    digits = f"{high:016x}{low:016x}"
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


_source = IdSource()
new_id = _source.fresh
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_source.after_fork)
