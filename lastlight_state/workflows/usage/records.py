"""What rollups give."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Self

from lastlight_state.db.records import Record
from lastlight_state.workflows.money import dollars_of
from lastlight_state.workflows.records import Totals


class UsageTotals(Totals):
    """Sums over executions, those in flight with what they reported so far.

    ``total_tokens`` is input, output and what was read from the cache; what was written to it is a figure of its own.
    """

    total_tokens: int = 0

    @classmethod
    def of(cls, values: dict[str, Any]) -> Self:
        values["cost_usd"] = dollars_of(int(values.pop("cost_micros")))
        read = ("input_tokens", "output_tokens", "cache_read_input_tokens")
        values["total_tokens"] = sum(values[name] for name in read)
        return super().of(values)


class UsageBucket(UsageTotals):
    """The executions that began in one hour or day of UTC. ``outcomes`` counts them, 0 for outcomes that none had."""

    start: datetime
    outcomes: dict[str, int]


class UsageGroup(UsageTotals):
    """The executions that have one key in common. None: those that have none."""

    key: str | None


class ThreadUsage(UsageTotals):
    """The chat turns of one trigger, which is the id of their thread."""

    trigger_id: str
    first_at: datetime
    last_at: datetime


class UsageStats(Record):
    """What there is since a moment, and what is going on now.

    ``skills`` and ``trigger_types`` hold the 500 most frequent. ``running_now`` are all executions in flight, however
    old; ``today`` began today in UTC.
    """

    since: datetime
    totals: UsageTotals
    outcomes: dict[str, int]
    skills: dict[str, int]
    trigger_types: dict[str, int]
    running_now: int
    today: UsageTotals
