"""What maintenance asks of a database, whose answers differ between products."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from sqlalchemy import ColumnElement, Table

from lastlight_state.backends.facts import Form, Place
from lastlight_state.errors import NotSupported


class Upkeep:
    """The part of `lastlight_state.backends.base.Backend` that only maintenance uses."""

    name: str

    @property
    def files(self) -> tuple[Path, ...]:
        """The files of the database on this machine, whether or not they exist; none for a server."""
        return ()

    def damages(self, checkout: Any, *, deep: bool) -> list[str]:
        """What the database's own checks find, a few dozen at most; empty for a sound one. ``deep`` reads all of it."""
        raise NotSupported(f"{self.name} does not examine itself")

    def malformed(self, column: ColumnElement[Any], form: Form) -> ColumnElement[bool] | None:
        """Whether a stored value is in another form than this one; None where no such value can be stored."""
        return None

    def newest(self, table: Table) -> ColumnElement[Any] | None:
        """The order of a table's rows from the last one that was stored to the first; None where there is none."""
        return None

    def place(self) -> Place | None:
        """Where the file of the database lies; None for a server, and for a file that cannot be looked at."""
        return None

    def lost_log(self, *, lacks_tables: bool) -> bool:
        """Whether the file seems to be a copy that was made while it was open, without its write-ahead log."""
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
        """The rows of a SELECT of these columns as the driver has them, one by one: for results of any size."""
        raise NotSupported(f"{self.name} cannot be copied by this library")

    def load(self, checkout: Any, table: str, names: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
        """Insert rows of these columns, in the driver's own types, by the fastest way that there is."""
        raise NotSupported(f"{self.name} cannot be copied into by this library")

    def given(self, checkout: Any, table: str, column: str) -> int | None:
        """The last number that the database has given this column, also to a row that is gone; None for none."""
        return None

    def advance(self, checkout: Any, table: str, column: str, last: int | None) -> None:
        """Let the next number of this column be greater than all that are there, and than the last that was given."""

    def analyze(self, checkout: Any, tables: Sequence[str]) -> None:
        """Renew the planner's statistics of these tables, where it has any that matter."""

    def identity(self, checkout: Any) -> Hashable:
        """What connections to the same tables have in common; None for tables that no other connection can see."""
        return None

    def snapshot(self, checkout: Any, path: Path) -> bool:
        """Write the database as it is at one moment to a new SQLite file, while others go on. False if it cannot."""
        return False
