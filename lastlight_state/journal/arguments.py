"""Argument groups of the journal's calls."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import Any, Final, Literal

from lastlight_state.db.repository import UNSET, UnsetType
from lastlight_state.journal.models import SandboxStatus, ScoreHistory, ScoreSource, ToolStatus, WhenFull


class _Any(Enum):
    ANY = "ANY"

    def __repr__(self) -> str:
        return "ANY"


#: Default of a filter by correlation id: matches signals with any correlation id, and with none.
ANY: Final = _Any.ANY
AnyType = Literal[_Any.ANY]


@dataclass(frozen=True)
class NewEvent:
    """An event to append.

    ``at`` defaults to now; give it for replays. If an event with the same ``event_id`` is stored already, the append
    returns that event.
    """

    type: str
    payload: dict[str, Any] | None = None
    at: datetime | None = None
    event_id: str | None = None
    node_id: str | None = None


@dataclass(frozen=True)
class WriterOptions:
    """Options of a queued writer. Its queue holds at most ``max_queued`` events with ``max_queued_bytes`` of payloads.

    Up to ``max_batch`` events are stored together; a smaller batch waits ``linger`` seconds for more events. If the
    queue is full, an append waits for room for at most ``full_timeout`` seconds. With ``when_full="refuse"`` it is
    refused at once.
    """

    max_queued: int = 10_000
    max_queued_bytes: int = 32 * 1024 * 1024
    max_batch: int = 200
    linger: float = 0.02
    when_full: WhenFull = "wait"
    full_timeout: float = 30.0


@dataclass(frozen=True)
class EventFilter:
    """A filter of events by types (empty for all types), node and time: from ``since`` on, before ``until``."""

    types: Collection[str] = ()
    node_id: str | None = None
    since: datetime | None = None
    until: datetime | None = None


@dataclass(frozen=True)
class SignalFilter:
    """A filter of signals by name, correlation id and time of arrival.

    ``correlation_id=None`` matches signals without a correlation id. ``received_after`` also matches its own time.
    """

    signal_name: str | None = None
    correlation_id: str | AnyType | None = ANY
    received_after: datetime | None = None


@dataclass(frozen=True)
class TaskAttempt:
    """An attempt of a task, named by node, iteration and attempt number, and by its execution if it has one."""

    node_id: str
    iteration: int = 0
    attempt: int = 1
    execution_id: str | None = None


@dataclass(frozen=True)
class ToolOutcome:
    """The outcome of a tool call. ``output_ref`` names where an output is stored that is too large for this record."""

    status: ToolStatus
    output: Any = None
    error: Any = None
    output_ref: str | None = None
    at: datetime | None = None
    duration_ms: int | None = None


@dataclass(frozen=True)
class ToolCallFilter:
    """A filter of tool calls by node, iteration, attempt, tool and status."""

    node_id: str | None = None
    iteration: int | None = None
    attempt: int | None = None
    tool_name: str | None = None
    status: str | None = None


@dataclass(frozen=True)
class SandboxChanges:
    """The fields of a sandbox to change. None clears a field; a field that is not given keeps its value."""

    runtime: str | UnsetType = UNSET
    status: SandboxStatus | UnsetType = UNSET
    config: dict[str, Any] | UnsetType = UNSET
    remote_run_id: str | UnsetType | None = UNSET
    workspace_id: str | UnsetType | None = UNSET
    container_id: str | UnsetType | None = UNSET
    bundle_path: str | UnsetType | None = UNSET
    shipped_at: datetime | UnsetType | None = UNSET
    completed_at: datetime | UnsetType | None = UNSET


@dataclass(frozen=True)
class NewScore:
    """A scorer's score of one attempt of a task, to store.

    ``id`` is generated unless given; ``scored_at`` defaults to now. ``latency_ms`` is how long the task took,
    ``duration_ms`` how long the scorer took.
    """

    run_id: str
    node_id: str
    scorer_id: str
    scorer_name: str
    source: ScoreSource
    score: float
    iteration: int = 0
    attempt: int = 1
    reason: str | None = None
    meta: Any = None
    input: Any = None
    output: Any = None
    expected: Any = None
    latency_ms: float | None = None
    duration_ms: float | None = None
    scored_at: datetime | None = None
    id: str | None = None


@dataclass(frozen=True)
class ScoreFilter:
    """A filter of scores by runs, node, scorer, source and time: from ``since`` on, before ``until``.

    ``run_ids`` names up to 100 runs; an empty list matches nothing. With ``history="all"`` scores that a rerun has
    superseded match too.
    """

    run_ids: Collection[str] | None = None
    node_id: str | None = None
    scorer_id: str | None = None
    source: ScoreSource | None = None
    since: datetime | None = None
    until: datetime | None = None
    history: ScoreHistory = "current"
