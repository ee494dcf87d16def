"""`StateStore`: all domains, over one database.

``store.workflows.runs.get(...)`` is a unit of its own. ``with store.transaction() as tx`` groups calls, all or nothing.
``with store.view() as view`` reads one snapshot. All three have the same repositories.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Self, TypeAlias, TypeVar

from sqlalchemy.engine import Connection, Engine
from sqlalchemy.orm import Session

from lastlight_state.backends import connect, connect_replica, replica_url
from lastlight_state.backends.base import Backend, Mode
from lastlight_state.backends.known_faults import log_faults
from lastlight_state.backends.waiting import Retry
from lastlight_state.clock import SYSTEM_CLOCK, Clock, KeptClock, checked_clock
from lastlight_state.db.news.listeners import Listeners
from lastlight_state.db.repository import Context
from lastlight_state.db.schema.sealing import Codec, ContextCodec, Plain, Sealing, sealing_of
from lastlight_state.db.units.external_transactions import join_transaction, undo
from lastlight_state.db.units.scope import OpenedScope, StoreScope, TransactionScope
from lastlight_state.db.units.unit import Unit, add_label, run_hooks
from lastlight_state.domains import Domains, Transaction, View
from lastlight_state.errors import BackendBusy, BackendError, BackendUnavailable, NestedTransaction, ReadOnlyTransaction
from lastlight_state.lazy import Part
from lastlight_state.locks import Lock
from lastlight_state.metrics import Metrics
from lastlight_state.migrations import migrate as bring_up, verify
from lastlight_state.settings import Settings, load_settings
from lastlight_state.unwinding import block

if TYPE_CHECKING:
    from lastlight_state.files.agent_log import AgentLog
    from lastlight_state.files.mailbox import Mailboxes
    from lastlight_state.files.run_log import RunLog
    from lastlight_state.journal import Journal
    from lastlight_state.maintenance import Maintenance
    from lastlight_state.workflows import Claim, Driven, Workflows

T = TypeVar("T")
_Block: TypeAlias = "AbstractContextManager[Transaction]"

_log = logging.getLogger("lastlight_state.store")


class StateStore(Domains):
    """The store. Open one per process and share it between the process's threads."""

    def __init__(self, backend: Backend, settings: Settings, clock: Clock = SYSTEM_CLOCK) -> None:
        self.backend = backend
        settings = settings.anchored()
        self.settings = settings
        self.metrics = backend.metrics = Metrics()
        self._scope = StoreScope(backend, Retry(self.metrics, settings.retry_seconds, backend.lock_seconds))
        clock = checked_clock(clock)
        super().__init__(Context(self._scope, clock, settings, Listeners(self.metrics)))
        self._engine: Engine | None = None
        self._replica: StateStore | None = None
        self._replica_lock = Lock()

    @classmethod
    def open(
        cls,
        url: str | Path | None = None,
        *,
        url_file: str | Path | None = None,
        schema: str | None = None,
        state_dir: str | Path | None = None,
        migrate: bool | None = None,
        read_only: bool | None = None,
        durability: str | None = None,
        replica: str | None = None,
        engine: Engine | None = None,
        settings: Settings | None = None,
        clock: Clock = SYSTEM_CLOCK,
        codec: Codec | ContextCodec | None = None,
        plain: Plain = "read",
    ) -> Self:
        """Open a store, by default the SQLite file ``$STATE_DIR/lastlight.db``.

        ``url`` is a path, ``sqlite:///…``, or ``postgresql://…``; ``url_file`` is a file that contains it. SQLite is
        migrated unless ``migrate=False``; Postgres is only verified unless ``migrate=True``. ``replica`` is the URL of
        a server to read from, see `StateStore.replica`. If you pass an ``engine``, it is used and never disposed.
        ``codec`` seals the contents of messages, states and checkpoints, see `lastlight_state.Codec`; with
        ``plain="refuse"``, reading an unsealed content raises `SealedValue`. Raises `NotMigrated` or `NewerSchema` for
        a schema that does not fit, `SchemaMismatch` for one that lost a part or is an unfinished copy, `InvalidValue`
        for a wrong URL or setting, and `BackendUnavailable` if the database cannot be reached. Then nothing was
        created.
        """
        in_force = load_settings(
            settings,
            url=None if url is None else str(url),
            url_file=url_file,
            schema_name=schema,
            state_dir=state_dir,
            migrate=migrate,
            read_only=read_only,
            durability=durability,
            replica=replica,
        ).anchored()
        KeptClock(clock).now()  # an unusable clock is refused before anything is created
        sealing = sealing_of(codec, plain)
        store = cls._on(connect(in_force, engine), in_force, clock, sealing)
        store._engine = engine
        return store

    @classmethod
    def _on(cls, backend: Backend, settings: Settings, clock: Clock, sealing: Sealing | None) -> Self:
        """Open a store on a backend. If that fails, close the backend."""
        backend.sealing = sealing
        try:
            replica_url(settings, backend)
            wanted = backend.migrates_on_open if settings.migrate is None else settings.migrate
            (bring_up if wanted and not settings.read_only else verify)(backend)
            log_faults(backend.known_faults())
        except BaseException:
            backend.close()
            raise
        return cls(backend, settings, clock)

    #: The events of runs, in order. Followers check whether the runs have ended.
    journal: Part[Journal] = Part(
        "lastlight_state.journal.Journal",
        lambda store, kind: kind(store._context, store._wake_callback, store._ended_flags),
    )
    #: The agent's event logs: line files beside the database, not transactional.
    agent_log: Part[AgentLog] = Part(
        "lastlight_state.files.agent_log.AgentLog",
        lambda store, kind: kind(
            store.settings.agent_sessions,
            clock=store._context.clock,
            sync=store.settings.line_sync,
            session_types=store.settings.session_types,
        ),
    )
    #: The logs of runs and the states of sessions: files beside the database, not transactional.
    run_log: Part[RunLog] = Part(
        "lastlight_state.files.run_log.RunLog",
        lambda store, kind: kind(store.settings.run_logs, clock=store._context.clock, sync=store.settings.line_sync),
    )
    #: The messages between hosts and agents: files beside the database, not transactional.
    mailbox: Part[Mailboxes] = Part(
        "lastlight_state.files.mailbox.Mailboxes",
        lambda at, kind: kind(at.settings.mailboxes, settings=at.settings, clock=at._context.clock, metrics=at.metrics),
    )
    #: Work that spans many domains.
    maintenance: Part[Maintenance] = Part("lastlight_state.maintenance.Maintenance")

    @property
    def replica(self) -> StateStore:
        """Return a read-only store on the replica that the settings name, for lists, reports, followers and exports.

        It shows everything that this store committed before, and everything that any client had committed
        ``max_staleness`` seconds ago. If the replica does not reach that state within ``pool_timeout``, a call raises
        `BackendUnavailable` ``replica_behind``. If the settings name no replica, the returned store reads from this
        store's own database. No other call of this store reads from the replica. The returned store is closed with this
        store.
        """
        self._scope.refuse_closed()
        if self.settings.read_only and self.settings.replica is None:
            return self
        with self._replica_lock:
            self._scope.refuse_closed()  # otherwise nobody would close the replica's store
            if self._replica is None:
                backend = connect_replica(self.settings, self.backend, self._engine, self._scope.after_commits)
                backend.sealing = self.backend.sealing
                own = {"read_only": True, "url": self.settings.replica or self.settings.url, "replica": None}
                self._replica = StateStore(backend, self.settings.model_copy(update=own), self._context.clock)
            return self._replica

    @block
    def transaction(
        self, *, connection: Connection | Session | None = None, claim: Claim | None = None, label: str | None = None
    ) -> Iterator[Transaction]:
        """Group calls in a transaction: commit at the end of the block, and roll back on any exception.

        ``connection``, which may be a session, joins your own transaction instead, which you commit. ``claim`` is
        confirmed first: either the run's holder writes all of the block, or `ClaimLost` is raised and nothing is
        written. Engine writes to that run pass the claim automatically. ``label`` names the transaction in errors, in
        logs and in ``store.metrics``. Raises `NestedTransaction` inside another transaction of the thread. Only `run`
        retries a transaction.
        """
        if connection is not None:
            with self._joined_transaction(connection, label, claim) as transaction:
                yield transaction
            return
        with self._transaction(self._scope.open_unit(Mode.WRITE, label), label, claim) as transaction:
            try:
                yield transaction
            except BackendBusy as error:
                self._scope.retry.gives_up(error, label=label)
                raise

    def driving(self, claim: Claim) -> AbstractContextManager[Driven[Workflows, Journal, _Block]]:
        """Drive a run in a block, like ``workflows.claims.driving``, but for blocks that also write to other domains.

        ``driven.workflows``, ``driven.journal`` and ``driven.transaction()`` pass the claim automatically.
        """
        return self._driving_block(claim, self.transaction)

    @block
    def view(self) -> Iterator[View]:
        """Read one snapshot: every read in the block sees the same commits. It blocks no writer."""
        with self._view(self._scope.open_unit(Mode.SNAPSHOT)) as view:
            yield view

    def read(self, work: Callable[[View], T]) -> T:
        """Run ``work(view)`` in a view of one snapshot and return its result.

        The whole of ``work`` is run again while the database is busy, and after a lost connection.
        """
        self._scope.refuse_closed()

        def attempt() -> T:
            with self._view(Unit(Mode.SNAPSHOT, self.backend)) as view:
                return work(view)

        return self._scope.retry.run(attempt, repeatable=True)

    def run(
        self,
        work: Callable[[Transaction], T],
        *,
        claim: Claim | None = None,
        label: str | None = None,
        repeatable: bool = False,
    ) -> T:
        """Run ``work(tx)`` in a transaction of its own and return its result.

        While the database is busy, the whole of ``work`` is run again, including its effects outside the database.
        ``claim`` is confirmed at the beginning of each of these transactions, as in `transaction`. ``repeatable`` means
        that a second run finds the writes of the first one. Then ``work`` is also run again if the connection was lost
        during COMMIT, which leaves the outcome unknown; otherwise that raises `BackendUnavailable`.
        """
        self._scope.refuse_closed()

        def attempt() -> T:
            with self._transaction(Unit(Mode.WRITE, self.backend), label, claim) as transaction:
                return work(transaction)

        try:
            return self._scope.retry.run(attempt, repeatable=repeatable, label=label)
        except BackendError as error:  # also if the transaction could not be begun
            add_label(error, label)
            raise

    def close(self) -> None:
        """Close the store and its connections. Idempotent; later calls raise `StoreClosed`.

        Queued writers are closed first. If they could not store some events, `UnsavedEvents` with these events is
        raised after everything is closed. Raises `NestedTransaction` inside a transaction block of the same thread,
        because that block could never end.
        """
        if self._scope.inside_block() or (self._replica is not None and self._replica._scope.inside_block()):
            raise NestedTransaction("inside a transaction's block: close the store after it")
        try:
            for end in self._scope.before_close if self._scope.is_open else ():
                end()
        finally:
            if self._scope.close():
                with self._replica_lock:
                    if self._replica is not None:
                        self._replica.close()
                self.backend.close()
                self._context.remembered.clear()

    def __repr__(self) -> str:
        """Return the database's name, without its password, and whether the store is open."""
        return f"{type(self).__name__}({self.backend.location!r}, {'open' if self._scope.is_open else 'closed'})"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _ended_flags(self, run_ids: Collection[str]) -> Mapping[str, bool]:
        return self.workflows.lookups._ended_flags(run_ids)

    def _driving_block(
        self, claim: Claim, begin: Callable[..., T]
    ) -> AbstractContextManager[Driven[Workflows, Journal, T]]:
        def journal(opening: Callable[[Unit], object]) -> Journal:
            within = self._context.within(OpenedScope(self._scope, opening))
            return type(self.journal)(within, self._wake_callback, self._ended_flags)

        return self.workflows.claims._driving_in_store(claim, journal, begin)

    @block
    def _transaction(self, unit: Unit, label: str | None, claim: Claim | None) -> Iterator[Transaction]:
        try:
            with self._block(unit, label):
                scope = TransactionScope(unit, self.metrics)
                try:
                    undo_all = partial(self.backend.rollback, unit)
                    yield _confirm_claim(Transaction(self._context, scope, undo_all, claim), claim)
                finally:
                    scope.end()
        except BackendUnavailable as error:
            if error.outcome == "unknown":
                self._scope.announce_commit()
            raise
        self._scope.announce_commit()
        run_hooks(unit.hooks, self.metrics, label)

    @block
    def _view(self, unit: Unit) -> Iterator[View]:
        with self._block(unit, None):
            scope = TransactionScope(unit, self.metrics, may_write=False)
            try:
                yield View(self._context, scope, partial(self.backend.rollback, unit))
            finally:
                scope.end()

    @block
    def _block(self, unit: Unit, label: str | None) -> Iterator[None]:
        with unit, self._scope.inside():
            try:
                yield
                unit.complete()
            except BaseException as error:
                add_label(error, label)
                raise

    @block
    def _joined_transaction(
        self, given: Connection | Session, label: str | None, claim: Claim | None
    ) -> Iterator[Transaction]:
        self._scope.refuse_closed()
        if self.settings.read_only:
            raise ReadOnlyTransaction("the store is open for reading only")
        try:
            with join_transaction(self._scope, given) as unit:
                scope = TransactionScope(unit, self.metrics)
                try:
                    yield _confirm_claim(Transaction(self._context, scope, partial(undo, unit), claim), claim)
                finally:
                    scope.end()
                if self._scope.after_commits or self.settings.replica is not None:
                    unit.hooks.insert(0, self._scope.announce_commit)  # before hooks that read what has changed
        except BaseException as error:
            add_label(error, label)
            raise


def _confirm_claim(transaction: Transaction, claim: Claim | None) -> Transaction:
    """Return the transaction, in which the claim cannot be taken by another holder."""
    if claim is not None:
        transaction.workflows.claims.confirm(claim)
    return transaction
