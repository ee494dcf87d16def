"""Records of counters that are behind the rows that they number."""

from __future__ import annotations

from collections.abc import Mapping

from lastlight_state.db.records import Record


class LateCounter(Record):
    """A counter behind its rows: its column, the key of its row, its value, and the value that it must have."""

    counter: str
    key: str
    value: int
    needed: int


class CounterPlan(Record):
    """Which counters are behind at this moment: nothing is written to find out.

    ``counts`` says how many, by column; ``samples`` are the first 20 of them.
    """

    counts: Mapping[str, int]
    samples: tuple[LateCounter, ...]
