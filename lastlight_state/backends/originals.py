"""What is asked of a database file that another program has made, before and while this library takes it over."""

from __future__ import annotations

from typing import Protocol


class Original(Protocol):
    """Such a file, seen through one connection. Only `loosen` writes."""

    def damages(self) -> list[str]:
        """What the database's own integrity check finds; empty for a sound file."""

    def orphans(self) -> list[str]:
        """Rows whose foreign keys lead nowhere, by table."""

    def odd_times(self, table: str, column: str) -> tuple[int, list[str]]:
        """How many values of the column are no time as this library writes it, and some of them."""

    def loosen(self, table: str) -> int:
        """Rebuild the table without its UNIQUE constraints, everything else as it was; the number of its rows.

        Foreign keys must be off. Raises `SchemaMismatch` when a row or a reference did not survive.
        """
