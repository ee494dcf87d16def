"""A kind of record that can be pruned, as data."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import sqlalchemy as sa

from lastlight_state.db.unit import Unit


@dataclass(frozen=True)
class Kind:
    """A table of records with one key column, and the tables whose rows go with them.

    ``age``          when a record ended; in this order, then by key, prune walks through ``index``
    ``ended``        the records that prune looks at, the predicate of that index
    ``open``         records that are as old and have not ended: never removed, only counted, as ``not_ended``
    ``children``     for each table the column that holds the key of the record that its rows belong to
    ``has_outputs``  rows of output tables go, too; they hold the key in ``run_id``
    ``protections``  conditions under which a record stays, by the reason
    ``in_use``       keys that stay because something refers to them that only a program can follow
    ``record``       what `NotFound` calls one, and its tombstone
    ``buried``       whether a tombstone keeps an import from bringing it back
    """

    name: str
    record: str
    key: sa.Column[Any]
    age: sa.ColumnElement[Any]
    ended: sa.ColumnElement[bool]
    open: sa.ColumnElement[bool]
    open_age: sa.ColumnElement[Any]
    index: str
    keep_days: int = 30
    keep_n: int = 100
    children: tuple[sa.Column[Any], ...] = ()
    has_outputs: bool = False
    protections: Mapping[str, sa.ColumnElement[bool]] = field(default_factory=dict)
    in_use: Callable[[Unit], frozenset[str]] | None = None
    buried: bool = True

    @property
    def table(self) -> sa.Table:
        """The table of the records themselves."""
        table: sa.Table = self.key.table
        return table

    @property
    def table_name(self) -> str:
        """The name of that table."""
        return str(self.table.name)
