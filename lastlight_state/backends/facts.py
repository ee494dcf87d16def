"""What a backend reports about a database: its schema, its sizes and settings, and tables of a foreign program."""

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

# Stored values that a driver cannot read: text that is no UTF-8, a time beyond the calendar, a number beyond JSON's.
#
# One such value must not cost the rows beside it, so a backend's `Backend.fetched` puts an `Unreadable` in its place.


class Unreadable:
    """Stands in a row for a value that the driver could not read. ``raw`` are its bytes, as far as they are known."""

    __slots__ = ("raw",)

    def __init__(self, raw: bytes = b"") -> None:
        self.raw = raw

    def __str__(self) -> str:
        return self.raw.decode("utf-8", "backslashreplace")

    def __bool__(self) -> bool:
        raise TypeError("unreadable")


#: The ``reason`` of a `BackendUnavailable` for a file that could be read and is not: it holds more than tables.
FORBIDDEN = "forbidden_schema"
#: The same, for a link, FIFO or the like in the place of a file or its journal.
NOT_REGULAR = "not_regular"

#: What a value of a column must be, where the database itself does not see to it.
Form = Literal["time", "flag", "whole number", "number", "JSON"]

#: Kind, table (or the object's own name), and name within it: ``("column", "workflow_runs", "status")``.
Entry = tuple[str, str, str]

#: Each entry with its definition as text. The entry ``("order", table, "")`` lists the columns as they lie in a row.
Catalogue = Mapping[Entry, str]


def squeezed(sql: str) -> str:
    """Return SQL text with each run of white space as one blank, so that line breaks make no difference."""
    return re.sub(r"\s+", " ", sql).strip().replace("( ", "(").replace(" )", ")")


@dataclass(frozen=True)
class TableSize:
    """Rows of a table, None until counted, and its bytes with indexes, None where the database does not keep them."""

    rows: int | None = None
    bytes: int | None = None


@dataclass(frozen=True)
class Measures:
    """Sizes and settings of a database. None where the product has no such thing.

    ``tables`` holds those of the tables asked for that exist, with the planner's estimate of their rows if it has one.
    ``settings`` are those that decide durability and waiting, by the product's own names. ``clock`` is the server's
    time when everything else had been measured.
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
    """The place of a database's file, and what lies beside it.

    ``file_system`` is the name of its kind; ``is_remote``: other machines may use the file, too. ``left`` are the
    journal and the log of a writer that died: nobody on this machine uses them. ``unfit`` are files that belong to
    another journal mode than the file's.
    """

    file_system: str
    is_remote: bool
    in_wal_mode: bool
    left: tuple[Path, ...]
    unfit: tuple[Path, ...]


class Malformed(NamedTuple):
    """Values of a column in another form than its own: how many, and some of them.

    ``lost`` names those that cannot be brought into it, with the keys of their rows. ``mends`` says whether others can.
    """

    values: int
    samples: tuple[str, ...]
    lost: tuple[str, ...] = ()
    mends: bool = False


class Original(Protocol):
    """A database file that the original program made, through one connection. Only `loosen` and `repair` write."""

    def limited(self) -> AbstractContextManager[None]:
        """Return a block in which a statement is ended that takes longer than any file of this size needs."""

    def displacing(self, tables: Collection[str]) -> list[str]:
        """Return the views and virtual tables that have the name of one of these tables, one line each."""

    def computing(self, tables: Collection[str], known: Collection[Entry]) -> list[str]:
        """Return what computes whenever one of these tables is written, unless it is known: one line each."""

    def damages(self) -> list[str]:
        """Return what the database's own integrity check finds; empty for a sound file."""

    def orphans(self) -> list[str]:
        """Return rows whose foreign keys refer to no row, by table."""

    def malformed(self, table: str, key: Sequence[str], column: str, form: Form) -> Malformed:
        """Return what stands in the column and is in another form than this library stores."""

    def repair(self, table: str, column: str, form: Form) -> None:
        """Bring the values of the column into this form. Those that cannot be read become NULL: look before."""

    def loosen(self, table: str) -> int:
        """Rebuild the table without its UNIQUE constraints, and nothing else changed; return the number of its rows.

        Foreign keys must be off. Raises `SchemaMismatch` when a row or a reference was lost.
        """


class Listened:
    """The part of a backend that tells listeners of SQLAlchemy what the store executes."""

    name: str
    #: Has the listeners of `engine` told of what a checkout executes. None until somebody has asked for that engine.
    tells: Callable[[Any], object] | None = None

    @property
    def engine(self) -> Engine:
        """Return the engine whose listeners are told of the store's statements, from the next unit on.

        A caller's engine where there is one. Another stands for the store's own connections and is for listeners
        alone, such as those of tracing.
        """
        raise NotSupported(f"{self.name} tells no listeners of SQLAlchemy")


# What maintenance asks of a database, whose answers differ between products.


class Joinable:
    """The part of `lastlight_state.backends.base.Backend` that only a caller's transaction uses, once it is joined."""

    name: str

    def places(self, checkout: Any) -> tuple[str, str]:
        """Return what tells the database of a caller's checkout from others, and the same of this backend."""
        return self.name, self.name

    def refuse_other_tables(self, checkout: Any, names: str) -> None:
        """Raise `MisuseError` where names of tables that match ``names`` mean other tables than the store's."""

    def leave(self, checkout: Any) -> None:
        """End what `join` began: the connection is as it was, and its transaction stays open."""


class Upkeep:
    """The part of `lastlight_state.backends.base.Backend` that only maintenance and migrations use."""

    name: str

    @property
    def files(self) -> tuple[Path, ...]:
        """Return the files of the database on this machine, whether or not they exist; none for a server."""
        return ()

    def server(self) -> str | None:
        """Return the product and version of the server; None for a file."""
        return None

    def distribution(self) -> tuple[str, tuple[str, ...]] | None:
        """Return what a server that distributes schemas says of itself, and what is amiss; None for any other."""
        return None

    def versions(self) -> dict[str, str]:
        """Return the versions of the products that the database is used by: of the engine, and of the driver."""
        return {}

    def known_faults(self) -> list[tuple[str, Fault]]:
        """Return the known faults that this database can meet, each with the product and version that has it."""
        return [
            (f"{name} {version}", fault)
            for name, version in self.versions().items()
            for fault in faults_of(name, version)
        ]

    def damages(self, checkout: Any, *, deep: bool) -> list[str]:
        """Return what the database's own checks find, a few dozen at most; empty for a sound one.

        ``deep`` reads all of it.
        """
        raise NotSupported(f"{self.name} does not examine itself")

    def malformed(self, column: ColumnElement[Any], form: Form) -> ColumnElement[bool] | None:
        """Return whether a stored value is in another form than this one; None where no such value can be stored."""
        return None

    def newest(self, table: Table) -> ColumnElement[Any] | None:
        """Return the order of a table's rows from the last stored to the first, None if there is none."""
        return None

    def place(self) -> Place | None:
        """Return where the file of the database lies; None for a server, and for a file that cannot be looked at."""
        return None

    def lost_log(self, *, lacks_tables: bool) -> bool:
        """Return whether the file seems to be a copy that was made while it was open, without its write-ahead log."""
        return False

    def checkpoint(self, checkout: Any, mode: str) -> tuple[bool, int, int] | None:
        """Bring a write-ahead log into the database: whether a reader was in the way, pages of the log, pages brought.

        None where there is no such log.
        """
        return None

    def vacuum(self, checkout: Any, tables: Sequence[str], *, analyze: bool, full: bool) -> None:
        """Give back the space of deleted rows of these tables, outside any transaction.

        Raises `Conflict` ``no_space`` where there is no room for it.
        """
        raise NotSupported(f"{self.name} cannot be vacuumed by this library")

    def stream(self, checkout: Any, sql: str, params: Any, columns: Sequence[Any]) -> Iterator[Sequence[Any]]:
        """Return the rows of a SELECT of these columns as the driver has them, one by one: for results of any size."""
        raise NotSupported(f"{self.name} cannot be copied by this library")

    def load(self, checkout: Any, table: str, names: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
        """Insert rows of these columns, in the driver's own types, by the fastest way that there is."""
        raise NotSupported(f"{self.name} cannot be copied into by this library")

    def given(self, checkout: Any, table: str, column: str) -> int | None:
        """Return the last number that the database has given this column, also to a row that is gone; None for none."""
        return None

    def advance(self, checkout: Any, table: str, column: str, last: int | None) -> None:
        """Let the next number of this column be greater than all that are there, and than the last that was given."""

    def analyze(self, checkout: Any, tables: Sequence[str]) -> None:
        """Renew the planner's statistics of these tables, where it has any that matter."""

    def identity(self, checkout: Any) -> Hashable:
        """Return a key that connections to the same tables share; None for tables that no other connection can see."""
        return None

    def snapshot(self, checkout: Any, path: Path) -> bool:
        """Write the database as it is at one moment to a new SQLite file, while others go on. False if it cannot."""
        return False

    def grants(self, role: str, rights: Mapping[str, Sequence[str]]) -> Iterator[str]:
        """Return the statements that give a role the rights to each of these tables. Asks where the tables are."""
        raise NotSupported(f"{self.name} has no roles: whoever may write the file may do everything with it")

    def original(self, connection: Connection) -> Original | None:
        """Return the database as a file that another program has made; None where there is no such program."""
        return None

    def column_names(self, checkout: Any, table: str) -> frozenset[str]:
        """Return the columns of a table of a file that another program may have made; none if there is no table."""
        raise NotSupported(f"{self.name} has no files of other programs")


# Statements told to the logger ``lastlight_state.statements``: each at DEBUG, and slow ones at WARNING.

_log = logging.getLogger("lastlight_state.statements")


def logged(execute: Callable[..., Any], backend: Any) -> Callable[..., Any]:
    """Return what executes statements: itself, where nobody is told of any.

    A line has the milliseconds until the first row, and the statement; never its values.
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


# What a backend does for locks that have a name and no row.


class NamedLocks(ABC):
    """The part of a backend that holds such locks for units."""

    #: Whether `locked` is there: a lock, a statement and the commit reach the server together.
    locks_in_one_trip = False

    @abstractmethod
    def named_lock(self, checkout: Any, name: str) -> None:
        """Hold ``name`` until the unit ends; others who ask for it wait."""

    def locked(self, checkout: Any, name: str, sql: str, parameters: Any) -> Any:
        """Run one statement while ``name`` is held, and return its cursor. It sees what earlier holders committed.

        Outside a transaction the same message commits it, so that the lock is held for the time of the statement alone,
        and not for a client's round trips.
        """
        raise NotSupported("locks of this database are taken by statements of their own")
