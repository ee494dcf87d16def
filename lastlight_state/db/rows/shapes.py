"""Statements that are made for the shape of a call's arguments, kept within a bound of bytes.

A service hands the filters of its users to lists, so there is no end of shapes. The process keeps what was compiled for
them up to `MOST_BYTES`, all lists together; the shape that was not used for the longest time goes first. SQLAlchemy's
trees, which take eighty times as much memory as the text that is made of them, are never kept.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Any, TypeVar

from lastlight_state.locks import Lock

T = TypeVar("T")

#: The most bytes that statements of shapes take in this process.
MOST_BYTES = 32 * 2**20
#: What an entry takes beside what its value is said to take: its key, the objects around it.
_ENTRY = 1_500


class Shapes:
    """Values by their shape, within a bound of bytes. Safe to share between threads."""

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self._most = most_bytes
        self._values: OrderedDict[Hashable, Any] = OrderedDict()
        self._sizes: dict[Hashable, int] = {}
        self._lock = Lock()
        #: The bytes that the values are estimated to take.
        self.size = 0

    def __len__(self) -> int:
        return len(self._values)

    def get(self, shape: Hashable) -> Any:
        """Return the value of a shape, which is now the last one to go; None where it is not kept."""
        found = self._values.get(shape)
        if found is not None:
            try:  # noqa: SIM105 - suppress() takes three calls of every list
                self._values.move_to_end(shape)
            except KeyError:  # another thread has just removed it
                pass
        return found

    def put(self, shape: Hashable, value: T, size: int = 0) -> T:
        """Keep a value of so many bytes, and return it."""
        with self._lock:
            self.size += size + _ENTRY - self._sizes.get(shape, 0)
            self._values[shape], self._sizes[shape] = value, size + _ENTRY
            self._shrink()
        return value

    def grow(self, shape: Hashable, more: int) -> None:
        """Count more bytes for a value that is kept."""
        with self._lock:
            if shape in self._sizes:
                self._sizes[shape] += more
                self.size += more
                self._shrink()

    def clear(self) -> None:
        """Keep nothing more, for tests."""
        with self._lock:
            self._values.clear()
            self._sizes.clear()
            self.size = 0

    def _shrink(self) -> None:
        while self.size > self._most and self._values:
            shape, _ = self._values.popitem(last=False)
            self.size -= self._sizes.pop(shape)


#: The statements of this process.
SHAPES = Shapes()
