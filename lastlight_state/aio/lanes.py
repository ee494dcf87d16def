"""Worker threads that carry the calls of coroutines, and the future that learns every outcome."""

from __future__ import annotations

import asyncio
import os
import threading
import weakref
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, TypeVar

from lastlight_state.errors import MisuseError, StoreClosed

T = TypeVar("T")

Call = Callable[[], Any]


class Outcome(asyncio.Future[Any]):
    """A future that cannot be cancelled.

    A task that is cancelled while it waits for one gets its CancelledError when the outcome is there, so that no
    write is left in doubt.
    """

    #: Told of a cancellation, so that what is waited for can come to its end.
    on_cancel: Callable[[], object] | None = None

    def cancel(self, msg: Any = None) -> bool:
        """Refuse."""
        if self.on_cancel is not None:
            self.on_cancel()
        return False


class Completions:
    """Hands outcomes to one event loop. Those that come together wake it once."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = weakref.ref(loop)
        self._done: deque[tuple[Outcome, Any, BaseException | None]] = deque()
        self._woken = False

    def put(self, outcome: Outcome, result: Any, error: BaseException | None) -> None:
        """From a worker thread. An outcome for a loop that was closed meanwhile has nobody to tell."""
        if isinstance(error, StopIteration):  # no future takes one
            error = RuntimeError("the call raised StopIteration").with_traceback(error.__traceback__)
        self._done.append((outcome, result, error))
        if not self._woken:
            self._woken = True
            loop = self._loop()
            try:
                if loop is not None:
                    loop.call_soon_threadsafe(self._deliver)
            except RuntimeError:
                self._done.clear()

    def _deliver(self) -> None:
        self._woken = False
        while self._done:
            outcome, result, error = self._done.popleft()
            if error is None:
                outcome.set_result(result)
            else:
                outcome.set_exception(error)


class _Calls:
    """The calls of a lane and its threads. All that a thread knows, so that lanes can die."""

    def __init__(self) -> None:
        self.queue: SimpleQueue[tuple[Call, Outcome, Completions] | None] = SimpleQueue()
        self.outstanding: set[Outcome] = set()
        self.threads: list[threading.Thread] = []

    def end(self) -> None:
        for _ in self.threads:
            self.queue.put(None)

    def serve(self) -> None:
        while True:
            item = self.queue.get()
            if item is None:
                return
            call, outcome, completions = item
            try:
                result = call()
            except BaseException as error:  # noqa: BLE001 - whatever it is, it belongs to the one who awaits
                self.outstanding.discard(outcome)
                completions.put(outcome, None, error)
            else:
                self.outstanding.discard(outcome)
                completions.put(outcome, result, None)
            del item, call, outcome, completions


class Lane:
    """A queue of calls and the threads that run them, started when first needed. Any event loop may use it.

    The threads end with `close`, or when nobody holds the lane any more. They do not come along into a forked child.
    """

    def __init__(self, name: str, threads: int = 1) -> None:
        self._name = name
        self._most = threads
        self._calls = _Calls()
        self._guard = threading.Lock()
        self._process = os.getpid()
        self._completions: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, Completions] = (
            weakref.WeakKeyDictionary()
        )
        self._end = weakref.finalize(self, self._calls.end)

    def run(self, call: Callable[[], T], *, on_cancel: Callable[[], object] | None = None) -> asyncio.Future[T]:
        """Run ``call`` on a thread of the lane; await the result for its outcome.

        ``on_cancel`` is told when the task that awaits is cancelled. Raises `StoreClosed` after `close`, and
        `MisuseError` in a child process that was forked.
        """
        if not self.is_open:
            raise StoreClosed("the store is closed")
        if os.getpid() != self._process:
            raise MisuseError("this store was opened before fork(): open one in the child")
        loop = asyncio.get_running_loop()
        completions = self._completions.get(loop)
        if completions is None:
            completions = self._completions[loop] = Completions(loop)
        outcome = Outcome(loop=loop)
        if on_cancel is not None:
            outcome.on_cancel = on_cancel
        calls = self._calls
        calls.outstanding.add(outcome)
        calls.queue.put((call, outcome, completions))
        if len(calls.threads) < self._most and len(calls.outstanding) > len(calls.threads):
            self._start()
        return outcome

    @property
    def is_open(self) -> bool:
        """Whether calls are still taken."""
        return self._end.alive

    def close(self) -> None:
        """Take no more calls; the threads end after those that are queued. Does not wait: `join` does."""
        self._end()

    def join(self) -> None:
        """Wait for the calls that were queued before `close`. From another thread than the event loop's."""
        for thread in self._calls.threads:
            thread.join()

    def _start(self) -> None:
        with self._guard:
            if len(self._calls.threads) < self._most:
                thread = threading.Thread(target=self._calls.serve, name=f"lastlight-{self._name}", daemon=True)
                self._calls.threads.append(thread)
                thread.start()
