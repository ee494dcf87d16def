"""Records that the journal's calls return."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from lastlight_state.db.rows.records import Record


class Appended(Record):
    """The result of appending an event: its number, and ``created``, False if the event was stored before."""

    seq: int
    created: bool
    event_id: str | None
    occurred_at: datetime


class Event(Record):
    """An event of a run. ``seq`` starts at 0 and has no gaps within the run."""

    run_id: str
    seq: int
    type: str
    occurred_at: datetime
    node_id: str | None
    event_id: str | None
    payload: dict[str, Any]


class QueuedEvent(Record):
    """An event that was given to a queued writer. It has no number until it is stored."""

    run_id: str
    type: str
    occurred_at: datetime
    node_id: str | None
    event_id: str
    payload: dict[str, Any]


class WriterStats(Record):
    """Figures of a queued writer: how many events wait in its queue, and counts of the events that have left the queue.

    ``duplicates`` counts events that were stored already, and ``failed`` events that were given up. ``oldest_age`` is
    how long the first event in the queue has been waiting.
    """

    queued: int
    queued_bytes: int
    oldest_age: timedelta | None
    stored: int
    duplicates: int
    failed: int
    mirror_failures: int
    last_mirror_error: str | None


class SignalSent(Record):
    """The result of sending a signal: its number, and ``created``, False if the signal was stored before."""

    seq: int
    created: bool
    signal_id: str | None
    received_at: datetime


class Signal(Record):
    """A message that was sent into a run, and its consumer. ``seq`` starts at 0 and has no gaps within the run."""

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


class FrameSummary(Record):
    """A frame without its tree: ``encoding`` is how it is stored, ``full_bytes`` the length of its whole text."""

    run_id: str
    frame_no: int
    created_at: datetime
    encoding: str
    content_hash: str
    full_bytes: int
    note: str | None


class StoredFrame(FrameSummary):
    """A frame without its body."""

    mounted_task_ids: Any
    task_index: Any


class FrameBody(StoredFrame):
    """A frame as it is stored: ``body`` is its whole text, or the change since the frame before."""

    body: str


class Frame(FrameSummary):
    """A frame with its tree, and with the same tree as XML text for reading."""

    mounted_task_ids: tuple[str, ...]
    task_index: dict[str, Any] | None
    tree: Any
    xml: str


class FrameDelta(Record):
    """The change from one tree to another: operations ``set``, ``insert`` and ``remove``, applied in this order."""

    ops: tuple[dict[str, Any], ...]


class FrameCheck(Record):
    """The result of checking a run's frames: counts of all and of whole frames, and the broken ones with reasons."""

    frames: int
    anchors: int
    broken: tuple[tuple[int, str], ...]


class ToolCallSummary(Record):
    """One invocation of a tool, without its input, output and error. ``duration_ms`` is the latency."""

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


class ToolCall(ToolCallSummary):
    """One invocation of a tool, with its input, output and error."""

    input: Any
    output: Any
    error: Any


class SandboxSummary(Record):
    """A sandbox of a run, without its configuration."""

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


class Sandbox(SandboxSummary):
    """A sandbox of a run."""

    config: dict[str, Any]


class ScoreSummary(Record):
    """A scorer's score of one attempt of a task. ``superseded_at`` is when a rerun replaced it, else None."""

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


class Score(ScoreSummary):
    """A score with the scorer's input, the task's output, the expected output and the scorer's notes."""

    meta: Any
    input: Any
    output: Any
    expected: Any


class ScoreAggregate(Record):
    """Figures over the current scores of one scorer under one name, in all runs or in one run.

    ``p50`` is the median: for an even number the mean of the middle two. ``stddev`` is the standard deviation of the
    whole population.
    """

    scorer_id: str
    scorer_name: str
    run_id: str | None
    count: int
    mean: float
    min: float
    max: float
    p50: float
    stddev: float
