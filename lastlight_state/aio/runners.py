"""Which lane carries which call of an async store."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from lastlight_state.aio.blocks import Tasks, refuse_inside
from lastlight_state.aio.judging import Judge
from lastlight_state.aio.lanes import Lane
from lastlight_state.aio.outcomes import Limit, Outcome
from lastlight_state.backends.base import Backend
from lastlight_state.backends.waiting import all_in_use, line_too_long
from lastlight_state.errors import NestedTransaction, StoreClosed
from lastlight_state.settings import Settings
from lastlight_state.store import StateStore

T = TypeVar("T")

INSIDE = "inside a transaction's block: call its repositories, not the store's"

READERS = 4
FILE_WRITERS = 2
#: How often a store that is being closed looks whether its calls on threads of several stores have ended.
_POLL_SECONDS = 0.005


class Lanes:
    """The threads of an async store, or of the stores of many tenants."""

    def __init__(self, backend: Backend, settings: Settings, judge: Callable[[Outcome], object]) -> None:
        threads = Limit(settings.pool_timeout, partial(all_in_use, "threads for such calls"), judge)
        if backend.writers is None:  # a thread for each connection, so that no thread waits for one of another
            connections = Limit(settings.pool_timeout, all_in_use, judge)
            self.readers = self.writers = Lane("call", settings.pool_size, limit=connections)
        else:
            self.readers = Lane("reader", READERS, limit=threads)
            self.writers = Lane("writer", backend.writers, limit=Limit(settings.queue_timeout, line_too_long, judge))
        self.file_readers = Lane("file-reader", READERS, limit=threads)
        self.files = Lane("files", FILE_WRITERS, limit=threads)

    def close(self) -> None:
        """Take no more calls."""
        for lane in self._all:
            lane.close()

    def join(self) -> None:
        """Wait for the calls that were taken."""
        for lane in self._all:
            lane.join()

    @property
    def _all(self) -> set[Lane]:
        return {self.readers, self.writers, self.file_readers, self.files}


class StoreRunner:
    """Readers and writers on their lanes, unless the task is inside a transaction of the store.

    Lanes that are ``lent`` belong to several stores, and end with none of them.
    """

    def __init__(self, store: StateStore, lent: Lanes | None = None) -> None:
        self._scope = store._scope
        self.judge = Judge(store, store._context, store._scope)
        self.lent = lent
        lanes = lent or Lanes(store.backend, store.settings, self.judge)
        self._own = None if lent is not None else lanes
        self.readers, self.writers = lanes.readers, lanes.writers
        self.file_readers, self.files = lanes.file_readers, lanes.files
        self.is_open = True
        #: Of lanes that other stores use as well: the calls of this store that are under way.
        self._taken: set[asyncio.Future[Any]] = set()
        #: The blocks that tasks are inside of.
        self.blocks: Tasks = WeakKeyDictionary()

    def read(self, call: Callable[[], T]) -> Awaitable[T]:
        self.refuse_closed()
        return self.readers.run(call) if self.lent is None else self._shared(self.readers, call)

    def write(self, call: Callable[[], T]) -> Awaitable[T]:
        self.refuse_closed()
        return self.writers.run(call) if self.lent is None else self._shared(self.writers, call)

    def finish(self, call: Callable[[], T]) -> Awaitable[T]:
        return self._kept(self.writers.finish(call))

    def refuse_closed(self) -> None:
        """Refuse a call through the store inside a transaction of the same task."""
        refuse_inside(self.blocks, INSIDE)
        if self._scope.blocks.has_task():
            raise NestedTransaction(INSIDE)

    def close(self) -> None:
        """Take no more calls."""
        self.is_open = False
        if self._own is not None:
            self._own.close()

    def then(self, close: Callable[[], None]) -> None:
        """Wait for the calls that were taken, then close what they used."""
        if self._own is not None:
            self._own.join()
        while any(self.readers.has(call) or self.writers.has(call) for call in [*self._taken]):
            time.sleep(_POLL_SECONDS)
        self.judge.lane.close()
        close()

    def _shared(self, lane: Lane, call: Callable[[], T]) -> Awaitable[T]:
        """Run a call on a lane of several stores, which does not know that this one was closed."""
        if not self.is_open:
            raise StoreClosed("the store is closed")
        return self._kept(lane.run(call))

    def _kept(self, taken: asyncio.Future[T]) -> asyncio.Future[T]:
        """Return a call that was taken, and know of it until it is done, if others use its lane as well."""
        if self.lent is not None:
            self._taken.add(taken)
            taken.add_done_callback(self._taken.discard)
        return taken


class FileRunner:
    """Line files have lanes of their own; a transaction neither blocks nor covers them."""

    def __init__(self, lanes: StoreRunner) -> None:
        self._readers = lanes.file_readers
        self._writers = lanes.files

    def read(self, call: Callable[[], T]) -> Awaitable[T]:
        return self._readers.run(call)

    def write(self, call: Callable[[], T]) -> Awaitable[T]:
        return self._writers.run(call)

    def finish(self, call: Callable[[], T]) -> Awaitable[T]:
        return self._writers.finish(call)

    def refuse_closed(self) -> None:
        """Do nothing: there is nothing to refuse."""
