"""The interface of a sweep: a kind of prune that reads records in its own way, for example to remove parts of them.

A sweep reads its records in its own order, in batches and without a lock. It removes candidates in short transactions
that check them again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple, Protocol, Self

import sqlalchemy as sa

from lastlight_state.db.lists.filters import family, first_column
from lastlight_state.db.rows.statements import bind, number, statement_of
from lastlight_state.db.schema.columns import parse_time
from lastlight_state.db.units.unit import Unit

#: How many records one look reads.
LOOK = 200

Terms = Mapping[str, Any]


class CandidatePage(NamedTuple):
    """The next candidates for removal, and the place after which the search continues, or None at the end.

    Each sweep defines its places, as JSON values.
    """

    keys: list[str]
    after: Any


class Removal(NamedTuple):
    """The numbers of removed rows, by table. ``more`` is True if the same place may have more rows to remove."""

    counts: Counter[str]
    more: bool = False


@dataclass
class Tally:
    """The tally of a sweep: the records to remove, their rows by table, and how many records stay, by reason."""

    records: int = 0
    samples: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    protected: Counter[str] = field(default_factory=Counter)

    def add(self, keys: Iterable[str]) -> None:
        """Count these records, and keep the first keys as samples."""
        for key in keys:
            self.records += 1
            if self.records <= SAMPLES:
                self.samples.append(key)


#: How many records a plan names at most.
SAMPLES = 20


class Stage(Protocol):
    """A stage of a sweep, which is one pass through records."""

    def look(self, unit: Unit, terms: Terms, after: Any) -> CandidatePage:
        """Return the next candidates after the place ``after``, or the first candidates if it is None."""

    def remove(self, unit: Unit, terms: Terms, keys: list[str], most: int) -> Removal:
        """Remove about ``most`` rows of these records, after checking them again."""


class OneStage:
    """A sweep that consists of a single stage, which is the sweep itself."""

    @property
    def stages(self) -> tuple[Self, ...]:
        """Return a list with this sweep as the only stage."""
        return (self,)


class Sweep(Protocol):
    """A kind of prune. Its ``keep_n`` is None if records are removed only by their age."""

    @property
    def name(self) -> str:
        """Return the name of this kind in a policy."""

    @property
    def record(self) -> str:
        """Return what a record is called in `NotFound` errors."""

    @property
    def tables(self) -> tuple[str, ...]:
        """Return the tables that the sweep removes rows from."""

    @property
    def keep_days(self) -> int:
        """Return the default number of days that records are kept."""

    @property
    def keep_n(self) -> int | None:
        """Return the default number of newest records that are kept."""

    @property
    def stages(self) -> Sequence[Stage]:
        """Return the stages of this sweep. A stage begins when the previous stage has nothing left to remove."""

    def existing_keys(self, unit: Unit, keys: Iterable[str]) -> set[str]:
        """Return those of the given keys that exist."""

    def bounded_terms(self, unit: Unit, terms: Terms) -> Terms:
        """Return the terms with values added that are fixed when a prune begins, such as the newest records to keep."""

    def tally(self, unit: Unit, terms: Terms) -> Tally:
        """Return the records and rows that would be removed, from one snapshot."""


def cutoff(terms: Terms) -> datetime:
    """Return the time before which records may be removed."""
    return parse_time(terms["cutoff"])


# The rows of a table by their keys: the next keys, the existing keys, and the keys that can be locked.


class Keys:
    """The keys of one table, read in order."""

    def __init__(self, key: sa.Column[Any]) -> None:
        found = sa.select(key.label("key"))
        self.walk = statement_of(found.where(key > bind("after", key)).order_by(key).limit(number(LOOK)))
        self.known = family(lambda keys: found.where(key.in_(keys)))
        self.lock = family(lambda keys: found.where(key.in_(keys)).order_by(key).with_for_update(skip_locked=True))

    def next(self, unit: Unit, terms: Terms, after: str | None) -> tuple[list[str], str | None]:
        """Return the next keys after a key, and the last of these keys, or None in its place if there are no more."""
        since = after or ""
        if terms["ids"] is None:
            keys = unit.values(self.walk, {"after": since})
        else:
            keys = [key for key in terms["ids"] if key > since][:LOOK]
        return keys, keys[-1] if len(keys) == LOOK else None

    def among(self, unit: Unit, keys: Iterable[str]) -> set[str]:
        """Return the keys among these that exist."""
        return set(first_column(unit, self.known, keys))

    def lock_rows(self, unit: Unit, keys: Iterable[str]) -> list[str]:
        """Return the keys among these whose rows could be locked. The locks last until the unit ends."""
        return [*first_column(unit, self.lock, keys)]
