"""A kind of record that can be pruned, as data."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import sqlalchemy as sa

from lastlight_state.db.unit import Unit


class Shared(Protocol):
    """What several records of a kind refer to, and which goes with the last of them."""

    #: The tables that `release` removes rows of.
    tables: tuple[str, ...]

    def waits(self, unit: Unit, keys: Sequence[str]) -> dict[str, set[str]]:
        """The other records that must be gone before each of these may go."""

    def lock(self, unit: Unit, keys: Sequence[str]) -> None:
        """Keep others from referring to what belongs to these records, until the unit ends."""

    def sizes(self, unit: Unit, keys: Sequence[str]) -> dict[str, int]:
        """About how many shared rows go with each record. Bounds a batch."""

    def count(self, unit: Unit, keys: Sequence[str]) -> Counter[str]:
        """How many shared rows go with all these records together, by table."""

    def hold(self, unit: Unit, keys: Sequence[str]) -> None:
        """Keep what these records refer to as it is, until the unit ends."""

    def held(self, unit: Unit, keys: Sequence[str]) -> Any:
        """What these records refer to, for `release`."""

    def release(self, unit: Unit, held: Any) -> Counter[str]:
        """Remove what nobody refers to any more, after the records are gone. Returns the rows by table."""


@dataclass(frozen=True)
class Kind:
    """A table of records with one key column, and the tables whose rows go with them.

    ``age``          when a record ended; in this order, then by key, prune walks through ``index``
    ``ended``        the records that prune looks at, the predicate of that index
    ``open``         records that are as old and have not ended: never removed, only counted, as ``not_ended``. None for
                     a kind whose ``protections`` tell them
    ``children``     for each table the column that holds the key of the record that its rows belong to
    ``has_outputs``  rows of output tables go, too; they hold the key in ``run_id``
    ``protections``  conditions under which a record stays, by the reason
    ``in_use``       keys that stay because something refers to them that only a program can follow
    ``record``       what `NotFound` calls one, and its tombstone
    ``shared``       what records refer to together
    ``buried``       whether a tombstone keeps an import from bringing it back
    """

    name: str
    record: str
    key: sa.Column[Any]
    age: sa.ColumnElement[Any]
    ended: sa.ColumnElement[bool]
    index: str
    open: sa.ColumnElement[bool] | None = None
    open_age: sa.ColumnElement[Any] | None = None
    keep_days: int = 30
    keep_n: int = 100
    children: tuple[sa.Column[Any], ...] = ()
    has_outputs: bool = False
    protections: Mapping[str, sa.ColumnElement[bool]] = field(default_factory=dict)
    in_use: Callable[[Unit], frozenset[str]] | None = None
    shared: Shared | None = None
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
