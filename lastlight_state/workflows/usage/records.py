"""The records of `usage`."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Self

from lastlight_state.db.rows.records import Record, make_record
from lastlight_state.workflows.kernel.executions import SumsRow, summed, total_tokens
from lastlight_state.workflows.records import Totals


class OutcomeSumsRow(SumsRow):
    """The sums of the executions that ended in one way."""

    outcome: str


class BucketRow(OutcomeSumsRow):
    """The sums of one hour or day, by outcome."""

    bucket: str


class GroupRow(SumsRow):
    """The sums of the executions of one key."""

    key: str | None


class ThreadRow(SumsRow):
    """The sums of a chat thread."""

    trigger_id: str
    first_at: datetime
    last_at: datetime


class UsageTotals(Totals):
    """Sums over executions. Executions in flight count with the usage reported so far.

    ``total_tokens`` is the sum of input, output and cache reads, each token counted once: cache reads that the input
    includes already are not added. Cache writes are in ``cache_creation_input_tokens`` only.
    """

    total_tokens: int = 0

    @classmethod
    def of(cls, values: SumsRow) -> Self:
        return make_record(cls, {**summed(values), "total_tokens": total_tokens(values)})


class UsageBucket(UsageTotals):
    """The sums over executions that started in one hour or day in UTC. ``outcomes`` counts them by outcome."""

    start: datetime
    outcomes: dict[str, int]

    @classmethod
    def of_parts(cls, parts: Sequence[BucketRow], start: datetime, outcomes: dict[str, int]) -> Self:
        """Return the bucket that begins at ``start``, adding up its sums by outcome."""
        total: SumsRow = {
            "executions": sum(part["executions"] for part in parts),
            "cost_micros": sum(part["cost_micros"] for part in parts),
            "cost_picos": sum(part["cost_picos"] for part in parts),
            "input_tokens": sum(part["input_tokens"] for part in parts),
            "output_tokens": sum(part["output_tokens"] for part in parts),
            "cache_read_input_tokens": sum(part["cache_read_input_tokens"] for part in parts),
            "cache_creation_input_tokens": sum(part["cache_creation_input_tokens"] for part in parts),
            "included_cache_reads": sum(part["included_cache_reads"] for part in parts),
        }
        sums = {**summed(total), "total_tokens": total_tokens(total)}
        return make_record(cls, {**sums, "start": start, "outcomes": outcomes})


class UsageGroup(UsageTotals):
    """The sums over executions with one key of a dimension. The key None groups executions without a key."""

    key: str | None

    @classmethod
    def of(cls, values: GroupRow) -> Self:  # type: ignore[override]
        return make_record(cls, {"key": values["key"], **summed(values), "total_tokens": total_tokens(values)})


class ThreadUsage(UsageTotals):
    """The sums over the chat turns of one thread; ``trigger_id`` is the id of the thread."""

    trigger_id: str
    first_at: datetime
    last_at: datetime

    @classmethod
    def of(cls, values: ThreadRow) -> Self:  # type: ignore[override]
        thread = {"trigger_id": values["trigger_id"], "first_at": values["first_at"], "last_at": values["last_at"]}
        return make_record(cls, {**thread, **summed(values), "total_tokens": total_tokens(values)})


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
