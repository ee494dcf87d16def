"""One thread per store that looks for what many wait for, with one query for all of them in each interval.

Waiting holds no connection and no transaction. Who waits is woken when its value has grown.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping
from contextlib import contextmanager
from typing import Generic, TypeVar

from lastlight_state.db.scope import Scope
from lastlight_state.errors import BackendError, MisuseError, StateError, StoreClosed

K = TypeVar("K", bound=Hashable)

_log = logging.getLogger("lastlight_state.db")

#: What is not there yet.
NOTHING_YET = -1


class Watch(Generic[K]):
    """Values that only grow, read by ``read`` for all keys that anybody waits for."""

    def __init__(self, read: Callable[[Collection[K]], Mapping[K, int]]) -> None:
        self._read = read
        self._changed = threading.Condition()
        self._wanted: Counter[K] = Counter()
        self._intervals: list[float] = []
        self._values: dict[K, int] = {}
        self._thread: threading.Thread | None = None
        self._idle = threading.Event()
        self._closed: StateError | None = None

    @contextmanager
    def waiting_for(self, keys: Collection[K], interval: float) -> Iterator[None]:
        """Look for these keys, at least once in ``interval`` seconds, until the block is left."""
        with self._changed:
            self._wanted.update(keys)
            self._intervals.append(interval)
            if self._thread is None:
                self._idle = threading.Event()
                self._thread = threading.Thread(
                    target=self._run, args=(self._idle,), name="lastlight-watch", daemon=True
                )
                self._thread.start()
        try:
            yield
        finally:
            with self._changed:
                self._wanted.subtract(keys)
                self._wanted = +self._wanted
                self._intervals.remove(interval)
                if not self._wanted:
                    self._values.clear()
                    self._thread = None
                    self._idle.set()

    def look(self, keys: Collection[K]) -> Mapping[K, int]:
        """The values of these keys at this moment."""
        return self._read(keys)

    def grown(self, known: Mapping[K, int], timeout: float) -> dict[K, int]:
        """Wait until a value is greater than the one known, ``timeout`` seconds at most; those that are."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or self._grown(known), timeout)
            if self._closed is not None:
                raise StoreClosed("the store was closed while somebody waited") from self._closed
            return self._grown(known)

    def _grown(self, known: Mapping[K, int]) -> dict[K, int]:
        return {key: self._values[key] for key, value in known.items() if self._values.get(key, NOTHING_YET) > value}

    def _run(self, idle: threading.Event) -> None:
        while not idle.wait(min(self._intervals, default=0.5)):
            with self._changed:
                wanted = list(self._wanted)
            try:
                found = self._read(wanted)
            except BackendError as error:  # the next look will tell
                _log.warning("a look for what was committed failed: %s", error)
                continue
            except MisuseError as error:
                with self._changed:
                    self._closed = error
                    self._changed.notify_all()
                return
            with self._changed:
                self._values.update(found)
                self._changed.notify_all()


_making = threading.Lock()


def watch_of(
    scope: Scope, read: Callable[[Collection[tuple[str, str]]], Mapping[tuple[str, str], int]]
) -> Watch[tuple[str, str]]:
    """The one watch of a store's scope, which ends with it."""
    with _making:
        found: Watch[tuple[str, str]] = scope.__dict__.setdefault("_watch", Watch(read))
        return found
