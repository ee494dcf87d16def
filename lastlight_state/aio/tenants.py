"""`AsyncTenants`: the tenants of a Postgres database, for coroutines.

The stores of all tenants share one set of threads and one connection pool.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Self, TypeVar

from lastlight_state.aio.forward import Face, forward_read, forward_write
from lastlight_state.aio.lanes import Lane
from lastlight_state.aio.runners import Lanes
from lastlight_state.aio.store import AsyncStateStore, Opening, opened_as
from lastlight_state.db.schema.sealing import Codec, ContextCodec, Plain
from lastlight_state.metrics import Metrics
from lastlight_state.tenants import Tenants

T = TypeVar("T")

#: Most calls of `AsyncTenants` itself at a time, and most stores that are opened at a time.
THREADS = 4


class _Runner:
    """Runs calls about tenants on separate threads, because they may take long."""

    def __init__(self) -> None:
        self.lane = Lane("tenants", THREADS)

    def read(self, call: Callable[[], T]) -> Awaitable[T]:
        return self.lane.run(call)

    write = finish = read

    def refuse_closed(self) -> None:
        """Do nothing, because the lane itself refuses calls after it is closed."""


class AsyncTenants(Face[Tenants]):
    """The tenants of a database, for coroutines. Open it once per process: its stores share connections and threads."""

    def __init__(self, tenants: Tenants) -> None:
        self._calls = _Runner()
        super().__init__(tenants, self._calls)
        self._opening = Lane("open", THREADS)
        self._lanes = Lanes(tenants.backend, tenants.settings, lambda _: None)

    #: Like `Tenants.open`, with the same parameters, but awaited.
    open = Opening(Tenants.open)

    create = forward_write(Tenants.create)
    list = forward_read(Tenants.list)
    migrate = forward_write(Tenants.migrate)
    due = forward_read(Tenants.due)
    export = forward_read(Tenants.export)
    erase = forward_write(Tenants.erase)
    move = forward_write(Tenants.move)

    @property
    def sync_tenants(self) -> Tenants:
        """Return the sync tenants below this object, for use in your own threads.

        Closing this object also closes them.
        """
        return self._target

    @property
    def metrics(self) -> Metrics:
        """Return the counters of calls about tenants. Each store has its own counters."""
        return self._target.metrics

    async def store(
        self, name: str, *, codec: Codec | ContextCodec | None = None, plain: Plain = "read"
    ) -> AsyncStateStore:
        """See `Tenants.store`."""
        return await opened_as(
            lambda store: AsyncStateStore(store, self._lanes),
            partial(self._target.store, name, codec=codec, plain=plain),
            self._opening,
        )

    async def close(self) -> None:
        """Close the stores of all tenants after unfinished calls are done. May be called twice."""
        if self._calls.lane.is_open:
            self._calls.lane.close()
            self._opening.close()
            self._lanes.close()
            closing = Lane("closing")
            await closing.finish(self._end)
            closing.close()

    def _end(self) -> None:
        self._calls.lane.join()
        self._opening.join()
        self._lanes.join()
        self._target.close()

    def __repr__(self) -> str:
        return f"Async{self._target!r}"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
