"""Texts of frames that were rebuilt, kept for the next who reads them.

The key holds the digest of the content, so that neither a rollback nor pruning nor another process can make it wrong.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Any
from weakref import WeakKeyDictionary

#: The most texts that a store keeps, and their bytes together.
MOST_ENTRIES = 512
MOST_BYTES = 64 * 1024 * 1024

Key = tuple[str, int, str]


class FrameCache:
    """Texts by run, number and digest. The least recently used text is dropped first."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._texts: OrderedDict[Key, str] = OrderedDict()
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._texts)

    def get(self, key: Key) -> str | None:
        """The text, if it is kept."""
        with self._lock:
            found = self._texts.get(key)
            if found is not None:
                self._texts.move_to_end(key)
            return found

    def put(self, key: Key, text: str) -> None:
        """Keep a text."""
        with self._lock:
            if key in self._texts:
                return
            self._texts[key] = text
            self._bytes += len(text)
            while len(self._texts) > MOST_ENTRIES or (self._bytes > MOST_BYTES and len(self._texts) > 1):
                _, gone = self._texts.popitem(last=False)
                self._bytes -= len(gone)


_caches: WeakKeyDictionary[Any, FrameCache] = WeakKeyDictionary()
_making = threading.Lock()


def cache_of(owner: Any) -> FrameCache:
    """The one cache of a store, which all its transactions share; ``owner`` is an object that they share as well."""
    with _making:
        return _caches.setdefault(owner, FrameCache())
