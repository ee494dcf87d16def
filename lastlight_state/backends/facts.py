"""What a backend reports about a database: its schema, its sizes and settings, and tables of a foreign program."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Literal, NamedTuple, Protocol

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
    """SQL text with each run of white space as one blank, so that line breaks make no difference."""
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
    """Where the file of a database lies, and what lies beside it.

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
        """Rows whose foreign keys refer to no row, by table."""

    def malformed(self, table: str, key: Sequence[str], column: str, form: Form) -> Malformed:
        """Return what stands in the column and is in another form than this library stores."""

    def repair(self, table: str, column: str, form: Form) -> None:
        """Bring the values of the column into this form. Those that cannot be read become NULL: look before."""

    def loosen(self, table: str) -> int:
        """Rebuild the table without its UNIQUE constraints, and nothing else changed; return the number of its rows.

        Foreign keys must be off. Raises `SchemaMismatch` when a row or a reference was lost.
        """
