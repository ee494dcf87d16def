"""Facts that a backend reports about a database: its schema, sizes and settings, and another program's tables."""

from __future__ import annotations

import logging
import re
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol

from sqlalchemy import ColumnElement, Table
from sqlalchemy.engine import Connection, Engine

from lastlight_state.backends.known_faults import Fault, faults_of
from lastlight_state.errors import NotSupported

# Stored values that a driver cannot read: text that is not UTF-8, a time outside the calendar, a number too large for
# JSON.
#
# One such value must not hide the rows beside it, so `Backend.fetch_rows` puts an `Unreadable` in its place.


class Unreadable:
    """A placeholder for a value that the driver could not read. ``raw`` has its bytes, if they are known."""

    __slots__ = ("raw",)

    def __init__(self, raw: bytes = b"") -> None:
        self.raw = raw

    def __str__(self) -> str:
        return self.raw.decode("utf-8", "backslashreplace")

    def __bool__(self) -> bool:
        raise TypeError("unreadable")


#: The ``reason`` of a `BackendUnavailable` for a readable file that is refused: it holds more than plain tables.
FORBIDDEN = "forbidden_schema"
#: The ``reason`` of a `BackendUnavailable` for a link, FIFO or the like in place of the file or its journal.
NOT_REGULAR = "not_regular"

#: The form that a column's values must have, where the database itself does not enforce one.
Form = Literal["time", "flag", "whole number", "number", "JSON"]

#: The key of an object: kind, table (or its own name), name within it. ``("column", "workflow_runs", "status")``.
Entry = tuple[str, str, str]

#: Maps each object to its definition as text. The entry ``("order", table, "")`` lists the columns in stored order.
Catalogue = Mapping[Entry, str]


def squeeze_sql(sql: str) -> str:
    """Return SQL text with each run of white space as one blank, so that line breaks make no difference."""
    return re.sub(r"\s+", " ", sql).strip().replace("( ", "(").replace(" )", ")")


@dataclass(frozen=True)
class TableSize:
    """A table's rows (None until counted) and bytes with indexes (None if the database does not record them)."""

    rows: int | None = None
    bytes: int | None = None


@dataclass(frozen=True)
class Measures:
    """Sizes and settings of a database. A figure that the product does not provide is None.

    ``tables`` has those of the requested tables that exist, with the planner's estimate of their rows if there is one.
    ``settings`` are those that affect durability and waiting, under the product's own names. ``clock`` is the server's
    time, read after everything else was measured.
    """

    version: str
    size_bytes: int
    tables: Mapping[str, TableSize]
    settings: Mapping[str, str | int | bool]
    wal_bytes: int | None = None
    free_pages: int | None = None
    free_bytes: int | None = None
    clock: datetime | None = None


@dataclass(frozen=True)
class Place:
    """The location of a database's file, and the state of the files next to it.

    ``file_system`` is the file system's type. ``is_remote`` is True if other machines may use the file, too. ``left``
    are the journal and the log that a crashed writer left and that no process on this machine uses. ``unfit`` are files
    that belong to another journal mode than the file's.
    """

    file_system: str
    is_remote: bool
    in_wal_mode: bool
    left: tuple[Path, ...]
    unfit: tuple[Path, ...]


class Malformed(NamedTuple):
    """A column's values that are stored in another form than the column's: their number and examples.

    ``lost`` names the values that cannot be converted, with the keys of their rows. ``mends`` is True if the other
    values can be converted.
    """

    values: int
    samples: tuple[str, ...]
    lost: tuple[str, ...] = ()
    mends: bool = False


class Original(Protocol):
    """A database file of the original program, used through one connection. Only `loosen` and `repair` write to it."""

    def time_limit(self) -> AbstractContextManager[None]:
        """Return a block in which a statement is stopped if it takes longer than a file of this size can need."""

    def displacing_objects(self, tables: Collection[str]) -> list[str]:
        """Return a line for each view or virtual table that has the name of one of these tables."""

    def unknown_triggers(self, tables: Collection[str], known: Collection[Entry]) -> list[str]:
        """Return a line for each unknown trigger or the like that runs when these tables are written."""

    def damages(self) -> list[str]:
        """Return the problems that the database's own integrity check finds; empty for a sound file."""

    def orphans(self) -> list[str]:
        """Return, by table, the rows whose foreign keys refer to a row that does not exist."""

    def malformed_values(self, table: str, key: Sequence[str], column: str, form: Form) -> Malformed:
        """Return the column's values that are stored in another form than this library's."""

    def repair(self, table: str, column: str, form: Form) -> None:
        """Convert the values of the column to this form.

        Unreadable values become NULL, so first check with `malformed_values`.
        """

    def loosen(self, table: str) -> int:
        """Rebuild a table without its UNIQUE constraints, with everything else unchanged.

        Return the number of its rows. Foreign keys must be off. Raises `SchemaMismatch` if a row or a reference was
        lost.
        """


class Listened:
    """The part of a backend that informs SQLAlchemy event listeners of the statements that the store executes."""

    name: str
    #: Reports a checkout's statements to the listeners of `engine`. None until somebody has asked for that engine.
    tells: Callable[[Any], object] | None = None

    @property
    def engine(self) -> Engine:
        """Return the engine whose event listeners are called for the store's statements, from the next unit on.

        It is the caller's engine, if the store was opened with one. Otherwise it is an engine that only carries
        listeners, such as those of tracing; the statements run on the store's own connections.
        """
        raise NotSupported(f"{self.name} tells no listeners of SQLAlchemy")


# Database operations for maintenance, which differ between products.


class Joinable:
    """The part of `lastlight_state.backends.base.Backend` that is only used to join a caller's transaction."""

    name: str

    def places(self, checkout: Any) -> tuple[str, str]:
        """Return two identities: of the database of a caller's checkout, and of this backend's database."""
        return self.name, self.name

    def refuse_other_tables(self, checkout: Any, names: str) -> None:
        """Raise `MisuseError` if a name matching ``names`` means another table in the transaction than in the store."""

    def leave(self, checkout: Any) -> None:
        """Undo `join`: restore the connection's former state and leave its transaction open."""


class Upkeep:
    """The part of `lastlight_state.backends.base.Backend` that is only used by maintenance and migrations."""

    name: str

    @property
    def files(self) -> tuple[Path, ...]:
        """Return the database's files on this machine, whether or not they exist; empty for a server."""
        return ()

    def server(self) -> str | None:
        """Return the product and version of the server; None for a file."""
        return None

    def distribution(self) -> tuple[str, tuple[str, ...]] | None:
        """Describe a server that distributes schemas over servers, and its problems. Return None for any other."""
        return None

    def versions(self) -> dict[str, str]:
        """Return the versions of the database engine and of the driver, each under the product's name."""
        return {}

    def known_faults(self) -> list[tuple[str, Fault]]:
        """Return the known faults that affect this database, each with the affected product and version."""
        return [
            (f"{name} {version}", fault)
            for name, version in self.versions().items()
            for fault in faults_of(name, version)
        ]

    def damages(self, checkout: Any, *, deep: bool) -> list[str]:
        """Return the problems that the database's own checks find, at most a few dozen; empty for a sound database.

        ``deep`` reads the whole database.
        """
        raise NotSupported(f"{self.name} does not examine itself")

    def malformed_condition(self, column: ColumnElement[Any], form: Form) -> ColumnElement[bool] | None:
        """Return the SQL condition that a stored value has another form; None if no such value can be stored."""
        return None

    def newest(self, table: Table) -> ColumnElement[Any] | None:
        """Return the order that sorts a table's last stored row first; None if the table has no such order."""
        return None

    def place(self) -> Place | None:
        """Return the location of the database's file; None for a server, and for a file that cannot be examined."""
        return None

    def lost_log(self, *, lacks_tables: bool) -> bool:
        """True if the file looks like a copy of an open database, made without its write-ahead log."""
        return False

    def checkpoint(self, checkout: Any, mode: str) -> tuple[bool, int, int] | None:
        """Make a checkpoint.

        Return whether a reader blocked it, the number of pages in the log, and the number of pages copied. Returns None
        if there is no write-ahead log.
        """
        return None

    def vacuum(self, checkout: Any, tables: Sequence[str], *, analyze: bool, full: bool) -> None:
        """Free the space of deleted rows in these tables, outside any transaction.

        Raises `Conflict` ``no_space`` if the disk has too little free space.
        """
        raise NotSupported(f"{self.name} cannot be vacuumed by this library")

    def stream(self, checkout: Any, sql: str, params: Any, columns: Sequence[Any]) -> Iterator[Sequence[Any]]:
        """Yield the rows of a SELECT of these columns one by one, in the driver's types, for results of any size."""
        raise NotSupported(f"{self.name} cannot be copied by this library")

    def load(self, checkout: Any, table: str, names: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
        """Insert rows of these columns, in the driver's own types, in the fastest way."""
        raise NotSupported(f"{self.name} cannot be copied into by this library")

    def last_number(self, checkout: Any, table: str, column: str) -> int | None:
        """Return the last number generated for this column, also if its row was deleted; None if none was."""
        return None

    def advance(self, checkout: Any, table: str, column: str, last: int | None) -> None:
        """Make this column's next generated number greater than all stored numbers and the last generated one."""

    def analyze(self, checkout: Any, tables: Sequence[str]) -> None:
        """Update the planner's statistics of these tables, on products where statistics matter."""

    def identity(self, checkout: Any) -> Hashable:
        """Return a key that all connections to the same tables share; None if no other connection can see them."""
        return None

    def snapshot(self, checkout: Any, path: Path) -> bool:
        """Write a snapshot of the database to a new SQLite file, while others keep using the database.

        Returns False if this product cannot do that.
        """
        return False

    def grants(self, role: str, rights: Mapping[str, Sequence[str]]) -> Iterator[str]:
        """Return the GRANT statements for a role's rights on each table, after finding the tables' schemas."""
        raise NotSupported(f"{self.name} has no roles: whoever may write the file may do everything with it")

    def original(self, connection: Connection) -> Original | None:
        """Return the database as a file of the original program; None if no such program exists for this product."""
        return None

    def column_names(self, checkout: Any, table: str) -> frozenset[str]:
        """Return the column names of a table in another program's file; empty if the table does not exist."""
        raise NotSupported(f"{self.name} has no files of other programs")


# Logging of statements to ``lastlight_state.statements``: each at DEBUG, and slow ones at WARNING.

_log = logging.getLogger("lastlight_state.statements")


def log_statements(execute: Callable[..., Any], backend: Any) -> Callable[..., Any]:
    """Return a function that executes and logs statements, or ``execute`` itself if the logger is off.

    A log line has the statement and the milliseconds until its first row, never the statement's values.
    """
    slow_seconds = backend.options.slow_statement
    if slow_seconds is None and not _log.isEnabledFor(logging.DEBUG):
        return execute

    def execute_and_log(sql: Any, *values: Any, **options: Any) -> Any:
        began = time.perf_counter()
        cursor = execute(sql, *values, **options)
        took = time.perf_counter() - began
        if slow_seconds is not None and took >= slow_seconds:
            _log.warning("a statement took %.0f ms: %s", took * 1_000, _text(sql))
        else:
            _log.debug("%.1f ms: %s", took * 1_000, _text(sql))
        return cursor

    return execute_and_log


def _text(sql: Any) -> str:
    text = sql.decode() if isinstance(sql, bytes) else str(sql)
    return " ".join(text.split())


# Named locks, which belong to no row.


class NamedLocks(ABC):
    """The part of the backend that holds named locks for units."""

    #: True if `execute_locked` exists: the lock, a statement and the commit reach the server in one message.
    locks_in_one_trip = False

    @abstractmethod
    def named_lock(self, checkout: Any, name: str) -> None:
        """Hold the lock ``name`` until the unit ends. Other callers that request it wait."""

    def execute_locked(self, checkout: Any, name: str, sql: str, parameters: Any) -> Any:
        """Run one statement while the lock ``name`` is held, and return its cursor.

        The statement sees all that earlier holders committed. Outside a transaction, the message that sends the
        statement also commits it. So the lock is held only while the statement runs, not during a client's round trips.
        """
        raise NotSupported("locks of this database are taken by statements of their own")
