"""The rows of the tables of journal, written by ``make docs`` from the models. JSON is given as text."""

from __future__ import annotations

from datetime import datetime
from typing import Any, TypedDict


class RunSequenceRow(TypedDict):
    """A row of ``run_sequences``."""

    run_id: str
    stream: str
    next_seq: int


class RunEventRow(TypedDict):
    """A row of ``run_events``."""

    run_id: str
    seq: int
    type: str
    occurred_at: datetime
    node_id: str | None
    event_id: str | None
    payload: Any


class RunSignalRow(TypedDict):
    """A row of ``run_signals``."""

    run_id: str
    seq: int
    signal_name: str
    correlation_id: str | None
    received_at: datetime
    received_by: str | None
    signal_id: str | None
    consumed_at: datetime | None
    consumed_by: str | None
    payload: Any


class RunFrameRow(TypedDict):
    """A row of ``run_frames``."""

    run_id: str
    frame_no: int
    created_at: datetime
    encoding: str
    content_hash: str
    full_bytes: int
    note: str | None
    mounted_task_ids: Any
    task_index: Any
    body: str


class ToolCallRow(TypedDict):
    """A row of ``tool_calls``."""

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
    input: Any
    output: Any
    error: Any


class SandboxRow(TypedDict):
    """A row of ``sandboxes``."""

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
    config: Any


class ScoreRow(TypedDict):
    """A row of ``scores``."""

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
    meta: Any
    input: Any
    output: Any
    expected: Any
