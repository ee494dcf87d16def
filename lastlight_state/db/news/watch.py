"""One thread per store that polls for all waiting callers, with one query for all of them in each interval.

A waiting caller holds no connection and no transaction. It is woken when its value has grown. The thread ends with the
last waiting block, whatever exception interrupts that block. If a query takes long, polling slows down. A caller may
also permit slower polling while nothing happens; otherwise many processes that wait for work would keep a server busy.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping
from contextlib import AbstractContextManager
from typing import Any, Generic, TypeVar

from lastlight_state.backends.waiting import Flag, within
from lastlight_state.db.units.scope import Scope, TransactionScope
from lastlight_state.errors import MisuseError, StateError, StoreClosed
from lastlight_state.locks import Lock, RLock
from lastlight_state.unwinding import Exit, HeldResource, block

K = TypeVar("K", bound=Hashable)

_log = logging.getLogger("lastlight_state.db")

#: The value of a key for which nothing has been read yet.
NOTHING_YET = -1
#: Between two polls the thread rests this many times as long as the last poll took, ...
REST = 20
#: ... but for this reason never longer than this many seconds. It rests as long after a poll that failed.
LONGEST_REST = 0.5
#: The longest interval between two polls of a wait that slows down, in seconds. It is reached after `QUIET` seconds
#: without news; the interval grows in proportion until then.
SLOWEST = 1.0
QUIET = 60.0
#: The part by which intervals vary at random, so that stores which began together do not poll together.
JITTER = 0.2
#: The most seconds that closing a store waits for a poll that is under way.
LAST_LOOK_SECONDS = 5.0


class Watch(Generic[K]):
    """Polls values that only grow. ``read`` returns the values of all keys for which a caller waits."""

    def __init__(self, read: Callable[[Collection[K]], Mapping[K, int]]) -> None:
        self._read = read
        self._lock = RLock()  # a block may be abandoned by the thread that holds it
        self._changed = threading.Condition(self._lock)
        #: Replaced, never changed: the garbage collector may end a block in the middle of a loop over it.
        self._waiting: tuple[_Waiting[K], ...] = ()
        self._values: dict[K, int] = {}
        self._thread: threading.Thread | None = None
        #: The threads that may be in the middle of a poll, replaced and unneeded ones included.
        self._threads: list[threading.Thread] = []
        self._idle = Flag()
        #: Set when the next poll need not wait: the store has committed, or the thread is to end.
        self._news = Flag()
        self._last_news = 0.0
        self._closed: StateError | None = None

    def waiting_for(
        self,
        keys: Collection[K],
        interval: float,
        woken: Callable[[], object] | None = None,
        *,
        slows_down: bool = False,
    ) -> AbstractContextManager[None]:
        """Poll these keys about every ``interval`` seconds until the block ends.

        With ``slows_down``, the interval grows while nothing happens, up to `SLOWEST` seconds. The polling thread calls
        ``woken`` when the value of a key has grown or the store was closed.
        """
        return _Waiting(self, keys, interval, woken, slows_down=slows_down)

    def notify(self) -> None:
        """Poll soon, because this store has committed a change. Costs nothing if no caller waits."""
        if self._thread is not None and not self._news.is_set():
            self._last_news = time.monotonic()
            self._news.set()

    def look(self, keys: Collection[K]) -> Mapping[K, int]:
        """Read the current values of these keys in the calling thread."""
        return self._read(keys)

    def wait_for_growth(self, known: Mapping[K, int], timeout: float) -> dict[K, int]:
        """Wait up to ``timeout`` seconds until a value is greater than the known one.

        Return the keys that have grown.
        """
        with self._lock:
            self._changed.wait_for(lambda: self._closed or self._grown_values(known), timeout)
            if self._closed is not None:
                raise StoreClosed("the store was closed while somebody waited") from self._closed
            return self._grown_values(known)

    def end(self) -> None:
        """Stop polling, and wake all waiting callers with `StoreClosed`. Waits for a poll that is in progress.

        That poll holds a connection, possibly of a caller's engine. Without the wait, the engine could be disposed
        before the connection is returned.
        """
        with self._lock:
            self._stop()
            if self._closed is None:
                self._closed = StoreClosed("the store is closed")
                self._wake([key for waiting in self._waiting for key in waiting.keys])
            threads = self._threads
        until = time.monotonic() + LAST_LOOK_SECONDS
        for thread in threads:
            if thread is not threading.current_thread():
                thread.join(max(until - time.monotonic(), 0.0))

    def _grown_values(self, known: Mapping[K, int]) -> dict[K, int]:
        return {key: self._values[key] for key, value in known.items() if self._values.get(key, NOTHING_YET) > value}

    def _began(self, waiting: _Waiting[K]) -> None:
        with self._lock:
            is_sooner = waiting.interval < self._interval()
            self._last_news = time.monotonic()
            self._waiting = (*self._waiting, waiting)
            if self._closed is None and (self._thread is None or is_sooner):
                self._start()

    def _start(self) -> None:
        """Start the polling thread. It replaces an earlier thread, which may be in a longer sleep."""
        self._stop()
        self._idle, self._news = Flag(), Flag()
        ended = (self._idle, self._news)
        self._thread = threading.Thread(target=self._run, args=ended, name="lastlight-watch", daemon=True)
        self._thread.start()
        self._threads = [*(thread for thread in self._threads if thread.is_alive()), self._thread]

    def _over(self, waiting: _Waiting[K]) -> None:
        with self._lock:
            self._waiting = tuple(other for other in self._waiting if other is not waiting)
            if not self._waiting:
                self._rest()

    def _rest(self) -> None:
        """Discard the values and end the thread, because no caller waits any more."""
        self._values.clear()
        self._thread = None
        self._stop()

    def _stop(self) -> None:
        self._idle.set()
        self._news.set()

    def _is_over_after_rest(self, idle: Flag, news: Flag, took: float) -> bool:
        """Sleep until the next poll is due. Return True if the thread should end."""
        rest = max(self._interval(), min(REST * took, LONGEST_REST))
        if idle.wait(rest):
            return True
        news.wait(max(0.0, self._slow_interval() - rest))
        news.clear()
        return idle.is_set()

    def _run(self, idle: Flag, news: Flag) -> None:
        took = 0.0
        while not self._is_over_after_rest(idle, news, took):
            wanted = self._wanted_keys(idle)
            if not wanted:
                return
            began = time.monotonic()
            try:
                found = self._read(wanted)
            except MisuseError as error:
                with self._lock:
                    self._closed = error
                    self._wake(wanted)
                return
            except Exception as error:  # noqa: BLE001 - others wait for this thread, and the next look will tell
                _log.warning("a look for what was committed failed: %s", error)
                took = LONGEST_REST
                continue
            took = time.monotonic() - began
            with self._lock:
                grown = [key for key, value in found.items() if value > self._values.get(key, NOTHING_YET)]
                if grown:
                    self._last_news = time.monotonic()
                self._values.update(found)
                self._wake(grown)

    def _wake(self, keys: Collection[K]) -> None:
        """Wake all callers that wait for one of these keys."""
        self._changed.notify_all()
        for waiting in self._waiting:
            if waiting.woken is not None and not set(keys).isdisjoint(waiting.keys):
                waiting.woken()

    def _interval(self) -> float:
        with self._lock:
            return min((waiting.interval for waiting in self._waiting), default=0.5)

    def _slow_interval(self) -> float:
        """Return the seconds until the next poll if this store commits nothing meanwhile."""
        slow = min(1.0, (time.monotonic() - self._last_news) / QUIET) * SLOWEST
        slow *= 1 - JITTER * random.random()  # noqa: S311 it keeps stores apart and protects nothing
        with self._lock:
            due = (max(each.interval, slow) if each.slows_down else each.interval for each in self._waiting)
            return min(due, default=0.0)

    def _wanted_keys(self, idle: Flag) -> list[K]:
        """Return the keys for which callers wait.

        Forgets blocks that were interrupted. If no block is left, the thread ends.
        """
        with self._lock:
            if idle.is_set():
                return []
            self._waiting = tuple(waiting for waiting in self._waiting if not waiting.is_gone)
            if not self._waiting:
                self._rest()
            return list({key for waiting in self._waiting for key in waiting.keys})


class _Waiting(HeldResource, AbstractContextManager[None], Generic[K]):
    """A block during which a caller waits for keys."""

    def __init__(
        self,
        watch: Watch[K],
        keys: Collection[K],
        interval: float,
        woken: Callable[[], object] | None,
        *,
        slows_down: bool,
    ) -> None:
        self._watch = watch
        self.keys = tuple(keys)
        self.interval = interval
        self.woken = woken
        self.slows_down = slows_down

    def __enter__(self) -> None:
        self._watch._began(self)

    def _leave(self, *raised: object) -> None:
        self._watch._over(self)
        self.handle = None

    __exit__ = Exit(_leave)

    def end_interrupted(self, handle: object) -> None:
        """Remove this block, so that its keys are no longer polled."""
        self._watch._over(self)


_making_lock = Lock()


def watch_of(scope: Scope, name: str, read: Callable[[Collection[K]], Mapping[K, int]]) -> Watch[K]:
    """Return the store's watch of this name; a store has one for each name. It ends when the store is closed."""
    with _making_lock:
        watches: dict[str, Watch[Any]] = scope.watches
        if name not in watches:
            watches[name] = Watch(read)
            scope.before_close.insert(0, watches[name].end)  # first: a later function may raise
            scope.after_commits.append(watches[name].notify)
        return watches[name]


# Waiting for one value of a `Watch`, for a limited time.

T = TypeVar("T")


class TimeLimit:
    """The ``timeout`` of one call, in seconds from its creation."""

    def __init__(self, seconds: float) -> None:
        self._end = time.monotonic() + seconds

    @property
    def seconds_left(self) -> float:
        """Return the seconds that are left, at least 0."""
        return max(0.0, self._end - time.monotonic())

    def look(self, call: Callable[[], T]) -> T:
        """Return the result of ``call``. Raises `BackendBusy` if the call waits for locks beyond the time limit."""
        return within(self.seconds_left, call)


class Arrivals(Generic[K]):
    """Reports whether a key's value has grown since the last report. The first report compares with ``known``."""

    def __init__(self, watch: Watch[K], key: K, seconds: float, known: int) -> None:
        self._watch = watch
        self._known = {key: known}
        self._end = time.monotonic() + seconds

    @property
    def seconds_left(self) -> float:
        """Return the seconds that are left, at least 0."""
        return max(0.0, self._end - time.monotonic())

    def wait(self, seconds: float) -> bool:
        """Wait up to ``seconds`` for the value to grow. Returns True if it has. A closed store raises `StoreClosed`."""
        grown = self._watch.wait_for_growth(self._known, seconds)
        self._known.update(grown)
        return bool(grown)


def refuse_in_transaction(scope: Scope) -> None:
    """Raise `MisuseError` if the scope is a transaction or view, because a wait would keep that open."""
    if isinstance(scope, TransactionScope):
        raise MisuseError("waiting takes longer than a transaction should: call it on the store")


@block
def arrivals(
    watch: Watch[K],
    key: K,
    seconds: float,
    poll_interval: float,
    *,
    known: int = NOTHING_YET,
    woken: Callable[[], object] | None = None,
    slows_down: bool = False,
) -> Iterator[Arrivals[K]]:
    """Watch a key during a block. The polling thread calls ``woken`` when the key's value has grown."""
    with watch.waiting_for([key], poll_interval, woken, slows_down=slows_down):
        yield Arrivals(watch, key, seconds, known)
