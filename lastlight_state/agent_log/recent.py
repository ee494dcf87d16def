"""Recent: a bounded number of values by key, the ones used least lately forgotten first. For threads and forks."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Generic, TypeVar

from lastlight_state.jsonl import forks

K = TypeVar("K")
V = TypeVar("V")

MOST = 1_000


class Recent(Generic[K, V]):
    """Keeps at most `MOST` values."""

    def __init__(self) -> None:
        self._values: OrderedDict[K, V] = OrderedDict()
        self._lock = threading.Lock()
        forks.renew_after_fork(self)

    def find(self, key: K) -> V | None:
        """The value kept for a key."""
        with self._lock:
            return self._values.get(key)

    def put(self, key: K, value: V) -> None:
        """Keep a value, which was used just now."""
        with self._lock:
            self._values[key] = value
            self._values.move_to_end(key)
            while len(self._values) > MOST:
                self._values.popitem(last=False)

    def after_fork(self) -> None:
        """In a forked child: forget a lock that a thread of the parent may have held."""
        self._lock = threading.Lock()
