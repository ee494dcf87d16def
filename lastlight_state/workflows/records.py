"""Records that several repositories of this domain return."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from typing import Any, ClassVar, Self

from lastlight_state.db.rows.records import Record, make_record
from lastlight_state.db.schema.columns import parse_time
from lastlight_state.workflows.arguments import NodeRef
from lastlight_state.workflows.repos import split_legacy

# The record of `nodes`.


class Node(Record):
    """A node of a run's graph in one iteration: its state, the number of its last attempt, and its wait.

    ``wake_at`` (a time), ``waiting_for`` (a signal) and ``correlation_id`` are None unless the node waits for them.
    """

    run_id: str
    node_id: str
    iteration: int
    state: str
    last_attempt: int
    output_table: str | None
    label: str | None
    wake_at: datetime | None
    waiting_for: str | None
    correlation_id: str | None
    updated_at: datetime

    @property
    def ref(self) -> NodeRef:
        """Return the `NodeRef` of the node, to pass to other calls."""
        return NodeRef(self.node_id, self.iteration)


class Loop(Record):
    """A loop of a run: its current iteration, counted from 0, and whether it is done."""

    run_id: str
    loop_id: str
    iteration: int
    done: bool
    updated_at: datetime


class Totals(Record):
    """Sums over a run's executions: the tokens reported so far, and the cost, exact to a micro-dollar."""

    executions: int = 0
    cost_usd: Decimal = Decimal(0)
    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_input_tokens: int = 0
    cache_creation_input_tokens: int = 0


NO_TOTALS = Totals()


class RunSummary(Record):
    """A run in a list: without large values, with the totals of its executions."""

    id: str
    workflow_name: str
    status: str
    status_reason: str | None
    trigger_id: str
    trigger_type: str | None
    owner: str | None
    repo: str | None
    issue_number: int | None
    current_phase: str
    phase_count: int
    started_at: datetime
    updated_at: datetime
    finished_at: datetime | None
    restart_count: int
    parent_run_id: str | None
    triggered_by: str | None
    cancel_requested_at: datetime | None
    totals: Totals = NO_TOTALS

    _computed: ClassVar[frozenset[str]] = frozenset({"totals"})

    @classmethod
    def of(cls, values: Any) -> Self:
        """Return the summary of a row, without totals: `runs.lists.summaries` adds them."""
        if values["owner"] is None:
            values["owner"], values["repo"] = split_legacy(None, values["repo"])
        values["totals"] = NO_TOTALS
        return make_record(cls, values)


class CompletedPhase(Record):
    """A phase in a run's history. In rows of other programs ``success``, ``summary`` and ``at`` may be None."""

    phase: str
    success: bool | None = None
    summary: str | None = None
    at: datetime | None = None

    @classmethod
    def of_entry(cls, entry: Any) -> Self:
        """Return the phase stored in an entry.

        A member of the wrong type becomes None; a name of the wrong type becomes empty.
        """
        entry = entry if isinstance(entry, dict) else {}
        phase, success, summary = entry.get("phase"), entry.get("success"), entry.get("summary")
        return make_record(
            cls,
            {
                "phase": phase if isinstance(phase, str) else "",
                "success": success if isinstance(success, bool) else None,
                "summary": summary if isinstance(summary, str) else None,
                "at": _time_of(entry.get("timestamp")),
            },
        )


class WorkflowRun(Record):
    """A run with everything that an engine needs to resume it.

    ``context`` never changes; ``scratch`` is the JSON that each phase hands to the next. ``node_statuses`` maps each
    node to the state of its highest iteration. `get` reads it with the run, and `ensure` for a run that exists; it is
    None for a run returned by a change. A run that another program wrote, without rows of nodes, has the map that this
    program stored.
    """

    id: str
    workflow_name: str
    trigger_id: str
    repo: str | None
    issue_number: int | None
    current_phase: str
    phase_history: tuple[CompletedPhase, ...]
    status: str
    context: Any
    scratch: Any
    node_statuses: dict[str, str] | None
    restart_count: int
    started_at: datetime
    updated_at: datetime
    finished_at: datetime | None
    owner: str | None
    trigger_type: str | None
    triggered_by: str | None
    trigger_actor_type: str | None
    run_key: str | None
    parent_run_id: str | None
    max_restarts: int
    transition_seq: int
    status_reason: str | None
    phase_count: int
    queued_at: datetime | None
    admitted_at: datetime | None
    wake_at: datetime | None
    pause_reason: str | None
    waiting_for: str | None
    correlation_id: str | None
    cancel_requested_at: datetime | None
    cancel_requested_by: str | None
    cancel_reason: str | None
    deadline_at: datetime | None
    claim_owner: str | None
    claim_epoch: int
    claimed_at: datetime | None
    heartbeat_at: datetime | None
    lease_expires_at: datetime | None
    workflow_path: str | None
    workflow_hash: str | None
    vcs_type: str | None
    vcs_root: str | None
    vcs_revision: str | None
    app_version: str | None
    trace_id: str | None
    span_id: str | None
    error: str | None
    error_detail: Any

    @classmethod
    def of(cls, values: Any) -> Self:
        values["owner"], values["repo"] = split_legacy(values["owner"], values["repo"])
        history = values["phase_history"]
        values["phase_history"] = tuple(map(CompletedPhase.of_entry, history if isinstance(history, list) else ()))
        return super().of(values)


class RunDetail(WorkflowRun):
    """The row of a run that was read with the states of its nodes. It becomes a `WorkflowRun`."""

    _consumed: ClassVar[frozenset[str]] = frozenset({"node_states"})

    @classmethod
    def of(cls, values: Any) -> Any:
        values["node_statuses"] = values.pop("node_states") or values["node_statuses"]
        return WorkflowRun.of(values)


class EnsuredRun(Record):
    """The run with a key, and ``created``: true if this call created it."""

    run: WorkflowRun
    created: bool


class RunProgress(Record):
    """A run's progress after a phase or a merge. ``scratch_bytes`` is None if the call did not change scratch."""

    phase: str
    phase_count: int
    scratch_bytes: int | None
    updated_at: datetime


class WorkflowOverride(Record):
    """The kill switch of one workflow: ``enabled`` or not, with time, person and reason of its last change."""

    name: str
    enabled: bool
    updated_at: datetime
    updated_by: str | None
    reason: str | None


def _time_of(text: Any) -> datetime | None:
    try:
        return parse_time(text)
    except (TypeError, ValueError):
        return None
