"""Row types of statements that return some columns of a table, or columns of several. Whole rows are in `rows`."""

from __future__ import annotations

from datetime import datetime
from typing import Any, NotRequired, TypedDict


class FrameSummaryRow(TypedDict):
    """The columns of a `FrameSummary`."""

    run_id: str
    frame_no: int
    created_at: datetime
    encoding: str
    content_hash: str
    full_bytes: int
    note: str | None


class FrameDetailRow(FrameSummaryRow):
    """A frame without its body."""

    mounted_task_ids: Any
    task_index: Any


class RebuiltFrame(FrameDetailRow):
    """The columns of a `Frame`."""

    tree: Any
    xml: str


class ToolCallSummaryRow(TypedDict):
    """The columns of a `ToolCallSummary`."""

    run_id: str
    seq: int
    node_id: str | None
    iteration: int
    attempt: int
    execution_id: str | None
    call_id: str | None
    tool_name: str
    status: str
    started_at: datetime
    finished_at: datetime | None
    duration_ms: int | None
    output_ref: str | None


class SandboxSummaryRow(TypedDict):
    """The columns of a `SandboxSummary`."""

    run_id: str
    sandbox_id: str
    runtime: str
    status: str
    remote_run_id: str | None
    workspace_id: str | None
    container_id: str | None
    bundle_path: str | None
    shipped_at: datetime | None
    completed_at: datetime | None
    created_at: datetime
    updated_at: datetime


class ScoreSummaryRow(TypedDict):
    """The columns of a `ScoreSummary`."""

    id: str
    run_id: str
    node_id: str
    iteration: int
    attempt: int
    scorer_id: str
    scorer_name: str
    source: str
    score: float
    latency_ms: float | None
    duration_ms: float | None
    scored_at: datetime
    superseded_at: datetime | None
    reason: str | None


class FiguresRow(TypedDict):
    """The figures of a group of scores, divided by two to the power of ``exponent``; of a run where that is asked."""

    scorer_id: str
    scorer_name: str
    run_id: NotRequired[str]
    count: int
    min: float
    max: float
    exponent: int
    mean: float
    p50: float
    variance: float


class SentRow(TypedDict):
    """What a `SignalSent` tells of a signal."""

    seq: int
    signal_id: str | None
    received_at: datetime
