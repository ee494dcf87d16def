"""Argument groups: what travels together into the methods of this domain."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any, Literal

from lastlight_state.db.records import Record
from lastlight_state.db.repository import UNSET, UnsetType
from lastlight_state.workflows.words import (
    ActorType,
    ApprovalKind,
    HumanKind,
    NodeState,
    OnExpiry,
    OnReject,
    RunStatus,
    TriggerType,
)


@dataclass(frozen=True)
class Trigger:
    """What set a run off: an id (issue URL, thread id), its kind, the repository, and who."""

    id: str
    type: TriggerType | None = None
    owner: str | None = None
    repo: str | None = None
    issue_number: int | None = None
    actor: str | None = None
    actor_type: ActorType | None = None


@dataclass(frozen=True)
class Provenance:
    """Which definition and which code a run was started from, and its trace."""

    workflow_path: str | None = None
    workflow_hash: str | None = None
    vcs_type: str | None = None
    vcs_root: str | None = None
    vcs_revision: str | None = None
    app_version: str | None = None
    trace_id: str | None = None
    span_id: str | None = None


@dataclass(frozen=True)
class RunOptions:
    """The rarer facts of a new run. ``not_before`` delays a queued one, ``deadline_at`` only informs."""

    id: str | None = None
    status: Literal["queued", "running"] = "running"
    parent_run_id: str | None = None
    max_restarts: int = 3
    not_before: datetime | None = None
    deadline_at: datetime | None = None
    provenance: Provenance = field(default_factory=Provenance)


DEFAULTS = RunOptions()


@dataclass(frozen=True)
class RunFilter:
    """Which runs are meant. None filters nothing, an empty sequence admits nothing; ``since`` is inclusive."""

    statuses: Sequence[RunStatus] | None = None
    workflow_names: Sequence[str] | None = None
    repo: str | None = None
    trigger_id: str | None = None
    since: datetime | None = None


EVERY_RUN = RunFilter()


@dataclass(frozen=True)
class PhaseEntry:
    """A completed phase. ``at`` is now unless given; the summary has at most 2 KiB."""

    phase: str
    success: bool
    summary: str | None = None
    at: datetime | None = None


@dataclass(frozen=True)
class Failure:
    """Why something failed: a text of at most 16 KiB, details as JSON of at most 64 KiB, a short reason code."""

    error: str
    detail: Any = None
    stop_reason: str | None = None


@dataclass(frozen=True)
class Usage:
    """What an execution consumed, as running totals. ``cost_usd`` is exact to a micro-dollar."""

    turns: int | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_creation_input_tokens: int | None = None
    cache_read_input_tokens: int | None = None
    api_duration_ms: int | None = None
    cost_usd: Decimal | None = None
    model: str | None = None
    price_table: str | None = None


@dataclass(frozen=True)
class NodeRef:
    """A node of a run's graph, in one iteration of its loop."""

    node_id: str
    iteration: int = 0


@dataclass(frozen=True)
class Wait:
    """What a waiting node waits for: a time, a signal (of one correlation), or whichever comes first."""

    until: datetime | None = None
    signal: str | None = None
    correlation_id: str | None = None


@dataclass(frozen=True)
class NodePut:
    """A node as it is to stand: what is not given keeps its value (of a new node: pending, and nothing), None clears.

    ``wait`` comes with the waiting ``state`` that it belongs to; every other state clears it.
    """

    node: NodeRef
    state: NodeState | UnsetType = UNSET
    label: str | UnsetType | None = UNSET
    output_table: str | UnsetType | None = UNSET
    wait: Wait | UnsetType | None = UNSET


@dataclass(frozen=True)
class ExecutionOptions:
    """The rarer facts of a new execution. ``started_at`` is now unless given, ``details`` JSON of at most 64 KiB.

    ``cached``: its result was reused. ``vcs_pointer`` and ``work_dir`` say where its files are.
    """

    id: str | None = None
    started_at: datetime | None = None
    cached: bool = False
    vcs_pointer: str | None = None
    work_dir: str | None = None
    details: Any = None


@dataclass(frozen=True)
class Gate:
    """A question to a person: leave for an ``action``, or a free-text reply; ``on_reject``: what a no does to its run.

    ``action`` is JSON of at most 16 KiB; whoever approves it states its digest. While a gate is pending, no other of
    the same ``request_key`` can be opened in its run; by default the key is made of gate, node and iteration.
    """

    gate: str
    summary: str
    kind: ApprovalKind = "approve"
    requested_by: str | None = None
    node: NodeRef | None = None
    artifact: str | None = None
    expires_at: datetime | None = None
    action: Any = None
    on_reject: OnReject = "fail"
    id: str | None = None
    request_key: str | None = None


@dataclass(frozen=True)
class Question:
    """What a node asks a person, in a ``prompt`` of at most 16 KiB; ``on_expiry``: what silence does to its run.

    ``kind`` says what is answered: ``text``, ``confirm`` (a truth value), ``select`` (one of ``options``, JSON of at
    most 16 KiB), or ``form`` (JSON that fits ``schema``, a JSON Schema of at most 64 KiB). The ``id`` is made of run,
    node and iteration unless given.
    """

    node: NodeRef
    kind: HumanKind
    prompt: str
    options: Sequence[Any] | None = None
    schema: dict[str, Any] | bool | None = None
    expires_at: datetime | None = None
    on_expiry: OnExpiry = "resume"
    id: str | None = None


class Claim(Record):
    """The right to drive a run: valid while its epoch is the run's. Travels between processes as JSON."""

    run_id: str
    owner: str
    epoch: int
    lease: timedelta
    taken_at: datetime
    lease_expires_at: datetime
    restart_count: int = 0
    cancel_requested: bool = False
