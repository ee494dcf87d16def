"""Compiled statements, cached by the shape of a call's arguments, up to a limit of bytes.

A service passes its users' filters to lists, so the number of shapes has no limit. The cache keeps at most `MOST_BYTES`
in this process, for all lists together; it drops the least recently used shape first. SQLAlchemy's expression trees are
never cached, because they take eighty times the memory of the text compiled from them.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Any, TypeVar

from lastlight_state.locks import Lock

T = TypeVar("T")

#: The most bytes that cached statements may take in this process.
MOST_BYTES = 32 * 2**20
#: The bytes that an entry takes besides its value: its key and the objects around it.
_ENTRY = 1_500


class Shapes:
    """A cache of values by shape, limited in bytes. When it is full, it drops the least recently used value.

    Safe to share between threads.
    """

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self._most = most_bytes
        self._values: OrderedDict[Hashable, Any] = OrderedDict()
        self._sizes: dict[Hashable, int] = {}
        self._lock = Lock()
        #: The estimated bytes of all cached values.
        self.size = 0

    def __len__(self) -> int:
        return len(self._values)

    def get(self, shape: Hashable) -> Any:
        """Return the cached value of a shape, and mark it as most recently used; None if it is not cached."""
        found = self._values.get(shape)
        if found is not None:
            try:  # noqa: SIM105 - suppress() takes three calls of every list
                self._values.move_to_end(shape)
            except KeyError:  # another thread has just removed it
                pass
        return found

    def put(self, shape: Hashable, value: T, size: int = 0) -> T:
        """Cache a value that takes this many bytes, and return it."""
        with self._lock:
            self.size += size + _ENTRY - self._sizes.get(shape, 0)
            self._values[shape], self._sizes[shape] = value, size + _ENTRY
            self._shrink()
        return value

    def grow(self, shape: Hashable, more: int) -> None:
        """Add bytes to the size of a cached value."""
        with self._lock:
            if shape in self._sizes:
                self._sizes[shape] += more
                self.size += more
                self._shrink()

    def clear(self) -> None:
        """Empty the cache, for tests."""
        with self._lock:
            self._values.clear()
            self._sizes.clear()
            self.size = 0

    def _shrink(self) -> None:
        while self.size > self._most and self._values:
            shape, _ = self._values.popitem(last=False)
            self.size -= self._sizes.pop(shape)


#: The cache of this process.
SHAPES = Shapes()
