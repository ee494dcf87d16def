"""The records of `usage`."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Self

from lastlight_state.db.records import Record
from lastlight_state.workflows.kernel.executions import summed
from lastlight_state.workflows.records import Totals


class UsageTotals(Totals):
    """Sums over executions. Those in flight count with what they reported so far.

    ``total_tokens`` is input, output and cache reads, each counted once: cache reads of a report whose input includes
    them are not added. Cache writes are in ``cache_creation_input_tokens`` only.
    """

    total_tokens: int = 0

    @classmethod
    def of(cls, values: dict[str, Any]) -> Self:
        return super().of(summed(values))


class UsageBucket(UsageTotals):
    """The executions that started in one hour or day of UTC. ``outcomes`` has a count for every outcome."""

    start: datetime
    outcomes: dict[str, int]


class UsageGroup(UsageTotals):
    """The executions of one key. The key None holds those without one."""

    key: str | None


class ThreadUsage(UsageTotals):
    """The chat turns of one trigger, which is the id of their thread."""

    trigger_id: str
    first_at: datetime
    last_at: datetime


class UsageStats(Record):
    """The executions from ``since`` on, and those of now.

    ``skills`` and ``trigger_types`` hold the 500 most frequent ones. ``running_now`` counts all executions in flight,
    however old; ``today`` sums those that started today in UTC.
    """

    since: datetime
    totals: UsageTotals
    outcomes: dict[str, int]
    skills: dict[str, int]
    trigger_types: dict[str, int]
    running_now: int
    today: UsageTotals
