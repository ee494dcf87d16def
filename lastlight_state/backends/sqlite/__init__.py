"""SQLite: one writer at a time per process, concurrent readers, no implicit transaction.

The driver's own transactions are off (``isolation_level=None``). A deferred transaction that first reads and then
writes fails at once if another process committed in between, and no timeout helps. So writing units send ``BEGIN
IMMEDIATE`` and wait for the lock, reading units never write, and a lock is never upgraded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from sqlalchemy import create_engine
from sqlalchemy.dialects.sqlite.base import SQLiteCompiler
from sqlalchemy.dialects.sqlite.pysqlite import SQLiteDialect_pysqlite
from sqlalchemy.engine import URL, Connection, Engine
from sqlalchemy.pool import NullPool, StaticPool

from lastlight_state import metrics
from lastlight_state.backends import urls, waiting
from lastlight_state.backends.base import Checkout, Mode, Options
from lastlight_state.backends.host_connections import hear_own
from lastlight_state.backends.joining import refuse_elsewhere
from lastlight_state.backends.known_faults import WAL_RESET, Fault
from lastlight_state.backends.sqlite import (
    dbapi,
    examining,
    files,
    group_commit,
    host_connections,
    pragmas,
    untrusted,
)
from lastlight_state.backends.sqlite.bulk import insert_rows
from lastlight_state.backends.sqlite.connections import (
    Connections,
    EngineConnections,
    SharedConnection,
    file_of,
)
from lastlight_state.backends.sqlite.dbapi import error_name, sqlite3
from lastlight_state.backends.sqlite.driver import fetch_rows, translate
from lastlight_state.backends.sqlite.file_connections import FileConnections
from lastlight_state.backends.sqlite.locked_reads import LockedConnection
from lastlight_state.backends.sqlite.pragmas import busy_timeout, permit_writes, piece, refuse_writes, tried_again
from lastlight_state.backends.sqlite.upkeep import SqliteUpkeep
from lastlight_state.errors import BackendError, NotSupported, ReadOnlyTransaction, StateError
from lastlight_state.unwinding import block

MEMORY = ":memory:"
OLDEST = (3, 35, 0)


class _Compiler(SQLiteCompiler):
    """A compiler that writes the ``INDEXED BY`` of `db.schema.indexes.through`: SQLAlchemy drops hints on SQLite."""

    def get_from_hint_text(self, table: Any, text: str | None) -> str | None:
        return text


class _Dialect(SQLiteDialect_pysqlite):
    statement_compiler = _Compiler
    supports_statement_cache = True


class SqliteBackend(SqliteUpkeep):
    """One SQLite file, one database in memory, or the database of a caller's engine."""

    name = "sqlite"
    dialect = _Dialect(paramstyle="qmark")
    async_driver = "aiosqlite"
    driver_errors = (sqlite3.Error,)
    migrates_on_open = True
    migration_lock = "the file's write lock, for one transaction; readers go on"
    writers: int | None = 1
    writes_in_ctes = False
    one_writer = True
    large_values_in_rows = True
    failure_aborts_transaction = False

    def __init__(self, database: str, options: Options, *, engine: Engine | None = None) -> None:
        dbapi.refuse_another(options.sqlite_driver)
        if sqlite3.sqlite_version_info < OLDEST:
            raise NotSupported(f"SQLite {sqlite3.sqlite_version} is older than 3.35")
        self.options = options
        self.lock_seconds = options.busy_timeout
        self._path = None if engine is not None or database == MEMORY else Path(database).absolute()
        self.location = urls.redact_url(self._path) if self._path else f"sqlite:///{database}"
        self._engine = engine
        self._connections = self._opened_connections(engine)
        self._has_file = self._path is not None or (engine is not None and file_of(engine) is not None)
        self._line = self._connections.line
        self._log = self._connections.log
        self.shares_commits = self._connections.shares
        self.writers = self._connections.writers
        self._dialect_engine: Engine | None = None
        self.refuse_odd_file()

    def refuse_odd_file(self) -> None:
        """Raise `BackendUnavailable` for a FIFO, device or directory, and for a file in an inaccessible directory."""
        _ = self.exists

    @property
    def exists(self) -> bool:
        try:
            return self._path is None or files.is_there(self._path, follow=not self.options.across_mounts)
        except OSError as error:
            raise translate(error) from error

    @property
    def engine(self) -> Engine:
        if self._engine is not None:
            return self._engine
        engine = self._lent_dialect()
        self.tells = partial(hear_own, engine)
        return engine

    @property
    def is_disturbed(self) -> bool:
        return self._connections.is_disturbed

    def acquire(self, mode: Mode, checkout: Checkout | None = None) -> Checkout:
        if mode.writes and self.options.read_only:
            raise ReadOnlyTransaction("the store is open for reading only")
        checkout = checkout or Checkout(mode, self)
        if metrics.waits is None or not mode.writes:
            return self._acquire_checkout(mode, checkout)
        return metrics.time_call("file", self._acquire_checkout, mode, checkout)

    def _acquire_checkout(self, mode: Mode, checkout: Checkout) -> Checkout:
        try:
            if mode.writes:
                self._connections.writer(checkout)
            else:
                self._connections.reader(checkout)
                if waiting.of_thread.deadline is not None and not self.options.across_mounts:
                    pragmas.hurry(checkout, self.options)
        except (sqlite3.Error, OSError) as error:
            raise translate(error) from error
        if checkout.group is not None:
            return checkout
        begins = mode.begins and not isinstance(checkout.driver, LockedConnection)
        if (
            checkout.groupable and not begins and len(self._line) > 1
        ):  # a single statement would need a commit of its own
            begins = checkout.begun = group_commit.may_lead_group(checkout)
        begin = "BEGIN IMMEDIATE" if mode.writes else "BEGIN DEFERRED"
        try:
            if begins:
                try:
                    checkout.driver.execute(begin)
                except sqlite3.Error as error:
                    self.persist(checkout, error, partial(checkout.driver.execute, begin))
            if self.options.across_mounts:  # our transaction or lock keeps others from changing it
                self._patiently(checkout, partial(untrusted.refuse_forbidden, checkout.driver))
        except BaseException:  # a signal's exception may come just after a successful BEGIN
            self.rollback(checkout)
            self.release(checkout)
            raise
        return checkout

    def commit(self, checkout: Checkout) -> None:
        if checkout.groupable and len(self._line) > 1 and group_commit.may_lead_group(checkout):
            group_commit.commit(self._line, checkout, partial(self._commit, checkout))
        else:
            self._commit(checkout)

    def _commit(self, checkout: Checkout) -> None:
        driver = checkout.driver
        if isinstance(driver, LockedConnection):
            return
        try:
            driver.execute("COMMIT")
        except sqlite3.Error as error:
            self.persist(checkout, error, partial(driver.execute, "COMMIT"))
        checkout.committed = True

    def rollback(self, checkout: Checkout) -> None:
        driver = checkout.driver
        try:
            if driver is not None and driver.in_transaction:
                driver.execute("ROLLBACK")
        except sqlite3.Error:
            checkout.broken = True

    def release(self, checkout: Checkout) -> None:
        if checkout.mode.writes:
            log = self._log
            if log is not None and checkout.driver is not None and log.is_due() and not checkout.broken:
                self._bring_in(log, checkout)
            self._connections.give_back_writer(checkout)
        else:
            permit_writes(checkout)
            if checkout.hurries:
                pragmas.wait_as_usual(checkout, self.options)
            self._connections.give_back_reader(checkout)

    def recover(self, checkout: Checkout) -> None:
        """Let the next writer roll back an interrupted unit. If no writer waits, roll it back now."""
        checkout.broken = True
        self._connections.recover(checkout)
        if self._connections.has_unfinished_unit:
            with Checkout(Mode.READ if self.options.read_only else Mode.ONE, self):
                pass

    def persist(self, checkout: Checkout, error: Exception, run: Callable[[], Any]) -> Any:
        """Wait for the file's lock in short pieces, so that the wait can be cancelled in between."""
        if error_name(error) == "SQLITE_BUSY_SNAPSHOT":
            checkout.broken = True  # an unread cursor keeps an old snapshot: waiting does not help
        if checkout.joined or not isinstance(error, sqlite3.Error):
            raise self.unit_error(checkout, error) from error
        try:
            return tried_again(
                run, error, waiting.until(self.lock_seconds - piece(self.options, writes=checkout.mode.writes))
            )
        except sqlite3.Error as last:
            raise self.unit_error(checkout, last) from last

    def translate(self, error: Exception) -> StateError:
        return translate(error)

    def insert_rows(
        self, checkout: Checkout, table: str, sql: str, names: Sequence[str], blocks: Iterator[Sequence[Sequence[Any]]]
    ) -> None:
        insert_rows(checkout.driver, sql, [row for columns in blocks for row in zip(*columns, strict=True)])

    def ask(
        self, checkout: Checkout, sql: str, params: Mapping[str, Any], *, limit: int, timeout: float, plan: bool = False
    ) -> tuple[list[str], list[Any]]:
        if len(sql) > examining.KEPT_TEXT and self.files and checkout.owner is None:
            checkout.broken = True  # closed afterwards, with the cached text
        return self._patiently(checkout, lambda: examining.ask(checkout.driver, sql, params, limit, timeout, plan=plan))

    fetch_rows = staticmethod(fetch_rows)

    def named_lock(self, checkout: Checkout, name: str) -> None:
        """Do nothing: only one unit at a time writes to a SQLite file."""

    def connection(self, checkout: Checkout) -> Connection:
        if not checkout.mode.writes:
            refuse_writes(checkout)
        lent = StaticPool(lambda: checkout.driver, reset_on_return=None).connect()
        return Connection(self._lent_dialect(), connection=lent)

    def join(self, connection: Connection, checkout: Checkout) -> None:
        self.refuse_foreign(connection)
        host_connections.join_caller(connection, checkout)
        refuse_elsewhere(self, connection, checkout)

    def places(self, checkout: Checkout) -> tuple[str, str]:
        return host_connections.places(checkout, self)

    def refuse_other_tables(self, checkout: Checkout, names: str) -> None:
        host_connections.refuse_temporary(checkout, names)

    def leave(self, checkout: Checkout) -> None:
        host_connections.leave(checkout)

    def alive(self, checkout: Checkout) -> bool:
        return checkout.driver is not None and bool(checkout.driver.in_transaction)

    @block
    def migration(self, lock_timeout: float, *, rebuilds: bool = False) -> Iterator[Connection]:
        with Checkout(Mode.ONE, self) as checkout:
            try:
                yield from self._migration(checkout, lock_timeout, rebuilds=rebuilds)
            except sqlite3.Error as error:
                raise translate(error) from error
            finally:
                self._after_migration(checkout)

    @block
    def scratch(self) -> Iterator[Connection]:
        memory = SqliteBackend(MEMORY, Options())
        try:
            with memory.migration(0) as connection:
                yield connection
        finally:
            memory.close()

    def as_script(self, body: str, lock_timeout: float) -> str:
        return f"{busy_timeout(lock_timeout)};\n\nBEGIN IMMEDIATE;\n\n{body}\n\nCOMMIT;\n"

    def peek(self, *selects: str) -> list[tuple[Any, ...]] | None:
        if not self.exists:
            return None
        with Checkout(Mode.READ, self) as checkout:
            execute = checkout.driver.execute
            try:
                return self._patiently(checkout, lambda: [row for sql in selects for row in execute(sql).fetchall()])
            except BackendError as error:
                if error_name(error.__cause__) == "SQLITE_ERROR":  # the SELECT is correct, so a table is missing
                    return None
                raise

    @property
    def files(self) -> tuple[Path, ...]:
        return () if self._path is None else (self._path, *files.beside(self._path))

    def versions(self) -> dict[str, str]:
        return {"SQLite": sqlite3.sqlite_version}

    def known_faults(self) -> list[tuple[str, Fault]]:
        has_log = self._has_file and self.options.journal_mode in (None, "wal") and not self.options.across_mounts
        return [(name, fault) for name, fault in super().known_faults() if has_log or fault is not WAL_RESET]

    def detach_child(self) -> None:
        self._connections.detach_child()

    def close(self) -> None:
        self._connections.close()

    def _migration(self, checkout: Checkout, lock_timeout: float, *, rebuilds: bool) -> Iterator[Connection]:
        execute = checkout.driver.execute
        execute(busy_timeout(lock_timeout))
        execute(f"PRAGMA foreign_keys = {'OFF' if rebuilds else 'ON'}")  # has no effect inside a transaction
        execute("BEGIN IMMEDIATE")
        connection = self.connection(checkout)
        connection.begin()
        yield connection
        execute("COMMIT")

    def _after_migration(self, checkout: Checkout) -> None:
        self.rollback(checkout)
        try:
            checkout.driver.execute("PRAGMA foreign_keys = ON")
            checkout.driver.execute(busy_timeout(piece(self.options, writes=True)))
        except sqlite3.Error:
            checkout.broken = True

    def _opened_connections(self, engine: Engine | None) -> Connections:
        if engine is not None:
            return EngineConnections(engine, self.options)
        if self._path is None:
            return SharedConnection(self.options)
        return FileConnections(self._path, self.options, lambda: self.metrics.count("mailbox_copies"))

    def _lent_dialect(self) -> Engine:
        """Return an engine that provides a dialect for others.

        It connects to a separate database in memory, because SQLAlchemy rolls back an engine's first connection.
        """
        if self._dialect_engine is None:
            named = URL.create("sqlite", database=None if self._path is None else str(self._path))
            engine = create_engine(named, module=sqlite3, poolclass=NullPool, creator=lambda: sqlite3.connect(MEMORY))
            engine.connect().close()
            self._dialect_engine = engine
        return self._dialect_engine
