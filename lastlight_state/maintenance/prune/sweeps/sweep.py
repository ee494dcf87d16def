"""A kind of prune that removes parts of records: the beginning of what one has.

A sweep looks through its records in the order of their keys, some at a time and without a lock, and removes what it
found in short transactions that judge it again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple, Protocol

from lastlight_state.db.columns import parse_time
from lastlight_state.db.unit import Unit

#: How many records one look reads.
LOOK = 200

Terms = Mapping[str, Any]


class Look(NamedTuple):
    """The records from which something may go, and after which one the next look begins: None at the end."""

    keys: list[str]
    after: str | None


class Removal(NamedTuple):
    """How many rows were removed, by table, and whether more of the same records may go."""

    counts: Counter[str]
    more: bool = False


@dataclass
class Tally:
    """What a sweep would remove: the records, the rows by table, and how many records stay by the reason."""

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


class Sweep(Protocol):
    """One kind."""

    @property
    def name(self) -> str:
        """The kind of the policy."""

    @property
    def record(self) -> str:
        """What `NotFound` calls one of its records."""

    @property
    def tables(self) -> tuple[str, ...]:
        """The tables that it removes rows of."""

    @property
    def keep_days(self) -> int:
        """The days that are kept unless a policy says more or less."""

    @property
    def keep_n(self) -> int:
        """How many of the newest are kept unless a policy says more or less."""

    def known(self, unit: Unit, keys: Iterable[str]) -> set[str]:
        """Those of these keys that there are."""

    def look(self, unit: Unit, terms: Terms, after: str | None) -> Look:
        """The next records after a key, from the beginning after None."""

    def remove(self, unit: Unit, terms: Terms, keys: list[str], most: int) -> Removal:
        """Remove what may go from these records, about ``most`` rows, after judging them again."""

    def tally(self, unit: Unit, terms: Terms) -> Tally:
        """What would go, in one snapshot."""


def cutoff(terms: Terms) -> datetime:
    """Before which moment something may go."""
    return parse_time(terms["cutoff"])
