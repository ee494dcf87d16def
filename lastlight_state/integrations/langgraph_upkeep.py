"""Further calls of LangGraph's quickstarts: opening a store by its URL, setup, and deletion of expired items."""

from __future__ import annotations

import logging
import threading
import weakref
from collections.abc import Callable, Generator
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from typing import Any, Generic, Self, TypeVar

from lastlight_state.aio import AsyncStateStore
from lastlight_state.db import valid
from lastlight_state.errors import Conflict, MisuseError, StateError
from lastlight_state.maintenance import PrunePolicy
from lastlight_state.store import StateStore

_log = logging.getLogger("lastlight_state.integrations")

T = TypeVar("T")
#: Default minutes between two sweeps, as in the shipped stores.
_MINUTES = 5


class Opening(Generic[T]):
    """A context manager (``with`` or ``async with``) that opens a store and yields an adapter over it."""

    def __init__(self, make: Callable[[StateStore | AsyncStateStore], T], url: str) -> None:
        self._make, self._url = make, url

    def __enter__(self) -> T:
        self._store = StateStore.open(self._url)
        return self._make(self._store)

    def __exit__(self, *_: object) -> None:
        self._store.close()

    async def __aenter__(self) -> T:
        self._async_store = await AsyncStateStore.open(self._url)
        return self._make(self._async_store)

    async def __aexit__(self, *_: object) -> None:
        await self._async_store.close()


class Answer(int):
    """A number that may also be awaited, because some stores of LangGraph return a number and others an awaitable."""

    def __await__(self) -> Generator[Any, None, Self]:
        yield from ()
        return self


class Sweeping(Future[None]):
    """The future of a running sweeper. Cancelling it stops the sweeper. Awaiting it returns immediately."""

    def __await__(self) -> Generator[Any, None, Self]:
        yield from ()
        return self


class Upkeep:
    """The part of a LangGraph store that opens it and removes expired items."""

    ttl_config: Any
    _store: StateStore
    _sweeper: Sweeper | None = None

    @classmethod
    def from_conn_string(cls, url: str, **options: Any) -> Opening[Self]:
        """Return a context manager (``with`` or ``async with``) that opens a store at a URL or path and closes it."""
        return Opening(lambda store: cls(store, **options), url)  # type: ignore[call-arg]

    def setup(self) -> Answer:
        """Do nothing, because a store is set up when it is opened. The result may be awaited."""
        return Answer()

    def sweep_ttl(self) -> Answer:
        """Delete all expired states of the database, in this thread. Return the number of deleted rows."""
        policy = PrunePolicy(kind="states")
        if not self._store.maintenance.prune.plan(policy).records:
            return Answer()
        try:
            return Answer(sum(self._store.maintenance.prune.run(policy).counts.values()))
        except Conflict:  # another prune of states is running
            return Answer()

    def start_ttl_sweeper(self, sweep_interval_minutes: float | None = None) -> Sweeping:
        """Start a thread that deletes expired states at an interval in minutes. Does nothing without ``ttl``.

        Returns the sweeper's future, which is done when it is cancelled or after `stop_ttl_sweeper`. If a sweeper is
        running already, its future is returned.
        """
        if not self.ttl_config:
            done = Sweeping()
            done.set_result(None)
            return done
        if self._sweeper is None or self._sweeper.future.done():
            minutes = sweep_interval_minutes or self.ttl_config.get("sweep_interval_minutes") or _MINUTES
            self._sweeper = Sweeper(self, 60 * valid.seconds("sweep_interval_minutes", minutes))
        return self._sweeper.future

    def stop_ttl_sweeper(self, timeout: float | None = None) -> Answer:
        """Stop the sweeper. Returns 1, or 0 if a sweep is still running after ``timeout`` seconds."""
        return Answer(self._sweeper is None or self._sweeper.stop(timeout))


class Sweeper:
    """A thread that deletes expired states of a store until it is stopped or the store is garbage-collected."""

    def __init__(self, store: Upkeep, seconds: float) -> None:
        self.future, self._stopped = Sweeping(), threading.Event()
        self.future.add_done_callback(lambda _: self._stopped.set())
        arguments = (weakref.ref(store), seconds, self._stopped, self.future)
        self._thread = threading.Thread(target=_sweep, args=arguments, name="lastlight-ttl-sweeper", daemon=True)
        self._thread.start()

    def stop(self, timeout: float | None) -> bool:
        """Stop the thread. Returns False if it still runs after ``timeout`` seconds."""
        self._stopped.set()
        self._thread.join(timeout)
        return not self._thread.is_alive()


def _sweep(ref: weakref.ref[Upkeep], seconds: float, stopped: threading.Event, future: Sweeping) -> None:
    while not stopped.wait(seconds) and (store := ref()) is not None:
        try:
            store.sweep_ttl()
        except MisuseError:  # the store is closed
            break
        except StateError:
            _log.warning("a sweep of expired items failed", exc_info=True)
        del store
    with suppress(InvalidStateError):  # it was cancelled
        future.set_result(None)
