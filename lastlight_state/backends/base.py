"""The interface of a database backend: everything that differs between database products.

A backend lends driver connections and begins units of work. Everything else, from the order of calls to retries, is the
same for all backends and lives in `lastlight_state.db.units.scope`. Statements go to ``driver.execute(sql, params)``,
which both supported drivers have. They run in no transaction but the unit's.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from typing import Any, Self

from sqlalchemy import ColumnElement
from sqlalchemy.engine import Connection, Dialect

from lastlight_state.backends import urls
from lastlight_state.backends.facts import Catalogue, Joinable, Listened, Measures, NamedLocks, Upkeep, log_statements
from lastlight_state.backends.fair_lock import Turn
from lastlight_state.backends.schemas import Schemas
from lastlight_state.backends.vector_indexes import VectorIndexes
from lastlight_state.errors import MisuseError, NotSupported, StateError
from lastlight_state.metrics import Metrics
from lastlight_state.unwinding import Exit

#: The ``reason`` of a `BackendUnavailable` after which it is unknown whether the last statement was executed.
LOST = "connection"


class Mode(Enum):
    """The mode of a unit. ``READ`` and ``ONE`` begin no transaction: each statement takes effect by itself."""

    READ = ("read", False, False)
    SNAPSHOT = ("snapshot", False, True)
    ONE = ("one", True, False)
    WRITE = ("write", True, True)

    def __init__(self, _: str, writes: bool, begins: bool) -> None:
        self.writes = writes
        self.begins = begins


class Checkout(Turn):
    """A driver connection lent to one unit: ``with Checkout(mode, backend) as checkout: checkout.execute(...)``.

    `lastlight_state.db.units.unit.Unit` is the checkout of a store's calls, and has their statements.

    ``owner`` and ``before`` belong to the backend: its handle, and the connection's former state. The backend knows the
    checkout from before it has a connection until it returns the connection. If an exception from outside, such as a
    signal handler's, interrupts it, it is ``is_gone``; `Backend.recover` then takes the connection back. ``execute`` is
    the driver's; `lastlight_state.testing.racing` wraps it.
    """

    driver: Any = None
    execute: Any = None
    owner: Any = None
    before: Any = None
    broken = refuses_writes = hurries = False
    undone = begun = False  # undone: rolled back by the caller; begun: a ONE unit that other units join
    committed = False  # as far as the backend knows
    is_awaited = False  # True for an asynchronous connection, used from a greenlet
    joined = False  # True for a caller's connection (`Backend.join`); such a checkout is never entered
    backend: Any  # None for a checkout that only waits for a turn

    def __init__(self, mode: Mode, backend: Backend | None = None) -> None:
        self.mode = mode
        self.backend = backend

    def attach(self, driver: Any, owner: Any = None, before: Any = None) -> None:
        """Set the connection of this checkout."""
        self.driver = driver
        self.execute = log_statements(driver.execute, self.backend)
        if self.backend.tells is not None and not self.joined:
            self.backend.tells(self)
        self.owner = owner
        self.before = before
        self.broken = False

    def __enter__(self) -> Self:
        self.backend.acquire(self.mode, self)
        return self

    def end_interrupted(self, handle: object) -> None:
        with suppress(BaseException):  # the first exception goes on; the next caller finishes the recovery
            self.backend.recover(self)

    @staticmethod
    def _leave(checkout: Checkout, *raised: Any) -> None:
        backend, is_clean = checkout.backend, raised[0] is None
        if checkout.is_gone:  # the garbage collector took the statement first: others may be undoing this by now
            backend.recover(checkout)
            return
        try:
            if not is_clean:
                backend.rollback(checkout)
                is_clean = True
        finally:  # after an interrupted rollback, the connection is closed with what it left open
            checkout.broken |= not is_clean
            backend.release(checkout)
        checkout.handle = None

    __exit__ = Exit(_leave)


@dataclass(frozen=True)
class Options:
    """The options of a backend: the fields of `Settings` that concern it."""

    schema: str | None = None
    read_only: bool = False
    #: For a single read with ``read_only``: an unused SQLite file is read without leaving a trace beside it.
    glance: bool = False
    durability: str = "normal"
    journal_mode: str | None = None
    #: For a file that another machine uses through a mount: rollback journal, full sync, nothing mapped or kept open.
    across_mounts: bool = False
    #: For another program's SQLite file: views, triggers and links are refused; ``read_seconds`` without a row end it.
    foreign: bool = False
    #: For a SQLite file that another party may write: the most seconds that a reading unit may take.
    read_seconds: float | None = None
    wal_autocheckpoint: int = 1000
    #: The name of the SQLite driver that the process must have.
    sqlite_driver: str | None = None
    pool_size: int = 5
    pooler: str | None = None
    any_server: bool = False
    statement_timeout: float | None = None
    lock_timeout: float | None = None
    #: Timeouts in seconds: for a SQLite file's lock, the process's other writers, a connection of the pool.
    busy_timeout: float = 5.0
    queue_timeout: float = 60.0
    pool_timeout: float = 30.0
    slow_statement: float | None = None
    #: How a shell command gets a URL that has a password: `Settings.named_by`.
    named_by: str = ""
    extra: Mapping[str, Any] = field(default_factory=dict)


class Backend(NamedLocks, Listened, Joinable, Schemas, VectorIndexes, Upkeep, ABC):
    """One open database. Thread-safe; checkouts are not: one unit uses one at a time.

    Ownership: a backend closes what it opened. Connections of a caller's engine go back to that engine unchanged.
    Errors: every method translates the driver's errors with `translate`, so callers meet only `StateError`.
    """

    #: The name of the product: ``"sqlite"``, ``"postgresql"``, or the name that a third party registered.
    name: str
    dialect: Dialect
    async_driver: str | None = None  # whose connections can be joined, too
    driver_errors: tuple[type[Exception], ...]  # which `translate` understands
    options: Options
    #: The database's URL or path, without any password.
    location: str
    #: The metrics of the store that uses the backend, and the codec of its values (`db.schema.sealing.Sealing`).
    metrics: Metrics = Metrics()
    sealing: Any = None
    #: The seconds that one statement waits for a lock; 0 for no limit.
    lock_seconds: float = 0.0
    migrates_on_open: bool  # unless a setting says otherwise
    #: True if the server rewrites definitions in its own words, which may differ between versions.
    writes_definitions: bool = False
    #: What `migration` locks, in words for a person who plans an upgrade.
    migration_lock: str
    #: The number of threads that write for coroutines; more would only wait for each other. None: one per connection.
    writers: int | None
    shares_commits: bool = False  # True if waiting units can be committed together
    writes_in_ctes: bool  # True if several writes can be one statement (data-modifying WITH), and should be
    one_writer: bool  # True if one unit writes at a time, so that it needs no lock to read before it writes
    #: True if reading a column behind a large value takes as long as reading that value.
    large_values_in_rows: bool
    bytes_in_binary: bool = False  # True if rows with bytes are fetched in binary format
    #: True if an error inside a transaction ends it, so that anything that may fail needs a savepoint.
    failure_aborts_transaction: bool

    @property
    def schema(self) -> str | None:
        """Return the schema in which the store's tables are, or None for the default schema."""
        return self.options.schema

    def command(self, *words: str) -> str:
        """Return a ``lastlight-state`` command line for this database, to be pasted into a shell."""
        return urls.command(("lastlight-state", *words), self.location, self.options.named_by, self.schema)

    @property
    def schema_in_texts(self) -> str | None:
        """Return the schema name in compiled statements. Backends over the same connections have the same name."""
        return self.options.schema

    @cached_property
    def key(self) -> tuple[Any, ...]:
        """Return this backend's key in the cache of compiled statements."""
        return self.name, self.schema_in_texts, self.sealing

    @property
    def exists(self) -> bool:
        """Return False if the database's file does not exist. A server counts as existing until it is first used."""
        return True

    @property
    def is_disturbed(self) -> bool:
        """True if another process wrote to the file during a ``glance``: repeat the read without ``glance``."""
        return False

    @abstractmethod
    def acquire(self, mode: Mode, checkout: Checkout | None = None) -> Checkout:
        """Begin the transaction of ``mode`` on the given checkout or on a new one. Return the checkout.

        Writers of one SQLite file wait here for their turn. If this raises, no connection is held.
        """

    @abstractmethod
    def commit(self, checkout: Checkout) -> None:
        """Commit the unit's transaction. An error's ``outcome`` states whether the commit took place."""

    @abstractmethod
    def rollback(self, checkout: Checkout) -> None:
        """Roll back the unit's transaction, if any. Never raises: if this fails, the connection is marked broken."""

    @abstractmethod
    def release(self, checkout: Checkout) -> None:
        """Return the connection to the pool, or close it if it is broken."""

    def recover(self, checkout: Checkout) -> None:
        """Roll back and release a checkout whose unit was interrupted by an exception from outside. Idempotent."""
        checkout.broken = True
        self.rollback(checkout)
        self.release(checkout)

    def persist(self, checkout: Checkout, error: Exception, run: Callable[[], Any]) -> Any:
        """Retry ``run`` if the driver's error only means that the database is busy, and return its result.

        Raises the translated error for any other error, or if the database does its own waiting.
        """
        raise self.unit_error(checkout, error) from error

    @abstractmethod
    def translate(self, error: Exception) -> StateError:
        """Return the library's error for a driver's error. The choice depends on the error's code, never on its text.

        `BackendUnavailable` states in ``repeats`` how often the unit may be retried. It is marked `LOST` if the answer
        to the unit's last statement may have been lost.
        """

    def unit_error(self, checkout: Checkout, error: Exception) -> StateError:
        """Return the library's error for a driver's error raised in the unit of this checkout."""
        return self.translate(error)

    def fetch_rows(self, cursor: Any) -> list[Any]:
        """Return all rows of a cursor. An unreadable value becomes a `lastlight_state.backends.facts.Unreadable`."""
        return list(cursor.fetchall())

    @abstractmethod
    def connection(self, checkout: Checkout) -> Connection:
        """Return a SQLAlchemy connection over the checkout's driver connection, for a caller's own statements."""

    @abstractmethod
    def join(self, connection: Connection, checkout: Checkout) -> None:
        """Put the checkout inside the transaction of a caller's connection. The library never commits it."""

    def refuse_foreign(self, connection: Connection) -> None:
        """Raise `MisuseError` for a connection of another product or driver, or one outside a transaction."""
        theirs, ours = connection.dialect, self.dialect
        if theirs.name != ours.name or theirs.driver not in (ours.driver, self.async_driver):
            ways = urls.ways_beside(ours.name, self.async_driver or ours.driver)
            raise MisuseError(f"connection= is of {theirs.name}+{theirs.driver}, not {ours.name}+{ours.driver}: {ways}")
        if not connection.in_transaction():
            raise MisuseError("connection= must be inside a transaction of yours: use engine.begin()")

    def alive(self, checkout: Checkout) -> bool:
        """True if the unit's transaction is still open and has not failed."""
        return True

    @abstractmethod
    def insert_rows(
        self, checkout: Checkout, table: str, sql: str, names: Sequence[str], blocks: Iterator[Sequence[Sequence[Any]]]
    ) -> None:
        """Insert ``blocks`` of rows in the fastest way. A block is a list of columns, in the order of ``names``.

        ``sql`` inserts one row. If the iterator of blocks raises, the insert ends. Raises the driver's errors.
        """

    def pack_columns(self, columns: Sequence[ColumnElement[Any]]) -> ColumnElement[Any] | None:
        """Pack the columns into a list of texts, so that one statement carries rows of several tables.

        Returns None if a statement for each table costs no extra round trip.
        """
        return None

    def packed_size(self, packed: ColumnElement[Any]) -> ColumnElement[int]:
        """Return the approximate size in bytes of a list made by `pack_columns`."""
        raise NotSupported(f"{self.name} cannot pack columns into a list")

    def ask(
        self, checkout: Checkout, sql: str, params: Mapping[str, Any], *, limit: int, timeout: float, plan: bool = False
    ) -> tuple[list[str], list[Any]]:
        """Run a query that a person typed, in a reading unit. Return the column names and at most ``limit`` rows.

        With ``plan``, return the database's query plan instead of rows. The database itself refuses a statement that
        writes, with `ReadOnlyTransaction`. Raises `InvalidValue` for a statement that it does not understand.
        """
        raise NotSupported(f"{self.name} cannot run a query read-only")

    def limit_ddl_waits(self, checkout: Checkout) -> None:
        """Make DDL in this unit raise `BackendBusy` after a short wait if another connection locks the table."""

    @abstractmethod
    def migration(self, lock_timeout: float, *, rebuilds: bool = False) -> AbstractContextManager[Connection]:
        """Return a connection for a migration: it has the migration lock, and a transaction that commits on leaving.

        ``rebuilds`` means that the migration may replace a table, so foreign keys are not enforced during it. Raises
        `BackendBusy` if another migration holds the lock for more than ``lock_timeout`` seconds.
        """

    def scratch(self) -> AbstractContextManager[Connection]:
        """Return a connection to an empty temporary place for trying revisions. It is removed afterwards."""
        raise NotSupported(f"{self.name} has no place to try revisions in")

    def as_script(self, body: str, lock_timeout: float) -> str:
        """Return an upgrade's statements as a script to be run by hand, with the same effect as `migration`."""
        raise NotSupported(f"upgrades of {self.name} cannot be written as a script")

    @abstractmethod
    def peek(self, *selects: str) -> list[tuple[Any, ...]] | None:
        """Return the rows of these SELECTs in one round trip, or None if a table or the database does not exist."""

    def meet(self, extensions: Mapping[str, str]) -> None:
        """Record the database's extensions, by name and version. Raises `NotSupported` for an unusable one."""

    def enter(self, checkout: Checkout) -> None:
        """Make table names without a schema refer to this backend's schema until the transaction ends."""

    @abstractmethod
    def catalogue(self, connection: Connection) -> Catalogue:
        """Describe every object in the connection's schema. Equal schemas have equal catalogues."""

    def shape(self, connection: Connection) -> Catalogue:
        """Return the tables' structure. It does not depend on how the CREATE statements were written."""
        return {entry: text for entry, text in self.catalogue(connection).items() if entry[0] != "order"}

    @abstractmethod
    def measures(self, checkout: Checkout, tables: Sequence[str]) -> Measures:
        """Return sizes and settings of the database and of those of these tables that exist. Reads no table."""

    def detach_child(self) -> None:
        """Detach a forked child process from its parent's connections, without using or closing them."""

    @abstractmethod
    def close(self) -> None:
        """Close what this backend opened. Idempotent."""
