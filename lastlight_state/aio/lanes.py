"""Lanes: each is a queue with worker threads that run the calls of coroutines."""

from __future__ import annotations

import asyncio
import gc
import os
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Generic, TypeVar

from lastlight_state.aio.outcomes import AGAIN, Call, Completions, Limit, Outcome
from lastlight_state.backends import waiting
from lastlight_state.backends.waiting import Patience
from lastlight_state.errors import MisuseError, StoreClosed
from lastlight_state.locks import Lock

T = TypeVar("T")

#: Seconds after which an idle thread looks for calls whose wake-up was lost through an exception. If there are none,
#: the thread ends, unless it is the last of its lane.
_HEAL = 60.0


class WorkQueue(Generic[T]):
    """A queue of items for threads.

    The thread that began to wait last gets the next item, because its CPU cache is warm. Waking a thread costs more
    than most calls. So no thread is woken if another one has announced with `soon` that it will come.
    """

    def __init__(self) -> None:
        self._items: deque[T] = deque()
        self._gates: list[threading.Lock] = []
        self._soon: list[None] = []

    def __len__(self) -> int:
        return len(self._items)

    def put(self, item: T) -> None:
        """Add an item. Wake a thread, unless one has announced that it will take the item."""
        self._items.append(item)
        if len(self._items) > len(self._soon):
            self._wake()

    def soon(self) -> None:
        """Announce that this thread is about to call `get`."""
        self._soon.append(None)

    def get(self, seconds: float = _HEAL) -> T:
        """Return the next item. Raises `TimeoutError` if none comes within ``seconds``. Call `soon` first."""
        items, gates = self._items, self._gates
        self._soon.pop()  # before taking an item: else this thread would count as free for another
        with suppress(IndexError):
            return items.popleft()
        while True:
            gate = waiting.closed_gate()
            gates.append(gate)
            is_woken = not items and gate.acquire(timeout=seconds)
            if not is_woken:
                try:
                    gates.remove(gate)
                except ValueError:  # this thread was just woken, perhaps for an item that needs another thread
                    if len(items) > 1:
                        self._wake()
            with suppress(IndexError):
                return items.popleft()
            if not is_woken:
                raise TimeoutError

    def _wake(self) -> None:
        if self._gates:
            with suppress(IndexError):
                waiting.wake(self._gates.pop())


class _Calls:
    """The queue and threads of a lane.

    Threads refer to this object but not to the `Lane`, so that an unused lane can be collected.
    """

    def __init__(self) -> None:
        self.queue: WorkQueue[tuple[Outcome, Completions] | Call | None] = WorkQueue()
        self.outstanding: set[Outcome] = set()
        self.threads: list[threading.Thread] = []
        #: Ends the lane's block, for a lane that carries a single block.
        self.abandon: weakref.WeakMethod[Callable[[], object]] | None = None
        self._has_collected = False

    def serve(self) -> None:
        told: Completions | None = None
        self.queue.soon()
        while True:
            watches = told is not None and (told.has_outcomes or self.abandon is not None)
            try:
                item = self.queue.get(AGAIN) if watches else self.queue.get()
            except TimeoutError:
                if told is not None:
                    self._look_after(told)
                if not watches and self._retires():
                    return
                self.queue.soon()
                continue
            if item is None:
                self.queue.put(None)  # passed on to the other threads
                return
            if callable(item):
                with suppress(BaseException):
                    item()
                self.queue.soon()
            else:
                self._make(*item)
                told = item[1]
            del item

    def _retires(self) -> bool:
        """True if this idle thread should end: other threads remain, or the next call will start a new one."""
        own = threading.current_thread()
        if len(self.threads) <= 1 or own not in self.threads:
            return False
        self.threads.remove(own)
        if not self.queue:
            return True
        self.threads.append(own)  # a call arrived before the thread's removal was visible
        return False

    def _look_after(self, told: Completions) -> None:
        """Wake a loop again that has undelivered outcomes. If a loop is closed, end the blocks of its tasks."""
        if told.has_outcomes:
            told.wake()
        if self.abandon is not None and told.is_over:
            abandon, self.abandon = self.abandon(), None
            if abandon is not None:
                abandon()
        elif self.abandon is not None and not told.is_running and not self._has_collected:
            self._has_collected = True
            gc.collect()  # a loop and its task may be garbage that refers to each other, and so keep the block open

    def _make(self, outcome: Outcome, completions: Completions) -> None:
        call = outcome.take()
        result, raised = None, None
        if call is not None:
            if outcome.waits_since and outcome.patience is not None:
                outcome.patience.spent = time.monotonic() - outcome.waits_since
            waiting.lend(outcome.patience)
            try:
                result = call()
            except BaseException as error:  # noqa: BLE001 - whatever it is, it belongs to the one who awaits
                raised = error
            waiting.lend(None)
        self.outstanding.discard(outcome)
        self.queue.soon()  # before the loop is woken, since it may queue the next call at once
        if call is not None:
            completions.put(outcome, result, raised)
        del raised


class Lane:
    """A queue of calls, with threads that run them and that are started when first needed.

    Any event loop may use the lane. The threads end after `close`, or when the lane is garbage-collected. They do not
    exist in a forked child process. ``abandon`` is called on a thread of the lane when the loop that last used the lane
    is closed. ``limit`` bounds how long calls wait for a free thread.
    """

    def __init__(
        self,
        name: str,
        threads: int = 1,
        *,
        abandon: Callable[[], object] | None = None,
        limit: Limit | None = None,
    ) -> None:
        self._name = name
        self._most = threads
        self._limit = limit
        self._calls = _Calls()
        self._calls.abandon = None if abandon is None else weakref.WeakMethod(abandon)
        self._guard = Lock()
        self._process = os.getpid()
        self._completions: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, Completions] = (
            weakref.WeakKeyDictionary()
        )
        self._end = weakref.finalize(self, self._calls.queue.put, None)

    def run(self, call: Callable[[], T], *, on_cancel: Callable[[], object] | None = None) -> asyncio.Future[T]:
        """Queue ``call`` for a thread of the lane, and return a future for its result.

        ``on_cancel`` is called when the awaiting task is cancelled. Raises `StoreClosed` after `close`, and
        `MisuseError` in a forked child process.
        """
        outcome = self._outcome(call)
        outcome.patience = Patience()
        if on_cancel is not None:
            outcome.on_cancel = on_cancel
        return self._queue_outcome(outcome)

    def finish(self, call: Callable[[], T]) -> asyncio.Future[T]:
        """Queue a call that cleans up. It is run and awaited even if the task is cancelled."""
        return self._queue_outcome(self._outcome(call))

    def post(self, call: Callable[[], object]) -> None:
        """Queue ``call`` for a thread of the lane, without a future for its result.

        This also works outside an event loop.
        """
        self._calls.queue.put(call)

    def _outcome(self, call: Call) -> Outcome:
        if not self.is_open:
            raise StoreClosed("the store is closed")
        if os.getpid() != self._process:
            raise MisuseError("this store was opened before fork(): open one in the child")
        return Outcome(call, asyncio.get_running_loop())

    def _queue_outcome(self, outcome: Outcome) -> Outcome:
        loop = outcome.get_loop()
        completions = self._completions.get(loop)
        if completions is None:
            completions = self._completions[loop] = Completions(loop, self._limit)
        calls = self._calls
        calls.outstanding.add(outcome)
        if len(calls.outstanding) > self._most and completions.waiting_calls and outcome.patience is not None:
            completions.waiting_calls.add(outcome)
        calls.queue.put((outcome, completions))
        if len(calls.threads) < self._most and len(calls.outstanding) > len(calls.threads):
            self._start()
        return outcome

    def has(self, call: asyncio.Future[Any]) -> bool:
        """True if this call is queued or running on the lane. Always False in a forked child process."""
        return os.getpid() == self._process and call in self._calls.outstanding

    @property
    def is_open(self) -> bool:
        """True if the lane still accepts calls."""
        return self._end.alive

    def close(self) -> None:
        """Accept no more calls. The threads end after the queued calls. Returns at once; use `join` to wait."""
        self._end()

    def join(self) -> None:
        """Wait until the queued calls are done. Call it outside the event loop's thread."""
        for thread in [*self._calls.threads]:
            thread.join()

    def _start(self) -> None:
        with self._guard:
            if len(self._calls.threads) < self._most:
                thread = threading.Thread(target=self._calls.serve, name=f"lastlight-{self._name}", daemon=True)
                thread.start()
                self._calls.threads.append(thread)  # after the start: the list must hold running threads only
