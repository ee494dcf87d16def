"""Worker threads that carry the calls of coroutines."""

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

#: Seconds after which a thread looks for calls that nobody has woken it for, because an exception cut that off. If
#: there are none, the thread ends, unless it is the last of its lane.
_HEAL = 60.0


class WorkQueue(Generic[T]):
    """A queue of items. Of the threads that wait for one, the one that came last gets it: its data is still at hand.

    To wake a thread costs more than most calls do. So no other thread is woken where one has said `soon`.
    """

    def __init__(self) -> None:
        self._items: deque[T] = deque()
        self._gates: list[threading.Lock] = []
        self._soon: list[None] = []

    def __len__(self) -> int:
        return len(self._items)

    def put(self, item: T) -> None:
        """Add an item, and see that a thread comes for it."""
        self._items.append(item)
        if len(self._items) > len(self._soon):
            self._wake()

    def soon(self) -> None:
        """Say that this thread is about to `get`."""
        self._soon.append(None)

    def get(self, seconds: float = _HEAL) -> T:
        """Wait for an item. Raises `TimeoutError` if none comes within these seconds. Only after `soon`."""
        items, gates = self._items, self._gates
        self._soon.pop()  # before it takes an item: else it would be counted for another one, too
        with suppress(IndexError):
            return items.popleft()
        while True:
            gate = waiting.closed_gate()
            gates.append(gate)
            is_woken = not items and gate.acquire(timeout=seconds)
            if not is_woken:
                try:
                    gates.remove(gate)
                except ValueError:  # somebody wakes this thread for an item that another one may be needed for
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
    """The calls of a lane and its threads. Threads refer to this alone, so that an unused `Lane` can be collected."""

    def __init__(self) -> None:
        self.queue: WorkQueue[tuple[Outcome, Completions] | Call | None] = WorkQueue()
        self.outstanding: set[Outcome] = set()
        self.threads: list[threading.Thread] = []
        #: For a lane of one block: ends it.
        self.abandon: weakref.WeakMethod[Callable[[], object]] | None = None
        self._has_collected = False

    def serve(self) -> None:
        told: Completions | None = None
        self.queue.soon()
        while True:
            watches = told is not None and (told.waiting or self.abandon is not None)
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
                self.queue.put(None)  # for the other threads
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
        """Return whether this thread, which found no call, is to end: others are left, or the next call starts one."""
        own = threading.current_thread()
        if len(self.threads) <= 1 or own not in self.threads:
            return False
        self.threads.remove(own)
        if not self.queue:
            return True
        self.threads.append(own)  # a call came before others could see that a thread was missing
        return False

    def _look_after(self, told: Completions) -> None:
        """Tell a loop once more that it has outcomes; end the block of a task whose loop is closed."""
        if told.waiting:
            told.wake()
        if self.abandon is not None and told.is_over:
            abandon, self.abandon = self.abandon(), None
            if abandon is not None:
                abandon()
        elif self.abandon is not None and not told.is_running and not self._has_collected:
            self._has_collected = True
            gc.collect()  # a loop and its task may refer to each other alone, and hold the block until they are found

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
        self.queue.soon()  # before the loop is told, which may have the next call at once
        if call is not None:
            completions.put(outcome, result, raised)
        del raised


class Lane:
    """A queue of calls and the threads that run them, started when first needed. Any event loop may use it.

    The threads end with `close`, or when nobody holds the lane any more. They do not come along into a forked child.
    ``abandon`` is called, on a thread of the lane, when the loop that used it last is closed. ``limit`` is for calls
    that no thread is free for.
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
        """Run ``call`` on a thread of the lane; await the result for its outcome.

        ``on_cancel`` is told when the task that awaits is cancelled. Raises `StoreClosed` after `close`, and
        `MisuseError` in a child process that was forked.
        """
        outcome = self._outcome(call)
        outcome.patience = Patience()
        if on_cancel is not None:
            outcome.on_cancel = on_cancel
        return self._queued(outcome)

    def finish(self, call: Callable[[], T]) -> asyncio.Future[T]:
        """Run a call that ends something: it is made and awaited, even if the task is cancelled."""
        return self._queued(self._outcome(call))

    def post(self, call: Callable[[], object]) -> None:
        """Run ``call`` on a thread of the lane, whose outcome nobody awaits. Also from outside an event loop."""
        self._calls.queue.put(call)

    def _outcome(self, call: Call) -> Outcome:
        if not self.is_open:
            raise StoreClosed("the store is closed")
        if os.getpid() != self._process:
            raise MisuseError("this store was opened before fork(): open one in the child")
        return Outcome(call, asyncio.get_running_loop())

    def _queued(self, outcome: Outcome) -> Outcome:
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
        """True if this call was taken, and a thread has yet to make it or to end it. False in a forked child."""
        return os.getpid() == self._process and call in self._calls.outstanding

    @property
    def is_open(self) -> bool:
        """Return whether calls are still taken."""
        return self._end.alive

    def close(self) -> None:
        """Take no more calls; the threads end after those that are queued. Does not wait: `join` does."""
        self._end()

    def join(self) -> None:
        """Wait for the calls that were queued before `close`. From another thread than the event loop's."""
        for thread in [*self._calls.threads]:
            thread.join()

    def _start(self) -> None:
        with self._guard:
            if len(self._calls.threads) < self._most:
                thread = threading.Thread(target=self._calls.serve, name=f"lastlight-{self._name}", daemon=True)
                thread.start()
                self._calls.threads.append(thread)  # only now: nobody serves who is here and was never started
