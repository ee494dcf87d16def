"""`AsyncStateStore`: the store for coroutines.

Calls run on worker threads over the sync store: reads in parallel, writes on threads of their own. There is no second
database driver. The store is not bound to an event loop: one loop may open it and another use it. A cancelled await
first waits for the outcome of its write, then raises `asyncio.CancelledError`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager
from functools import partial, wraps
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, Protocol, Self, TypeAlias, TypeVar

from lastlight_state.aio.blocks import JoinedBlock, PinnedBlock, PinnedRunner, enter_block, sync_of
from lastlight_state.aio.forward import Runner
from lastlight_state.aio.lanes import Lane
from lastlight_state.aio.runners import FileRunner, Lanes, StoreRunner
from lastlight_state.domains import Domains, Transaction, View
from lastlight_state.lazy import Part
from lastlight_state.metrics import Metrics
from lastlight_state.store import StateStore

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession

    from lastlight_state.aio.agent_log import AsyncAgentLog
    from lastlight_state.aio.conversations import AsyncConversations
    from lastlight_state.aio.domains import (
        AsyncCheckpoints,
        AsyncMessaging,
        AsyncOutputs,
        AsyncReceipts,
        AsyncSchedules,
    )
    from lastlight_state.aio.journal import AsyncJournal
    from lastlight_state.aio.mailbox import AsyncMailboxes
    from lastlight_state.aio.maintenance import AsyncMaintenance
    from lastlight_state.aio.run_log import AsyncRunLog
    from lastlight_state.aio.states import AsyncStates
    from lastlight_state.aio.workflows import AsyncWorkflows
    from lastlight_state.workflows import Claim, Driven

# Opening an async store: like the sync one, with the same parameters, on a worker thread.

P = ParamSpec("P")
A = TypeVar("A")


class Closing(Protocol):
    """An opened object that must be closed after use."""

    def close(self) -> None: ...


S = TypeVar("S", bound=Closing)


class Opening(Generic[P, S]):
    """The async form of a class method that opens a store or tenants. Its coroutine returns the opened async object."""

    def __init__(self, opens: Callable[P, S]) -> None:
        self._opens = opens
        self.__doc__ = opens.__doc__

    def __get__(self, store: object, owner: type[A]) -> Callable[P, Coroutine[Any, Any, A]]:
        @wraps(self._opens)
        async def open_async(*args: P.args, **kwargs: P.kwargs) -> A:
            return await opened_as(owner, partial(self._opens, *args, **kwargs))

        return open_async


async def opened_as(kind: Callable[[S], A], opens: Callable[[], S], shared: Lane | None = None) -> A:
    """Call ``opens`` to open a sync store. Return its async form. If the task is cancelled, close the store.

    ``opens`` runs on a thread of the ``shared`` lane, or on a new thread if there is none.
    """
    lane = shared or Lane("open")
    stores: list[S] = []

    def work() -> None:
        stores.append(opens())

    try:
        await lane.run(work)
    except asyncio.CancelledError:
        for store in stores:
            await lane.finish(store.close)
        raise
    finally:
        if lane is not shared:
            lane.close()
    return kind(stores[0])


T = TypeVar("T")
_Block: TypeAlias = "AbstractAsyncContextManager[AsyncTransaction]"


class AsyncDomains:
    """The domains that are stored in the database, for coroutines."""

    def __init__(self, target: Domains, runner: Runner) -> None:
        self._target = target
        self._runner = runner

    def _make_part(self, kind: type[Any], name: str) -> Any:
        return kind(getattr(self._target, name), self._runner)

    #: Runs and their steps: running work and the next work to do.
    workflows: Part[AsyncWorkflows] = Part("lastlight_state.aio.workflows.AsyncWorkflows")

    #: Chat sessions and their messages.
    messaging: Part[AsyncMessaging] = Part("lastlight_state.aio.domains.AsyncMessaging")

    #: Crons, operators' overrides, and fires.
    schedules: Part[AsyncSchedules] = Part("lastlight_state.aio.domains.AsyncSchedules")

    #: Events of runs, in order.
    journal: Part[AsyncJournal] = Part("lastlight_state.aio.journal.AsyncJournal")

    #: Inputs of runs, and outputs of their tasks.
    outputs: Part[AsyncOutputs] = Part("lastlight_state.aio.domains.AsyncOutputs")

    #: Receipts of maintenance: each operation that ran or is running.
    receipts: Part[AsyncReceipts] = Part("lastlight_state.aio.domains.AsyncReceipts")

    #: Messages stored once, their order in sessions, branches and forks.
    conversations: Part[AsyncConversations] = Part("lastlight_state.aio.conversations.AsyncConversations")

    #: Checkpoints of threads, in order, as bytes that only the caller can interpret.
    checkpoints: Part[AsyncCheckpoints] = Part("lastlight_state.aio.domains.AsyncCheckpoints")

    #: Values by scope and key.
    states: Part[AsyncStates] = Part("lastlight_state.aio.states.AsyncStates")


class AsyncTransaction(AsyncDomains):
    """A transaction of several calls, like `lastlight_state.Transaction`.

    The calls run one after the other on one thread.
    """

    def __init__(self, target: Transaction, runner: Runner) -> None:
        super().__init__(target, runner)
        self._transaction = target

    async def run(self, work: Callable[[Transaction], T]) -> T:
        """Run a plain function with the sync transaction, and return its result.

        The function runs on the transaction's thread. A ``Session(bind=tx.connection)`` made in it joins the
        transaction.
        """
        return await self._runner.write(partial(work, self._transaction))

    def after_commit(self, hook: Callable[[], object]) -> None:
        """See `Transaction.after_commit`. The hook runs on the worker thread that committed."""
        self._transaction.after_commit(hook)


class AsyncView(AsyncDomains):
    """A read-only snapshot of the database, like `lastlight_state.View`."""

    def __init__(self, target: View, runner: Runner) -> None:
        super().__init__(target, runner)
        self._view = target

    async def run(self, work: Callable[[View], T]) -> T:
        """Run a plain function with the sync view, and return its result.

        The function runs on the view's thread. A ``Session(bind=view.connection)`` made in it reads the same snapshot.
        """
        return await self._runner.read(partial(work, self._view))


class AsyncStateStore(AsyncDomains):
    """The store for coroutines. Open one per process. Any task, in any event loop, may use it."""

    def __init__(self, store: StateStore, lanes: Lanes | None = None) -> None:
        """Create the async form of a store. ``lanes`` are threads that it shares with other stores."""
        self._store = store
        self._lanes = StoreRunner(store, lanes)
        super().__init__(store, self._lanes)
        self._replica: AsyncStateStore | None = None

    #: Like `StateStore.open`, with the same parameters, but awaited.
    open = Opening(StateStore.open)

    #: The agent's event logs: line files beside the database, outside transactions.
    agent_log: Part[AsyncAgentLog] = Part(
        "lastlight_state.aio.agent_log.AsyncAgentLog",
        lambda store, kind: kind(store._store.agent_log, FileRunner(store._lanes)),
    )
    #: Logs of runs and states of sessions: files beside the database, outside transactions.
    run_log: Part[AsyncRunLog] = Part(
        "lastlight_state.aio.run_log.AsyncRunLog",
        lambda store, kind: kind(store._store.run_log, FileRunner(store._lanes)),
    )
    #: Messages between hosts and agents: files beside the database, outside transactions.
    mailbox: Part[AsyncMailboxes] = Part(
        "lastlight_state.aio.mailbox.AsyncMailboxes",
        lambda store, kind: kind(store._store.mailbox, FileRunner(store._lanes)),
    )
    #: Reads and repairs that span several domains.
    maintenance: Part[AsyncMaintenance] = Part("lastlight_state.aio.maintenance.AsyncMaintenance")

    @property
    def sync_store(self) -> StateStore:
        """Return the sync store below this one, for use in your own threads. Closing this store also closes it."""
        return self._store

    @property
    def metrics(self) -> Metrics:
        """Return the counters of this store."""
        return self._store.metrics

    @property
    def replica(self) -> AsyncStateStore:
        """See `StateStore.replica`."""
        self._lanes.refuse_closed()
        found = self._store.replica
        if found is self._store:
            return self
        if self._replica is None:
            self._replica = AsyncStateStore(found, self._lanes.lent)
        return self._replica

    def transaction(
        self,
        *,
        connection: AsyncConnection | AsyncSession | None = None,
        claim: Claim | None = None,
        label: str | None = None,
    ) -> AbstractAsyncContextManager[AsyncTransaction]:
        """See `StateStore.transaction`. Keep it short, because other writers of a SQLite file wait for it.

        ``connection`` is an async connection or session of psycopg or aiosqlite. With it, calls in the block, and hooks
        after your commit, run in your event loop.
        """
        if connection is not None:
            joining = self._store.transaction(connection=sync_of(connection), claim=claim, label=label)
            return JoinedBlock(joining, AsyncTransaction, self._lanes.refuse_closed)
        return self._pinned_block(self._store.transaction(claim=claim, label=label), AsyncTransaction)

    @asynccontextmanager
    async def driving(self, claim: Claim) -> AsyncIterator[Driven[AsyncWorkflows, AsyncJournal, _Block]]:
        """See `StateStore.driving`. Use it with ``async with``.

        If the task is cancelled inside the block, the run is released.
        """
        async with enter_block(self._lanes, self._store._driving_block(claim, self.transaction)) as run:
            driven: Any = run
            driven.workflows = type(self.workflows)(run.workflows, self._lanes)
            driven.journal = type(self.journal)(run.journal, self._lanes)
            yield driven

    def view(self) -> AbstractAsyncContextManager[AsyncView]:
        """See `StateStore.view`."""
        return self._pinned_block(self._store.view(), AsyncView)

    async def read(self, work: Callable[[View], T]) -> T:
        """See `StateStore.read`. ``work`` is a plain function that gets a sync view.

        It makes many reads on one thread.
        """
        return await self._lanes.read(partial(self._store.read, work))

    async def run(
        self,
        work: Callable[[Transaction], T],
        *,
        claim: Claim | None = None,
        label: str | None = None,
        repeatable: bool = False,
    ) -> T:
        """See `StateStore.run`. ``work`` is a plain function that gets a sync transaction.

        It runs on a worker thread.
        """
        return await self._lanes.write(partial(self._store.run, work, claim=claim, label=label, repeatable=repeatable))

    async def close(self) -> None:
        """Close the store after unfinished calls are done. May be called twice, but not inside a transaction."""
        lanes = self._lanes
        if lanes.is_open:
            lanes.refuse_closed()
            if self._replica is not None:
                self._replica._lanes.refuse_closed()
            lanes.close()
            try:
                if self._replica is not None:
                    await self._replica.close()
            finally:
                closing = Lane("closing")
                await closing.finish(partial(lanes.then, self._store.close))
                closing.close()

    def __repr__(self) -> str:
        return f"{type(self).__name__}{repr(self._store).removeprefix(type(self._store).__name__)}"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def _pinned_block(
        self, block: AbstractContextManager[Any], kind: Callable[[Any, Runner], T]
    ) -> AbstractAsyncContextManager[T]:
        lanes = self._lanes
        return PinnedBlock(
            block, lambda target, lane: kind(target, PinnedRunner(lane)), lanes.blocks, lanes.refuse_closed
        )
