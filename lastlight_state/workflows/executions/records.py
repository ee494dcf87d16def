"""The records of `executions`. They do not hold the output text, which `find_output` returns."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from typing import Any, ClassVar, Self

from lastlight_state.db.rows.records import Record
from lastlight_state.workflows.repos import split_legacy
from lastlight_state.workflows.shared.executions import outcome_of
from lastlight_state.workflows.words import stored_cost


class ExecutionSummary(Record):
    """An execution in a list: without large fields, and with the error cut to 500 characters.

    While the execution is in flight, ``success`` is None and ``outcome`` is ``running``. Durations are in milliseconds,
    the cost is exact to a picodollar. Figures that were not reported are None. ``input_includes_cache_reads`` is true
    if the input tokens include tokens read from a cache.
    """

    id: str
    trigger_type: str
    trigger_id: str
    skill: str
    owner: str | None
    repo: str | None
    issue_number: int | None
    run_id: str | None
    node_id: str | None
    iteration: int
    attempt: int | None
    started_at: datetime
    finished_at: datetime | None
    outcome: str
    success: bool | None
    error: str | None
    stop_reason: str | None
    session_id: str | None
    cached: bool
    model: str | None
    turns: int | None
    duration_ms: int | None
    api_duration_ms: int | None
    input_tokens: int | None
    output_tokens: int | None
    cache_creation_input_tokens: int | None
    cache_read_input_tokens: int | None
    input_includes_cache_reads: bool
    cost_usd: Decimal | None

    _consumed: ClassVar[frozenset[str]] = frozenset({"cost_micros", "cost_picos"})

    @classmethod
    def of(cls, values: Any) -> Self:
        values["owner"], values["repo"] = split_legacy(values["owner"], values["repo"])
        values["outcome"] = outcome_of(values)
        values["cost_usd"] = stored_cost(values.pop("cost_micros"), values.pop("cost_picos"), values["cost_usd"])
        return super().of(values)


class Execution(ExecutionSummary):
    """One phase execution, chat turn or node attempt with its whole error. ``session_id`` names its agent log."""

    triggered_by: str | None
    trigger_actor_type: str | None
    heartbeat_at: datetime | None
    claim_epoch: int | None
    price_table: str | None
    vcs_pointer: str | None
    work_dir: str | None
    checkpoint: Any
    error_detail: Any
    details: Any
