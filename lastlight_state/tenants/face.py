"""`Tenants`: one schema of a Postgres database per tenant, and one connection pool for all.

A tenant is any schema that has this library's version table. There is no other list of tenants.
"""

from __future__ import annotations

import builtins
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from functools import partial
from pathlib import Path
from typing import Any, Self, TypeVar

from lastlight_state import migrations, progress
from lastlight_state.backends import connect
from lastlight_state.backends.base import Backend
from lastlight_state.backends.sql.expressions import literal, quote_name
from lastlight_state.backends.waiting import Retry
from lastlight_state.clock import SYSTEM_CLOCK, Clock, KeptClock
from lastlight_state.db import valid
from lastlight_state.db.schema.base import VERSION_TABLE
from lastlight_state.db.schema.sealing import Codec, ContextCodec, Plain, sealing_of
from lastlight_state.db.units.scope import StoreScope
from lastlight_state.errors import Conflict, InvalidValue, NotFound, StateError, StoreClosed
from lastlight_state.locks import Lock
from lastlight_state.maintenance import Manifest
from lastlight_state.metrics import Metrics
from lastlight_state.migrations import MigrationResult
from lastlight_state.migrations.runner import LOCK_SECONDS
from lastlight_state.migrations.state import word_for
from lastlight_state.settings import Settings, load_settings
from lastlight_state.store import StateStore
from lastlight_state.tenants import erasing, names, work
from lastlight_state.tenants.records import ErasedTenant, FailedTenant, MigratedTenants, Tenant

T = TypeVar("T")

#: Most tenants that one statement covers.
AT_ONCE = 100
#: Tenants that are migrated at a time: the default and the maximum.
WORKERS, MOST_WORKERS = 4, 64
#: Seconds that a look for work waits for a table lock.
LOOK_SECONDS = 0.25


class Tenants:
    """The tenants of a Postgres database. Open it once per process: the tenants' stores share its connection pool."""

    def __init__(self, backend: Backend, settings: Settings, clock: Clock = SYSTEM_CLOCK) -> None:
        self.backend = backend
        self.settings = settings
        self.metrics = backend.metrics = Metrics()
        self._clock = clock
        self._scope = StoreScope(backend, Retry(self.metrics, settings.retry_seconds, backend.lock_seconds))
        self._stores: weakref.WeakSet[StateStore] = weakref.WeakSet()
        self._looking: Backend | None = None
        self._looks = work.Looks()
        self._opening_lock = Lock()

    @classmethod
    def open(
        cls,
        url: str | Path | None = None,
        *,
        url_file: str | Path | None = None,
        state_dir: str | Path | None = None,
        read_only: bool | None = None,
        settings: Settings | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> Self:
        """Open the tenants of a Postgres database, whether or not their schemas are migrated.

        The settings apply to each tenant's store, except for the schema and ``migrate``, because opening a store
        creates no tenant. ``pool_size`` is the most connections of all stores together. The files of a tenant are in a
        folder ``_tenants/<name>`` below ``state_dir``, and below every other directory of the settings. Raises
        `NotSupported` for a database without schemas and for a worker of Citus, `InvalidValue` for a replica, and
        `BackendUnavailable` if the server cannot be reached.
        """
        in_force = load_settings(
            settings, url=None if url is None else str(url), url_file=url_file, state_dir=state_dir, read_only=read_only
        ).anchored()
        if in_force.replica is not None:
            raise InvalidValue("replica", "open tenants of the replica by themselves, with read_only=True")
        KeptClock(clock).now()
        in_force = in_force.model_copy(update={"schema_name": None, "migrate": False})
        backend = connect(in_force)
        try:
            backend.meet_server()
        except BaseException:
            backend.close()
            raise
        return cls(backend, in_force, clock)

    def store(self, name: str, *, codec: Codec | ContextCodec | None = None, plain: Plain = "read") -> StateStore:
        """Open a tenant's store. This costs one query of the tenant's schema. Closing the store closes no connection.

        ``codec`` and ``plain`` have the same meaning as in `StateStore.open`. Raises the same errors, especially
        `NotMigrated` if the tenant is behind or does not exist, and `InvalidValue` for an invalid tenant name.
        """
        settings, sealing = self._settings_of(name), sealing_of(codec, plain)
        opened = self._look(lambda: StateStore._on(self.backend.beside(name), settings, self._clock, sealing))
        with self._opening_lock:
            if self._scope.is_open:
                self._stores.add(opened)
                return opened
        opened.close()  # the tenants were closed meanwhile, and would never close this store
        raise StoreClosed("the tenants are closed")

    def create(self, name: str, *, lock_timeout: float = LOCK_SECONDS) -> MigrationResult:
        """Create the schema of a tenant, or migrate an existing tenant to the newest revision.

        Several callers may do so concurrently. Raises `Conflict` ``not_empty`` if the schema is not this library's and
        holds anything, `InvalidValue` for an invalid tenant name, and the errors of
        `lastlight_state.migrations.migrate`.
        """
        backend = self._backend_of(name)
        if not self._names_of([name]):
            self._refuse_filled(backend)
        return migrations.migrate(backend, lock_timeout=lock_timeout)

    def list(self, *, sizes: bool = False) -> tuple[Tenant, ...]:
        """Return all tenants by name, with their revisions.

        With ``sizes``, also return their bytes, which are read from disk. A schema of this library is left out if no
        tenant may have its name, such as ``public``.
        """
        valid.flag("sizes", sizes)
        found: list[Tenant] = []
        for some in _batches(self._names_of(None)):
            revisions = self._revisions(some)
            bytes_of = self._look(partial(self.backend.sizes_of, some)) if sizes else {}
            found += [_tenant(name, revisions[name], bytes_of.get(name)) for name in some if name in revisions]
        return tuple(found)

    def migrate(
        self,
        only: Sequence[str] | None = None,
        *,
        workers: int = WORKERS,
        lock_timeout: float = LOCK_SECONDS,
    ) -> MigratedTenants:
        """Migrate all tenants, or only the named ones, to the newest revision.

        If a tenant fails, continue with the others. At most ``workers`` tenants are migrated at a time, and always one
        fewer than there are connections, so that other calls need not wait. Each tenant is migrated in its own
        transaction, so an interrupted call may simply be repeated: a current tenant costs one query. A tenant that
        fails is unchanged, and is returned with its error. So is a name that no tenant has. Progress is reported
        through `lastlight_state.progress`.
        """
        there = self._names_of(None)
        asked = there if only is None else [names.check_name(name) for name in dict.fromkeys(only)]
        wanted = [name for name in asked if name in there]
        most = valid.number("workers", workers, least=1, most=MOST_WORKERS)
        most = min(most, max(1, self.settings.pool_size - 1))  # one connection is left to other callers
        results: dict[str, MigrationResult | StateError] = {
            name: NotFound("tenant", name) for name in asked if name not in there
        }
        with ThreadPoolExecutor(most, thread_name_prefix="lastlight-migrate") as pool:
            futures = {pool.submit(self._migrate_tenant, name, lock_timeout): name for name in wanted}
            try:
                for future in as_completed(futures):
                    results[futures[future]] = future.result()
                    progress.tell("migrate", len(results), len(asked), unit="tenants")
            except BaseException:
                pool.shutdown(cancel_futures=True)
                raise
        return _summary(sorted(results.items()))

    def due(self, workflow_names: Sequence[str] | None = None, *, only: Sequence[str] | None = None) -> tuple[str, ...]:
        """Return the tenants in which a worker of these workflows, or of all, may find work now.

        Work is a run that may be taken or admitted, a timer, an overdue question, a due cron or a stale fire. With
        ``only``, just these tenants are queried. A few statements cover all tenants, and each connection plans them
        once. The run found may be at its limit of restarts, or wait for a place below a cap; a worker only notices that
        when it takes the run. These queries use one connection in addition to the pool, because the server keeps half a
        megabyte per tenant in it.

        A tenant that cannot be queried, for instance because it is behind, is left out, and a warning is logged once.
        So is a tenant with a table that is locked for more than a quarter of a second. Behind a pooler the role's
        ``lock_timeout`` applies instead. If no tenant can be queried, one of their errors is raised.
        """
        workflows = None if workflow_names is None else list(valid.several("workflow_names", workflow_names))
        wanted = None if only is None else [names.check_name(name) for name in only]
        asked = self._names_of(wanted)
        values = {"at": KeptClock(self._clock).now(), "workflows": workflows}

        def ask(statements: Sequence[str]) -> tuple[builtins.list[Any], Mapping[str, StateError]]:
            return self._looker().rows_of(statements, values)

        filtered = workflows is not None
        return tuple(
            self._look(lambda: self._looks.due_tenants(asked, ask, lambda: self._names_of(wanted), filtered=filtered))
        )

    def export(self, name: str, folder: str | Path, *, with_logs: bool = True) -> Manifest:
        """Write all data of a tenant to a new folder, as `Backup.create` does, and return its manifest.

        ``store.maintenance.backup.restore`` restores it as a tenant of another database, or as an SQLite file. Raises
        `NotFound` if the tenant does not exist, and the errors of `Backup.create`.
        """
        self._expect(name)
        with StateStore(self.backend.beside(name), self._settings_of(name), self._clock) as store:
            return store.maintenance.backup.create(folder, with_logs=with_logs)

    def erase(self, name: str, *, confirm: str | None = None, lock_timeout: float = LOCK_SECONDS) -> ErasedTenant:
        """Erase a tenant's schema and files permanently, if ``confirm`` is its name. Else return what would be erased.

        Raises `Conflict` ``not_ours``, and erases nothing, if the schema holds a table, column, view, function or type
        that is not this library's, or if an object elsewhere refers to the schema. The error names it. A table that was
        attached as an output table is not this library's. Other programs' additions to a table that hold no data are
        erased with the table: indexes, triggers, entries in publications. So are columns added to an output table.
        Running calls in the schema are waited for, some seconds at most, and later calls fail. Raises `NotFound` if the
        tenant does not exist, and `InvalidValue` if ``confirm`` is another name.
        """
        revision = self._expect(name)
        if confirm not in (None, name):
            raise InvalidValue("confirm", f"expected the name of the tenant, {name!r}, got {confirm!r:.80}")
        settings, backend = self._settings_of(name), self._backend_of(name)
        size = self._look(lambda: backend.sizes_of([name])).get(name, 0)
        if confirm is None:
            return ErasedTenant(name, revision, size, erasing.files_of(settings), erased=False)
        files = self._scope.retry.run(lambda: erasing.erase(backend, settings, lock_timeout))
        return ErasedTenant(name, revision, size, files, erased=True)

    def move(self, name: str, host: str, port: int) -> None:
        """Move a tenant to another server of a Citus database while it is in use.

        Raises `NotSupported` on any other Postgres, and `NotFound` if the tenant does not exist.
        """
        backend = self._backend_of(name)
        self._expect(name)
        backend.move_schema(host, valid.number("port", port, least=1, most=65_535))

    def close(self) -> None:
        """Close the stores of all tenants and the connections. May be called twice. Later calls raise `StoreClosed`."""
        with self._opening_lock:
            first, stores = self._scope.close(), [*self._stores]
        try:
            for store in stores:
                store.close()
        finally:
            if first:
                with self._opening_lock:
                    if self._looking is not None:
                        self._looking.close()
                self.backend.close()

    def __repr__(self) -> str:
        """Show the database without its password, and whether the tenants are open."""
        return f"{type(self).__name__}({self.backend.location!r}, {'open' if self._scope.is_open else 'closed'})"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _looker(self) -> Backend:
        """Return the backend for queries that look for work. It has its own connection."""
        with self._opening_lock:
            self._scope.refuse_closed()  # a backend opened after `close` would stay open
            if self._looking is None:
                own: dict[str, Any] = {"pool_size": 1}
                if self.settings.pooler is None:
                    own["lock_timeout"] = min(self.settings.lock_timeout or LOOK_SECONDS, LOOK_SECONDS)
                self._looking = connect(self.settings.model_copy(update=own))
            return self._looking

    def _settings_of(self, name: str) -> Settings:
        names.check_name(name)
        own: dict[str, Any] = {"schema_name": name, "state_dir": self.settings.state_dir / names.FOLDER / name}
        for directory in ("agent_log_dir", "run_log_root", "mailbox_root"):
            given = getattr(self.settings, directory)
            own[directory] = None if given is None else given / names.FOLDER / name
        return self.settings.model_copy(update=own)

    def _backend_of(self, name: str) -> Backend:
        return self.backend.beside(names.check_name(name))

    def _refuse_filled(self, backend: Backend) -> None:
        if not self._look(backend.is_empty):
            raise Conflict(f"the schema {backend.schema!r} holds what is not this library's", code="not_empty")

    def _names_of(self, only: Sequence[str] | None) -> builtins.list[str]:
        """Return the names of all tenants, or those in ``only`` that exist."""
        found = [name for name in self._look(lambda: self.backend.schemas_with(VERSION_TABLE)) if names.is_name(name)]
        return found if only is None else [name for name in found if name in only]

    def _expect(self, name: str) -> str | None:
        """Return the revision of a tenant. Raises `NotFound` if the tenant does not exist."""
        names.check_name(name)
        revisions = self._revisions([name]) if self._names_of([name]) else {}
        if name not in revisions:
            raise NotFound("tenant", name, reason="no schema of this name has this library's version table")
        return revisions[name]

    def _revisions(self, some: Sequence[str]) -> dict[str, str | None]:
        """Return the revisions of these tenants, read by one statement.

        A tenant that was erased meanwhile is left out.
        """
        table = quote_name(VERSION_TABLE)
        selects = (
            f"SELECT {literal(name)}, (SELECT min(version_num::text) FROM {quote_name(name)}.{table})" for name in some
        )
        found = self._look(partial(self.backend.peek, " UNION ALL ".join(selects)))
        if found is not None:
            return dict(found)
        return {} if len(some) == 1 else {key: value for name in some for key, value in self._revisions([name]).items()}

    def _migrate_tenant(self, name: str, lock_timeout: float) -> MigrationResult | StateError:
        try:
            return migrations.migrate(self._backend_of(name), lock_timeout=lock_timeout)
        except StateError as error:
            return error

    def _look(self, ask: Callable[[], T]) -> T:
        self._scope.refuse_closed()
        return self._scope.retry.run(ask, repeatable=True)


def _tenant(name: str, revision: str | None, size: int | None) -> Tenant:
    return Tenant(name, revision, word_for(revision) if revision is not None else "foreign", size)


def _summary(results: Sequence[tuple[str, MigrationResult | StateError]]) -> MigratedTenants:
    failed: list[FailedTenant] = []
    done: list[str] = []
    same: list[str] = []
    for name, result in results:
        if isinstance(result, StateError):
            failed.append(FailedTenant(name, result.code, str(result)))
        else:
            (done if result.revisions or result.mended else same).append(name)
    return MigratedTenants(tuple(done), tuple(same), tuple(failed))


def _batches(of: Sequence[str]) -> Iterator[Sequence[str]]:
    for first in range(0, len(of), AT_ONCE):
        yield of[first : first + AT_ONCE]
