"""Worker threads that carry the calls of coroutines, and the future that learns every outcome."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

T = TypeVar("T")

Call = Callable[[], Any]


class Outcome(asyncio.Future[Any]):
    """A future that cannot be cancelled.

    A task that is cancelled while it waits for one gets its CancelledError when the outcome is there, so that no
    write is left in doubt.
    """

    def cancel(self, msg: Any = None) -> bool:
        return False


class Completions:
    """Hands outcomes to one event loop. Those that come together wake it once."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._done: deque[tuple[Outcome, Any, BaseException | None]] = deque()
        self._woken = False

    def put(self, outcome: Outcome, result: Any, error: BaseException | None) -> None:
        """From a worker thread. An outcome for a loop that was closed meanwhile has nobody to tell."""
        self._done.append((outcome, result, error))
        if not self._woken:
            self._woken = True
            try:
                self._loop.call_soon_threadsafe(self._deliver)
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


class Lane:
    """A queue of calls and the threads that run them, started when first needed. Any event loop may use it."""

    def __init__(self, name: str, threads: int = 1) -> None:
        self._name = name
        self._most = threads
        self._calls: SimpleQueue[tuple[Call, Outcome, Completions] | None] = SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._idle = 0
        self._guard = threading.Lock()
        self._completions: WeakKeyDictionary[asyncio.AbstractEventLoop, Completions] = WeakKeyDictionary()

    def run(self, call: Callable[[], T]) -> asyncio.Future[T]:
        """Run ``call`` on a thread of the lane; await the result for its outcome."""
        loop = asyncio.get_running_loop()
        completions = self._completions.get(loop)
        if completions is None:
            completions = self._completions[loop] = Completions(loop)
        outcome = Outcome(loop=loop)
        self._calls.put((call, outcome, completions))
        if len(self._threads) < self._most and not self._idle:
            self._start()
        return outcome

    def close(self) -> None:
        """End the threads after the calls that are queued. Does not wait."""
        with self._guard:
            for _ in self._threads:
                self._calls.put(None)
            self._most = 0

    def join(self) -> None:
        """Wait until the threads have ended."""
        for thread in self._threads:
            thread.join()

    def _start(self) -> None:
        with self._guard:
            if len(self._threads) < self._most:
                thread = threading.Thread(target=self._work, name=f"lastlight-{self._name}", daemon=True)
                self._threads.append(thread)
                thread.start()

    def _work(self) -> None:
        while True:
            self._idle += 1
            item = self._calls.get()
            self._idle -= 1
            if item is None:
                return
            call, outcome, completions = item
            try:
                result = call()
            except BaseException as error:  # noqa: BLE001 - whatever it is, it belongs to the one who awaits
                completions.put(outcome, None, error)
            else:
                completions.put(outcome, result, None)
            del item, call, outcome, completions
