"""Argument groups: frozen dataclasses for values that methods of this domain take together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any, Literal

from lastlight_state.db.repository import UNSET, UnsetType
from lastlight_state.db.rows.records import Record
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
    """The cause of a run: an id (issue URL, thread id), its kind, the repository, and the actor."""

    id: str
    type: TriggerType | None = None
    owner: str | None = None
    repo: str | None = None
    issue_number: int | None = None
    actor: str | None = None
    actor_type: ActorType | None = None


@dataclass(frozen=True)
class Provenance:
    """The workflow definition and the code that a run was started from, and its trace."""

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
    """Optional facts of a new run.

    ``offered`` lets any worker take the run at once. Without it, other processes leave a running run to its creator
    for 30 seconds. A queued run refuses ``offered``, because its admission offers it.
    ``not_before`` delays a queued or offered run. ``deadline_at`` is shown, not enforced.
    """

    id: str | None = None
    status: Literal["queued", "running"] = "running"
    offered: bool = False
    parent_run_id: str | None = None
    max_restarts: int = 3
    not_before: datetime | None = None
    deadline_at: datetime | None = None
    provenance: Provenance = field(default_factory=Provenance)


@dataclass(frozen=True)
class RunFilter:
    """A filter of runs to count. It keeps runs that started at ``since`` or later, and before ``until``.

    A field that is None does not filter; an empty sequence matches no run.
    """

    statuses: Sequence[RunStatus] | None = None
    workflow_names: Sequence[str] | None = None
    repo: str | None = None
    trigger_id: str | None = None
    since: datetime | None = None
    until: datetime | None = None


@dataclass(frozen=True)
class PhaseEntry:
    """A completed phase. ``at`` is now unless given; the summary has at most 2 KiB."""

    phase: str
    success: bool
    summary: str | None = None
    at: datetime | None = None


@dataclass(frozen=True)
class Failure:
    """The cause of a failure: a text (at most 16 KiB), details as JSON (at most 64 KiB), a short reason code."""

    error: str
    detail: Any = None
    stop_reason: str | None = None


@dataclass(frozen=True)
class Usage:
    """The usage of an execution, as running totals. ``cost_usd`` is exact to a picodollar, also when it is a float.

    A report has at most 10^12 of each count, and at most a million dollars. ``input_includes_cache_reads`` is true if
    the provider counts tokens read from a cache as input, too; totals then count them once. The flag is stored with
    the tokens of the last report that had any.
    """

    turns: int | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_creation_input_tokens: int | None = None
    cache_read_input_tokens: int | None = None
    api_duration_ms: int | None = None
    cost_usd: Decimal | float | None = None
    model: str | None = None
    price_table: str | None = None
    input_includes_cache_reads: bool = False


@dataclass(frozen=True)
class NodeRef:
    """A node of a run's graph, in one iteration of its loop."""

    node_id: str
    iteration: int = 0


@dataclass(frozen=True)
class LoopStep:
    """The iteration of a loop that a phase completes. After the phase, the loop moves to its next iteration."""

    loop_id: str
    iteration: int


@dataclass(frozen=True)
class Wait:
    """The wait of a node: for a time, a signal (with a correlation id), or the first of both."""

    until: datetime | None = None
    signal: str | None = None
    correlation_id: str | None = None


@dataclass(frozen=True)
class NodePut:
    """A node to create or change. Fields that are not given keep their values; None clears a field.

    A new node is pending by default. ``wait`` needs the waiting ``state`` that it belongs to; every other state clears
    it.
    """

    node: NodeRef
    state: NodeState | UnsetType = UNSET
    label: str | UnsetType | None = UNSET
    output_table: str | UnsetType | None = UNSET
    wait: Wait | UnsetType | None = UNSET


@dataclass(frozen=True)
class ExecutionOptions:
    """Optional facts of a new execution. ``started_at`` is now unless given; ``details`` is JSON of at most 64 KiB.

    ``cached`` is true if an earlier result was reused. ``vcs_pointer`` and ``work_dir`` say where the execution's files
    are.
    """

    id: str | None = None
    started_at: datetime | None = None
    cached: bool = False
    vcs_pointer: str | None = None
    work_dir: str | None = None
    details: Any = None


@dataclass(frozen=True)
class Gate:
    """A gate to open: a person approves or rejects (an ``action``, if given), or writes a reply.

    ``on_reject`` says what a rejection does to the run. ``action`` is JSON of at most 16 KiB; an approval must name its
    digest, a rejection need not. ``expires_at`` must lie in the future. A run has at most one pending gate for each
    ``request_key``, which by default is made of gate, node and iteration.
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
    """A question of a node to a person, with a ``prompt`` of at most 16 KiB.

    ``kind`` is the kind of answer: ``text``, ``confirm`` (True or False), ``select`` (one of ``options``, JSON of at
    most 16 KiB) or ``form`` (JSON that fits ``schema``, a JSON Schema of draft 2020-12, at most 64 KiB, whose
    references stay inside it). ``on_expiry`` says what happens to the run if nobody answers. The ``id`` is made of run,
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
    """The right to drive a run, valid while its epoch equals the run's. It can be sent to another process as JSON.

    ``left_in_flight`` is how many executions an earlier holder had not ended when the run was taken.
    """

    run_id: str
    owner: str
    epoch: int
    lease: timedelta
    taken_at: datetime
    lease_expires_at: datetime
    restart_count: int = 0
    cancel_requested: bool = False
    left_in_flight: int = 0
