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
# One such value must not hide the rows beside it, so `Backend.fetched` puts an `Unreadable` in its place.


class Unreadable:
    """The placeholder in a row for a value that the driver could not read. ``raw`` are its bytes, if they are known."""

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


def squeezed(sql: str) -> str:
    """Return SQL text with each run of white space as one blank, so that line breaks make no difference."""
    return re.sub(r"\s+", " ", sql).strip().replace("( ", "(").replace(" )", ")")


@dataclass(frozen=True)
class TableSize:
    """A table's rows, None until counted, and its bytes with indexes, None if the database does not record them."""

    rows: int | None = None
    bytes: int | None = None


@dataclass(frozen=True)
class Measures:
    """Sizes and settings of a database; None where the product has no such figure.

    ``tables`` has the existing tables among those asked for, with the planner's estimate of their rows if it has one.
    ``settings`` are the ones that decide durability and waiting, by the product's own names. ``clock`` is the server's
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
    """The location of a database's file, and the files beside it.

    ``file_system`` is the file system's type. ``is_remote`` is True if other machines may use the file, too. ``left``
    are the journal and the log of a writer that died, which nobody on this machine uses. ``unfit`` are files that
    belong to another journal mode than the file's.
    """

    file_system: str
    is_remote: bool
    in_wal_mode: bool
    left: tuple[Path, ...]
    unfit: tuple[Path, ...]


class Malformed(NamedTuple):
    """The number of a column's values in another form than the column's, and examples of them.

    ``lost`` names the values that cannot be converted, with the keys of their rows. ``mends`` is True if other values
    can.
    """

    values: int
    samples: tuple[str, ...]
    lost: tuple[str, ...] = ()
    mends: bool = False


class Original(Protocol):
    """A database file of the original program, through one connection. Only `loosen` and `repair` write to it."""

    def limited(self) -> AbstractContextManager[None]:
        """Return a block in which a statement is ended if it takes longer than any file of this size needs."""

    def displacing(self, tables: Collection[str]) -> list[str]:
        """Return the views and virtual tables that use the name of one of these tables, one line each."""

    def computing(self, tables: Collection[str], known: Collection[Entry]) -> list[str]:
        """Return the unknown triggers and the like that run when one of these tables is written, one line each."""

    def damages(self) -> list[str]:
        """Return the problems that the database's own integrity check finds; empty for a sound file."""

    def orphans(self) -> list[str]:
        """Return the rows whose foreign keys refer to no row, by table."""

    def malformed(self, table: str, key: Sequence[str], column: str, form: Form) -> Malformed:
        """Return the column's values that have another form than this library stores."""

    def repair(self, table: str, column: str, form: Form) -> None:
        """Convert the values of the column into this form.

        Unreadable values become NULL, so check with `malformed` first.
        """

    def loosen(self, table: str) -> int:
        """Rebuild the table without its UNIQUE constraints and with nothing else changed.

        Returns the number of its rows.

        Foreign keys must be off. Raises `SchemaMismatch` if a row or a reference was lost.
        """


class Listened:
    """The part of a backend that tells SQLAlchemy listeners which statements the store executes."""

    name: str
    #: Reports a checkout's statements to the listeners of `engine`. None until somebody has asked for that engine.
    tells: Callable[[Any], object] | None = None

    @property
    def engine(self) -> Engine:
        """Return the engine whose listeners hear of the store's statements, from the next unit on.

        It is the caller's engine, if there is one. Otherwise it is an engine for listeners alone, such as those of
        tracing, which stands for the store's own connections.
        """
        raise NotSupported(f"{self.name} tells no listeners of SQLAlchemy")


# Database operations for maintenance, which differ between products.


class Joinable:
    """The part of `lastlight_state.backends.base.Backend` that is used only for a joined caller's transaction."""

    name: str

    def places(self, checkout: Any) -> tuple[str, str]:
        """Return the identity of the database of a caller's checkout, and the identity of this backend's database."""
        return self.name, self.name

    def refuse_other_tables(self, checkout: Any, names: str) -> None:
        """Raise `MisuseError` if the transaction resolves names that match ``names`` to other tables than the store."""

    def leave(self, checkout: Any) -> None:
        """Undo the effects of `join`: the connection is as it was, and its transaction stays open."""


class Upkeep:
    """The part of `lastlight_state.backends.base.Backend` that only maintenance and migrations use."""

    name: str

    @property
    def files(self) -> tuple[Path, ...]:
        """Return the database's files on this machine, whether or not they exist; empty for a server."""
        return ()

    def server(self) -> str | None:
        """Return the product and version of the server; None for a file."""
        return None

    def distribution(self) -> tuple[str, tuple[str, ...]] | None:
        """Return the description of a server that distributes schemas, and its problems; None for any other."""
        return None

    def versions(self) -> dict[str, str]:
        """Return the versions of the engine and of the driver, by the names of the products."""
        return {}

    def known_faults(self) -> list[tuple[str, Fault]]:
        """Return the known faults that this database can meet, each with the affected product and version."""
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

    def malformed(self, column: ColumnElement[Any], form: Form) -> ColumnElement[bool] | None:
        """Return the condition that a stored value has another form; None if no such value can be stored."""
        return None

    def newest(self, table: Table) -> ColumnElement[Any] | None:
        """Return the order that puts a table's last stored row first; None if the table has no such order."""
        return None

    def place(self) -> Place | None:
        """Return the location of the database's file; None for a server, and for a file that cannot be examined."""
        return None

    def lost_log(self, *, lacks_tables: bool) -> bool:
        """True if the file seems to be a copy of an open database without its write-ahead log."""
        return False

    def checkpoint(self, checkout: Any, mode: str) -> tuple[bool, int, int] | None:
        """Make a checkpoint. Returns whether a reader blocked it, the pages of the log, and the pages copied.

        Returns None if there is no write-ahead log.
        """
        return None

    def vacuum(self, checkout: Any, tables: Sequence[str], *, analyze: bool, full: bool) -> None:
        """Free the space of deleted rows of these tables, outside any transaction.

        Raises `Conflict` ``no_space`` if the disk has no room for it.
        """
        raise NotSupported(f"{self.name} cannot be vacuumed by this library")

    def stream(self, checkout: Any, sql: str, params: Any, columns: Sequence[Any]) -> Iterator[Sequence[Any]]:
        """Yield the rows of a SELECT of these columns one by one, in the driver's types, for results of any size."""
        raise NotSupported(f"{self.name} cannot be copied by this library")

    def load(self, checkout: Any, table: str, names: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
        """Insert rows of these columns, in the driver's own types, in the fastest way."""
        raise NotSupported(f"{self.name} cannot be copied into by this library")

    def given(self, checkout: Any, table: str, column: str) -> int | None:
        """Return the last number that the database gave this column, deleted rows included; None if it gave none."""
        return None

    def advance(self, checkout: Any, table: str, column: str, last: int | None) -> None:
        """Make this column's next number greater than all stored numbers, and greater than the last one given."""

    def analyze(self, checkout: Any, tables: Sequence[str]) -> None:
        """Update the planner's statistics of these tables, on products where they matter."""

    def identity(self, checkout: Any) -> Hashable:
        """Return a key that all connections to the same tables share; None if no other connection can see them."""
        return None

    def snapshot(self, checkout: Any, path: Path) -> bool:
        """Write a snapshot of the database to a new SQLite file, while others keep using it.

        Returns False if it cannot.
        """
        return False

    def grants(self, role: str, rights: Mapping[str, Sequence[str]]) -> Iterator[str]:
        """Return the statements that grant a role the rights to each of these tables, reading where the tables are."""
        raise NotSupported(f"{self.name} has no roles: whoever may write the file may do everything with it")

    def original(self, connection: Connection) -> Original | None:
        """Return the database as a file of the original program; None if there is no such program for this product."""
        return None

    def column_names(self, checkout: Any, table: str) -> frozenset[str]:
        """Return the columns of a table in a file of another program; empty if the table does not exist."""
        raise NotSupported(f"{self.name} has no files of other programs")


# Logging of statements to ``lastlight_state.statements``: each at DEBUG, and slow ones at WARNING.

_log = logging.getLogger("lastlight_state.statements")


def logged(execute: Callable[..., Any], backend: Any) -> Callable[..., Any]:
    """Return a function that executes and logs statements; ``execute`` itself if the logger is off.

    A log line has the milliseconds until the first row, and the statement; never its values.
    """
    slow_seconds = backend.options.slow_statement
    if slow_seconds is None and not _log.isEnabledFor(logging.DEBUG):
        return execute

    def told(sql: Any, *values: Any, **options: Any) -> Any:
        began = time.perf_counter()
        cursor = execute(sql, *values, **options)
        took = time.perf_counter() - began
        if slow_seconds is not None and took >= slow_seconds:
            _log.warning("a statement took %.0f ms: %s", took * 1_000, _text(sql))
        else:
            _log.debug("%.1f ms: %s", took * 1_000, _text(sql))
        return cursor

    return told


def _text(sql: Any) -> str:
    text = sql.decode() if isinstance(sql, bytes) else str(sql)
    return " ".join(text.split())


# Named locks, which belong to no row.


class NamedLocks(ABC):
    """The part of the backend that holds named locks for units."""

    #: True if `locked` exists: the lock, a statement and the commit reach the server in one message.
    locks_in_one_trip = False

    @abstractmethod
    def named_lock(self, checkout: Any, name: str) -> None:
        """Hold the lock ``name`` until the unit ends; other callers of it wait."""

    def locked(self, checkout: Any, name: str, sql: str, parameters: Any) -> Any:
        """Run one statement while ``name`` is locked, and return its cursor. It sees what earlier holders committed.

        Outside a transaction the same message commits it. So the lock is held only while the statement runs, not during
        a client's round trips.
        """
        raise NotSupported("locks of this database are taken by statements of their own")
