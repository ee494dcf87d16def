"""The rows of new executions, and the parameters of changes of one. JSON is given as text."""

from __future__ import annotations

from datetime import datetime
from typing import TypedDict

from lastlight_state.workflows.checks import FenceParameters, NodeColumns, TriggerColumns


class NewExecution(NodeColumns, FenceParameters):
    """The row of a new execution, and what its start does to its node."""

    id: str
    skill: str
    started_at: datetime
    finished_at: datetime | None
    success: bool | None
    outcome: str
    error: str | None
    duration_ms: int | None
    session_id: str | None
    stop_reason: str | None
    workflow_run_id: str | None
    attempt: int | None
    claim_epoch: int | None
    cached: bool
    vcs_pointer: str | None
    work_dir: str | None
    details: str | None
    node_state: str
    at: datetime


class AloneExecution(NewExecution, TriggerColumns):
    """The row of a new execution without a run."""


class UsageCounts(TypedDict):
    """The counts of a usage report, as columns."""

    turns: int | None
    input_tokens: int | None
    output_tokens: int | None
    cache_creation_input_tokens: int | None
    cache_read_input_tokens: int | None
    api_duration_ms: int | None


class UsageColumns(UsageCounts):
    """A usage report as columns."""

    cost_micros: int | None
    cost_picos: int | None
    cost_usd: float | None
    input_includes_cache_reads: bool | None
    model: str | None
    price_table: str | None


class ChangeParameters(FenceParameters):
    """What every change of one execution names."""

    execution_id: str


class Update(UsageColumns, ChangeParameters):
    """The parameters of an update."""

    at: datetime
    session_id: str | None
    checkpoint: str | None


class Ending(TypedDict):
    """Why an execution ended, as columns."""

    error: str | None
    error_detail: str | None
    stop_reason: str | None


class EndColumns(Ending):
    """How an execution ended."""

    outcome: str


class Finish(Update, EndColumns):
    """The parameters of an end."""

    success: bool


class Overruling(ChangeParameters, EndColumns):
    """The parameters of a success turned into a failure."""

    at: datetime


class Interruption(TypedDict):
    """The facts of an interruption: when, why, and of which skill."""

    at: datetime
    because: str
    skill: str | None


class OutputText(ChangeParameters):
    """The parameters of an output text."""

    output_text: str
