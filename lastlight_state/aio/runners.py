"""Runners: choose the lane on which each call of an async store runs."""

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
#: Seconds between two looks of a closing store at its unfinished calls on shared threads.
_POLL_SECONDS = 0.005


class Lanes:
    """The threads of one async store, or the threads shared by the stores of many tenants."""

    def __init__(self, backend: Backend, settings: Settings, judge: Callable[[Outcome], object]) -> None:
        threads = Limit(settings.pool_timeout, partial(all_in_use, "threads for such calls"), judge)
        if backend.writers is None:  # one thread per connection, so that no thread waits for another's connection
            connections = Limit(settings.pool_timeout, all_in_use, judge)
            self.readers = self.writers = Lane("call", settings.pool_size, limit=connections)
        else:
            self.readers = Lane("reader", READERS, limit=threads)
            self.writers = Lane("writer", backend.writers, limit=Limit(settings.queue_timeout, line_too_long, judge))
        self.file_readers = Lane("file-reader", READERS, limit=threads)
        self.files = Lane("files", FILE_WRITERS, limit=threads)

    def close(self) -> None:
        """Accept no more calls."""
        for lane in self._all_lanes:
            lane.close()

    def join(self) -> None:
        """Wait until all accepted calls are done."""
        for lane in self._all_lanes:
            lane.join()

    @property
    def _all_lanes(self) -> set[Lane]:
        return {self.readers, self.writers, self.file_readers, self.files}


class StoreRunner:
    """Runs reads and writes on their lanes. Refuses calls by a task that is inside a transaction of the store.

    ``lent`` lanes are shared by several stores. Closing one of these stores does not close them.
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
        #: Unfinished calls of this store on lanes that it shares with other stores.
        self._taken: set[asyncio.Future[Any]] = set()
        #: The blocks that tasks are inside of.
        self.blocks: Tasks = WeakKeyDictionary()

    def read(self, call: Callable[[], T]) -> Awaitable[T]:
        self.refuse_closed()
        return self.readers.run(call) if self.lent is None else self._run_on_shared_lane(self.readers, call)

    def write(self, call: Callable[[], T]) -> Awaitable[T]:
        self.refuse_closed()
        return self.writers.run(call) if self.lent is None else self._run_on_shared_lane(self.writers, call)

    def finish(self, call: Callable[[], T]) -> Awaitable[T]:
        return self._keep_call(self.writers.finish(call))

    def refuse_closed(self) -> None:
        """Raise `NestedTransaction` if a task inside a transaction makes a call through the store itself."""
        refuse_inside(self.blocks, INSIDE)
        if self._scope.blocks.has_task():
            raise NestedTransaction(INSIDE)

    def close(self) -> None:
        """Accept no more calls."""
        self.is_open = False
        if self._own is not None:
            self._own.close()

    def then(self, close: Callable[[], None]) -> None:
        """Wait until all accepted calls are done. Then call ``close``, which frees the resources of these calls."""
        if self._own is not None:
            self._own.join()
        while any(self.readers.has(call) or self.writers.has(call) for call in [*self._taken]):
            time.sleep(_POLL_SECONDS)
        self.judge.lane.close()
        close()

    def _run_on_shared_lane(self, lane: Lane, call: Callable[[], T]) -> Awaitable[T]:
        """Run a call on a shared lane. Raises `StoreClosed` if this store is closed, because the lane stays open."""
        if not self.is_open:
            raise StoreClosed("the store is closed")
        return self._keep_call(lane.run(call))

    def _keep_call(self, taken: asyncio.Future[T]) -> asyncio.Future[T]:
        """Keep a reference to a call on a shared lane until the call is done. Return the call."""
        if self.lent is not None:
            self._taken.add(taken)
            taken.add_done_callback(self._taken.discard)
        return taken


class FileRunner:
    """Runs calls about line files on separate lanes. They are neither blocked by a transaction nor part of one."""

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
        """Do nothing: file calls are allowed inside a transaction."""
