"""Records of copies between databases."""

from __future__ import annotations

from typing import Any

from lastlight_state.db.records import Record


class CopiedTable(Record):
    """What a table holds: how many rows, and a digest that equal rows give in any order, on any database.

    The digest is the sum of the SHA-256 of each row's canonical form, 64 hex digits.
    """

    name: str
    rows: int
    digest: str


class _Tables(Record):
    """Tables of a copy from one database to another; locations are without passwords.

    ``left_columns`` are those, as ``table.column``, that other programs added to tables of this library and that hold
    something: no copy has them.
    """

    source: str
    target: str
    tables: tuple[CopiedTable, ...]
    left_columns: tuple[str, ...] = ()

    def shared(self) -> dict[str, Any]:
        """What a plan and its report have in common, by name."""
        return {name: getattr(self, name) for name in _Tables.model_fields}

    @property
    def rows(self) -> int:
        """Of all tables."""
        return sum(table.rows for table in self.tables)


class CopyPlan(_Tables):
    """What a copy would do at this moment: nothing is written to find out.

    ``revision`` is the schema of the source. ``problems`` says what the target cannot hold, or what stands in the way;
    a copy with problems is refused.
    """

    revision: str
    problems: tuple[str, ...]


class CopyReport(_Tables):
    """A copy that was finished: every table of the target was read again, and has the digest of the source."""

    receipt_id: str


class CopyProgress(Record):
    """How far a copy came: rows of one table so far. ``phase`` is ``planned``, ``copied`` or ``verified``."""

    phase: str
    table: str
    rows: int
    total: int | None
