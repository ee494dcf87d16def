"""A kind of prune that goes its own way through its records, such as one that removes parts of them.

A sweep looks through its records in an order of its own, some at a time and without a lock, and removes what it found
in short transactions that judge it again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple, Protocol, Self

import sqlalchemy as sa

from lastlight_state.db.lists.filters import KeyRow, family, rows
from lastlight_state.db.rows.statements import bind, number, prepared
from lastlight_state.db.schema.columns import parse_time
from lastlight_state.db.units.unit import Unit

#: How many records one look reads.
LOOK = 200

Terms = Mapping[str, Any]


class CandidatePage(NamedTuple):
    """The records from which something may go, and the place after which the next look begins: None at the end.

    A place is what the sweep makes it, as JSON can hold it.
    """

    keys: list[str]
    after: Any


class Removal(NamedTuple):
    """The numbers of rows removed, by table, and whether the next look begins at the same place, as more may go."""

    counts: Counter[str]
    more: bool = False


@dataclass
class Tally:
    """The tally of a sweep: the records, the rows by table, and how many records stay by the reason."""

    records: int = 0
    samples: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    protected: Counter[str] = field(default_factory=Counter)

    def add(self, keys: Iterable[str]) -> None:
        """Count these records, and name the first."""
        for key in keys:
            self.records += 1
            if self.records <= SAMPLES:
                self.samples.append(key)


#: How many of the records from which something would go a plan names.
SAMPLES = 20


class Stage(Protocol):
    """One walk through records."""

    def look(self, unit: Unit, terms: Terms, after: Any) -> CandidatePage:
        """Return the next records after a place, from the beginning after None."""

    def remove(self, unit: Unit, terms: Terms, keys: list[str], most: int) -> Removal:
        """Remove what may go from these records, about ``most`` rows, after judging them again."""


class OneStage:
    """A sweep that is its only stage."""

    @property
    def stages(self) -> tuple[Self, ...]:
        """Return this sweep as its only kind."""
        return (self,)


class Sweep(Protocol):
    """One kind. Its ``keep_n`` is None where records go by their age alone."""

    @property
    def name(self) -> str:
        """Return the kind of the policy."""

    @property
    def record(self) -> str:
        """Return what `NotFound` calls one of its records."""

    @property
    def tables(self) -> tuple[str, ...]:
        """Return the tables that it removes rows of."""

    @property
    def keep_days(self) -> int:
        """Return the days that are kept unless a policy says more or less."""

    @property
    def keep_n(self) -> int | None:
        """Return how many of the newest are kept unless a policy says more or less."""

    @property
    def stages(self) -> Sequence[Stage]:
        """Return the stages of this sweep. One begins when nothing is left to remove for the one before."""

    def known(self, unit: Unit, keys: Iterable[str]) -> set[str]:
        """Return the given keys that exist."""

    def bounded(self, unit: Unit, terms: Terms) -> Terms:
        """Return the terms with what is fixed when a prune begins, such as which of the newest are kept."""

    def tally(self, unit: Unit, terms: Terms) -> Tally:
        """Return what would go, in one snapshot."""


def cutoff(terms: Terms) -> datetime:
    """Return the moment before which records may go."""
    return parse_time(terms["cutoff"])


# The rows of a table by their keys: the next ones, those that there are, and those that nobody else has locked.


class Keys:
    """The keys of one table."""

    def __init__(self, key: sa.Column[Any]) -> None:
        found = sa.select(key.label("key"))
        self.walk = prepared(found.where(key > bind("after", key)).order_by(key).limit(number(LOOK)), KeyRow)
        self.known = family(lambda keys: found.where(key.in_(keys)), KeyRow)
        self.lock = family(
            lambda keys: found.where(key.in_(keys)).order_by(key).with_for_update(skip_locked=True), KeyRow
        )

    def next(self, unit: Unit, terms: Terms, after: str | None) -> tuple[list[str], str | None]:
        """Return the next keys after one, and the last of them unless they are the last of all."""
        since = after or ""
        if terms["ids"] is None:
            keys = [row["key"] for row in unit.rows(self.walk, {"after": since})]
        else:
            keys = [key for key in terms["ids"] if key > since][:LOOK]
        return keys, keys[-1] if len(keys) == LOOK else None

    def among(self, unit: Unit, keys: Iterable[str]) -> set[str]:
        """Return those of these keys that a row has."""
        return {row["key"] for row in rows(unit, self.known, keys)}

    def locked(self, unit: Unit, keys: Iterable[str]) -> list[str]:
        """Return those of these keys whose rows nobody has locked; they are locked until the unit ends."""
        return [row["key"] for row in rows(unit, self.lock, keys)]
