"""The records of `usage`."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, ClassVar, Self

from lastlight_state.db.rows.records import Record, make_record
from lastlight_state.db.rows.statements import Row
from lastlight_state.workflows.records import Totals
from lastlight_state.workflows.shared.executions import COUNTED, INCLUDED, sums_of, total_tokens


class UsageTotals(Totals):
    """Sums over executions. Executions in flight count with the usage reported so far.

    ``total_tokens`` is the sum of input, output and cache reads, each token counted once: cache reads that the input
    includes already are not added. Cache writes are in ``cache_creation_input_tokens`` only.
    """

    total_tokens: int = 0

    _computed: ClassVar[frozenset[str]] = frozenset({"cost_usd", "total_tokens"})
    _consumed: ClassVar[frozenset[str]] = frozenset({"cost_micros", "cost_picos", INCLUDED})

    @classmethod
    def of(cls, values: Any) -> Self:
        others = {name: value for name, value in values.items() if name not in COUNTED}
        return make_record(cls, {**others, **sums_of(values), "total_tokens": total_tokens(values)})


class UsageBucket(UsageTotals):
    """The sums over executions that started in one hour or day in UTC. ``outcomes`` counts them by outcome."""

    start: datetime
    outcomes: dict[str, int]

    @classmethod
    def of_parts(cls, parts: Sequence[Row], start: datetime, outcomes: dict[str, int]) -> Self:
        """Return the bucket that begins at ``start``, from its sums by outcome."""
        sums = {name: sum(part[name] for part in parts) for name in COUNTED}
        return cls.of({**sums, "start": start, "outcomes": outcomes})


class UsageGroup(UsageTotals):
    """The sums over executions with one key of a dimension. The key None groups executions without a key."""

    key: str | None


class ThreadUsage(UsageTotals):
    """The sums over the chat turns of one thread; ``trigger_id`` is the id of the thread."""

    trigger_id: str
    first_at: datetime
    last_at: datetime


class UsageStats(Record):
    """Counts and sums of executions that started at ``since`` or later.

    ``skills`` and ``trigger_types`` hold counts of the 500 most frequent ones. ``running_now`` counts all executions in
    flight, however old; ``today`` sums executions that started today in UTC.
    """

    since: datetime
    totals: UsageTotals
    outcomes: dict[str, int]
    skills: dict[str, int]
    trigger_types: dict[str, int]
    running_now: int
    today: UsageTotals
