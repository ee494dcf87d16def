"""The contract of a database: every question whose answer differs between products.

A backend hands out driver connections and says how a unit of work begins. Everything else, from the order of calls
to retries, is the same for all and lives in `lastlight_state.db.units.scope`. Statements go to ``driver.execute(sql,
params)``, which both supported drivers have, with no transaction but the one that the unit began.
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
from lastlight_state.backends.facts import Catalogue, Joinable, Listened, Measures, NamedLocks, Upkeep, logged
from lastlight_state.backends.fair_lock import Turn
from lastlight_state.backends.schemas import Schemas
from lastlight_state.errors import MisuseError, NotSupported, StateError
from lastlight_state.metrics import Metrics
from lastlight_state.unwinding import Exit

#: The ``reason`` of a `BackendUnavailable` that leaves open whether the last statement was carried out.
LOST = "connection"


class Mode(Enum):
    """The mode of a unit. ``READ`` and ``ONE`` begin no transaction: each statement is whole by itself."""

    READ = ("read", False, False)
    SNAPSHOT = ("snapshot", False, True)
    ONE = ("one", True, False)
    WRITE = ("write", True, True)

    def __init__(self, _: str, writes: bool, begins: bool) -> None:
        self.writes = writes
        self.begins = begins


class Checkout(Turn):
    """A driver connection lent to one unit: in a ``with Checkout(mode, backend) as checkout`` by ``checkout.execute``.

    ``owner`` and ``before`` are the backend's own: its handle, its past. It is known to the backend before it has a
    connection, and until the connection is given back. An exception that comes from outside, at whatever instruction,
    leaves one that is ``gone``: `Backend.recover` gives back what it had. ``execute`` is the driver's;
    `lastlight_state.testing.racing` puts itself in front of it.
    """

    driver: Any = None
    execute: Any = None
    owner: Any = None
    before: Any = None
    broken = refuses_writes = hurries = False
    undone = begun = False  # undone: rolled back by the caller; begun: ONE that others join
    committed = False  # as far as the backend says so
    is_awaited = False  # whether it is asynchronous, and used from a greenlet
    backend: Any  # None for a connection that is a caller's; such a checkout is never entered

    def __init__(self, mode: Mode, backend: Backend | None = None) -> None:
        self.mode = mode
        self.backend = backend

    @classmethod
    def of(cls, driver: Any, mode: Mode, owner: Any = None) -> Checkout:
        """Return a connection that is not the backend's to give."""
        checkout = cls(mode)
        checkout.lend(driver, owner)
        return checkout

    def lend(self, driver: Any, owner: Any = None, before: Any = None) -> None:
        """Give it the connection."""
        self.driver = driver
        if self.backend is None:
            self.execute = driver.execute
        else:
            self.execute = logged(driver.execute, self.backend)
            if self.backend.tells is not None:
                self.backend.tells(self)
        self.owner = owner
        self.before = before
        self.broken = False

    def __enter__(self) -> Self:
        self.backend.acquire(self.mode, self)
        return self

    def abandoned(self, handle: object) -> None:
        with suppress(BaseException):  # the first exception is on its way; whoever asks next does the rest
            self.backend.recover(self)

    @staticmethod
    def _leave(checkout: Checkout, *raised: Any) -> None:
        backend, is_clean = checkout.backend, raised[0] is None
        if checkout.gone:  # the garbage collector forgot the statement before it ended it: others may undo this by now
            backend.recover(checkout)
            return
        try:
            if not is_clean:
                backend.rollback(checkout)
                is_clean = True
        finally:  # where the rollback was cut off, what it left open goes with the connection
            checkout.broken |= not is_clean
            backend.release(checkout)
        checkout.handle = None

    __exit__ = Exit(_leave)


@dataclass(frozen=True)
class Options:
    """The options of a backend; the fields of `Settings` that concern it."""

    schema: str | None = None
    read_only: bool = False
    #: For one look: with ``read_only``, a SQLite file that nobody uses is read without leaving a trace beside it.
    glance: bool = False
    durability: str = "normal"
    journal_mode: str | None = None
    #: For a file that another machine uses through a mount: rollback journal, full sync, nothing mapped or kept open.
    across_mounts: bool = False
    #: For a SQLite file of another program: views, triggers and links are refused; no row for ``read_seconds`` ends it.
    foreign: bool = False
    #: For a SQLite file that another party may write: after so many seconds a unit that reads it is ended.
    read_seconds: float | None = None
    wal_autocheckpoint: int = 1000
    #: By its name: the driver of SQLite that the process must have.
    sqlite_driver: str | None = None
    pool_size: int = 5
    pooler: str | None = None
    any_server: bool = False
    statement_timeout: float | None = None
    lock_timeout: float | None = None
    #: Seconds: for the lock of a SQLite file, for the other writers of the process, for a connection of the pool.
    busy_timeout: float = 5.0
    queue_timeout: float = 60.0
    pool_timeout: float = 30.0
    slow_statement: float | None = None
    #: How a command of the shell is given a URL that has a password: `Settings.named_by`.
    named_by: str = ""
    extra: Mapping[str, Any] = field(default_factory=dict)


class Backend(NamedLocks, Listened, Joinable, Schemas, Upkeep, ABC):
    """One open database. Thread-safe; checkouts are not: one unit uses one at a time.

    Ownership: a backend closes what it opened. Connections of a caller's engine go back to that engine as they came.
    Errors: every method translates the driver's errors with `translate`, so callers meet `StateError` alone.
    """

    #: ``"sqlite"``, ``"postgresql"``, or the name that a third party registered.
    name: str
    dialect: Dialect
    async_driver: str | None = None  # whose connections can be joined, too
    #: The driver's exceptions that `translate` understands.
    driver_errors: tuple[type[Exception], ...]
    options: Options
    #: Where the database is, without any password.
    location: str
    #: Counters of the store that the backend belongs to, and the codec of its values (`db.schema.sealing.Sealing`).
    metrics: Metrics = Metrics()
    sealing: Any = None
    #: For how many seconds one statement waits for a lock; 0 where that has no limit.
    lock_seconds: float = 0.0
    migrates_on_open: bool  # unless told otherwise
    #: Whether the server writes definitions in its own words, which may differ from version to version.
    writes_definitions: bool = False
    #: What `migration` holds, in words for a person who plans an upgrade.
    migration_lock: str
    #: How many threads write for coroutines: more would only wait for one another. None: one for each connection.
    writers: int | None
    shares_commits: bool = False  # of units that wait for one another
    #: Whether several writes can travel as one statement (data-modifying WITH). If not, one unit writes at a time.
    writes_in_ctes: bool
    #: Whether to read a column that stands behind a large value takes as long as to read that value.
    large_values_in_rows: bool
    bytes_in_binary: bool = False  # whether rows with bytes are fetched in binary format
    #: Whether an error inside a transaction ends it, so that a savepoint is needed around what may fail.
    failure_aborts_transaction: bool

    @property
    def schema(self) -> str | None:
        """Return the schema of all tables, None for the default one."""
        return self.options.schema

    def command(self, *words: str) -> str:
        """Return a command line of ``lastlight-state`` for this database, ready to be pasted into a shell."""
        return urls.command(("lastlight-state", *words), self.location, self.options.named_by, self.schema)

    @property
    def schema_in_texts(self) -> str | None:
        """Return the schema that compiled statements name. Backends that share connections share these texts, too."""
        return self.options.schema

    @cached_property
    def key(self) -> tuple[Any, ...]:
        """Return the key of the cache of compiled statements for this backend."""
        return self.name, self.schema_in_texts, self.sealing

    @property
    def exists(self) -> bool:
        """Return False for a file that does not exist. A server counts as existing until it is first used."""
        return True

    @property
    def disturbed(self) -> bool:
        """True if another process wrote to the file during a ``glance``: repeat the read without ``glance``."""
        return False

    @abstractmethod
    def acquire(self, mode: Mode, checkout: Checkout | None = None) -> Checkout:
        """Return a connection for a unit, with ``mode``'s transaction begun: the checkout that is given, or a new one.

        Writers of one SQLite file queue here. Raises `BackendBusy` or `BackendUnavailable`; then nothing is held.
        """

    @abstractmethod
    def commit(self, checkout: Checkout) -> None:
        """Commit the unit's transaction. After an error the outcome is as the error says."""

    @abstractmethod
    def rollback(self, checkout: Checkout) -> None:
        """Undo the unit's transaction, if it still has one. Never raises: a connection that cannot is marked broken."""

    @abstractmethod
    def release(self, checkout: Checkout) -> None:
        """Give the connection back; a broken one is closed instead of lent again."""

    def recover(self, checkout: Checkout) -> None:
        """Roll back and release a checkout whose unit was cut off by an exception from outside. Idempotent."""
        checkout.broken = True
        self.rollback(checkout)
        self.release(checkout)

    def persist(self, checkout: Checkout, error: Exception, run: Callable[[], Any]) -> Any:
        """Retry ``run`` after a driver's error that means only "wait", and return its result.

        Raises the translated error if the database waits by itself, or if waiting would not help.
        """
        raise self.failed(checkout, error) from error

    @abstractmethod
    def translate(self, error: Exception) -> StateError:
        """Return the library's error for a driver's error, judged by its code, never by its text.

        `BackendUnavailable` says in ``repeats`` how often the unit may be tried again, and by `LOST` that the answer
        to its last statement may have been lost.
        """

    def failed(self, checkout: Checkout, error: Exception) -> StateError:
        """Return the library's error for an error of the driver in a unit with this checkout."""
        return self.translate(error)

    def fetched(self, cursor: Any) -> list[Any]:
        """Return all rows of a cursor. A value that cannot be read is a `lastlight_state.backends.facts.Unreadable`."""
        return list(cursor.fetchall())

    @abstractmethod
    def connection(self, checkout: Checkout) -> Connection:
        """Return a SQLAlchemy connection over the checkout's driver connection, for callers' own statements."""

    @abstractmethod
    def join(self, connection: Connection) -> Checkout:
        """Return a checkout on a caller's connection, inside the caller's transaction, which we never commit."""

    def refuse_foreign(self, connection: Connection) -> None:
        """Raise `MisuseError` for a connection of another product or driver, or one outside a transaction."""
        theirs, ours = connection.dialect, self.dialect
        if theirs.name != ours.name or theirs.driver not in (ours.driver, self.async_driver):
            ways = urls.ways_beside(ours.name, self.async_driver or ours.driver)
            raise MisuseError(f"connection= is of {theirs.name}+{theirs.driver}, not {ours.name}+{ours.driver}: {ways}")
        if not connection.in_transaction():
            raise MisuseError("connection= must be inside a transaction of yours: use engine.begin()")

    def alive(self, checkout: Checkout) -> bool:
        """Return whether the unit's transaction is still open and has not failed."""
        return True

    @abstractmethod
    def insert_rows(
        self, checkout: Checkout, table: str, sql: str, names: Sequence[str], blocks: Iterator[Sequence[Sequence[Any]]]
    ) -> None:
        """Insert ``blocks`` of rows, each given as its columns ``names``, in their order, the fastest way there is.

        ``sql`` inserts one row. What making a block raises ends the insert. Raises the driver's errors.
        """

    def packed(self, columns: Sequence[ColumnElement[Any]]) -> ColumnElement[Any] | None:
        """Return the columns as one list of texts, so that rows of different tables travel in one statement.

        None where a statement for each table costs no round trip.
        """
        return None

    def packed_size(self, packed: ColumnElement[Any]) -> ColumnElement[int]:
        """Return the approximate size in bytes of a list that `packed` made."""
        raise NotSupported(f"{self.name} cannot pack columns into a list")

    def ask(
        self, checkout: Checkout, sql: str, params: Mapping[str, Any], *, limit: int, timeout: float, plan: bool = False
    ) -> tuple[list[str], list[Any]]:
        """Return column names and at most ``limit`` rows of one statement of a person's own, in a unit that reads.

        With ``plan`` the database's query plan is returned instead of the rows. Raises `ReadOnlyTransaction`, from the
        database itself, for a statement that writes, and `InvalidValue` for one that the database does not understand.
        """
        raise NotSupported(f"{self.name} cannot run a query read-only")

    def limit_ddl_waits(self, checkout: Checkout) -> None:
        """Let statements of this unit that change tables give up soon, as `BackendBusy`, when others hold the table."""

    @abstractmethod
    def migration(self, lock_timeout: float, *, rebuilds: bool = False) -> AbstractContextManager[Connection]:
        """Return a connection that no other migration shares: locked, in one transaction that commits on leaving.

        ``rebuilds``: a table may be replaced in it, so that foreign keys are not enforced meanwhile. Raises
        `BackendBusy` when another holds the lock for longer than ``lock_timeout`` seconds.
        """

    def scratch(self) -> AbstractContextManager[Connection]:
        """Return a connection to an empty place in which revisions can be tried. It is removed afterwards."""
        raise NotSupported(f"{self.name} has no place to try revisions in")

    def as_script(self, body: str, lock_timeout: float) -> str:
        """Return the statements of an upgrade as a script that does what `migration` does, to be run by hand."""
        raise NotSupported(f"upgrades of {self.name} cannot be written as a script")

    @abstractmethod
    def peek(self, *selects: str) -> list[tuple[Any, ...]] | None:
        """Return the rows of SELECTs in one round trip, or None where a table or the database does not exist."""

    def meet(self, extensions: Mapping[str, str]) -> None:
        """Take note of the extensions of the database, by name and version. Raises `NotSupported`."""

    def enter(self, checkout: Checkout) -> None:
        """Let names without a schema, in this unit's transaction, mean tables of this backend's schema."""

    @abstractmethod
    def catalogue(self, connection: Connection) -> Catalogue:
        """Return what the database says about the connection's schema; two equal answers are equal schemas."""

    def shape(self, connection: Connection) -> Catalogue:
        """Return what the tables are like, however the statements were written that made them."""
        return {entry: text for entry, text in self.catalogue(connection).items() if entry[0] != "order"}

    @abstractmethod
    def measures(self, checkout: Checkout, tables: Sequence[str]) -> Measures:
        """Return size and settings of the database, and which of these tables there are. Reads no table of ours."""

    def forked(self) -> None:
        """Leave the connections alone in a child process: they are the parent's."""

    @abstractmethod
    def close(self) -> None:
        """Close what this backend opened. Idempotent."""
