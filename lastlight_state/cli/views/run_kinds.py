"""The kinds of workflow records: runs, their executions, and questions to people."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from lastlight_state.cli.screen import Column
from lastlight_state.cli.views import pending
from lastlight_state.cli.views.kind import Filters, Kind, Store
from lastlight_state.db.rows.records import Page
from lastlight_state.errors import InvalidValue
from lastlight_state.lazy import Module, load

if TYPE_CHECKING:
    from lastlight_state.cli.views.listed_runs import ListedRun
    from lastlight_state.workflows import (
        ApprovalSummary,
        ClaimableRun,
        ExecutionSummary,
        HumanRequestSummary,
        Node,
        RunState,
        RunSummary,
        UnhealthyRun,
        WaitingWorkflow,
        WorkerStatus,
        WorkflowOverride,
        sentences,
    )
else:
    sentences = Module("lastlight_state.workflows.sentences")


def _first_line(error: str | None) -> str | None:
    """Return the first line of an error text."""
    return error and error.strip().partition("\n")[0]


def _answer_or_reason(found: ApprovalSummary) -> str | None:
    """Return a person's answer at a gate, or why the gate was closed without an answer."""
    if found.response is not None:
        return f"{found.answered_by or 'the answer'}: {found.response}"
    return found.closed_reason and sentences.reason_text(found.closed_reason)


RUNS: tuple[Column[ListedRun], ...] = (
    Column("ID", lambda one: one.id, is_id=True),
    Column("WORKFLOW", lambda one: one.workflow_name),
    Column("STATUS", lambda one: one.status),
    Column("PHASE", lambda one: one.current_phase, rank=2),
    Column("TRIGGER", lambda one: one.trigger_id, rank=1),
    Column("UPDATED", lambda one: one.updated_at, keep=True),
    Column("COST", lambda one: one.totals.cost_usd, right=True, rank=3),
    Column("WHY", lambda one: one.told, below=True),
)
EXECUTIONS: tuple[Column[ExecutionSummary], ...] = (
    Column("ID", lambda one: one.id, is_id=True),
    Column("SKILL", lambda one: one.skill),
    Column("OUTCOME", lambda one: one.outcome),
    Column("SESSION", lambda one: one.session_id, is_id=True, rank=4),
    Column("STARTED", lambda one: one.started_at, keep=True),
    Column(
        "SECONDS",
        lambda found: None if found.duration_ms is None else f"{found.duration_ms / 1000:.1f}",
        right=True,
        rank=2,
    ),
    Column("TURNS", lambda one: one.turns, right=True, rank=3),
    Column("COST", lambda one: one.cost_usd, right=True, rank=1),
    Column("ERROR", lambda found: _first_line(found.error), below=True),
)
APPROVALS: tuple[Column[ApprovalSummary], ...] = (
    Column("ID", lambda one: one.id, is_id=True),
    Column("RUN", lambda one: one.run_id, is_id=True),
    Column("GATE", lambda one: one.gate),
    Column("STATUS", lambda one: one.status),
    Column("BY", lambda one: one.answered_by),
    Column("ANSWERED", lambda one: one.answered_at, keep=True),
    Column("ASKED", lambda one: one.asked_at, keep=True, rank=1),
    Column("SUMMARY", lambda one: one.summary, below=True),
    Column("SAID", _answer_or_reason, below=True),
)
QUESTIONS: tuple[Column[pending.Waiting], ...] = (
    Column("ID", lambda one: one.id, is_id=True),
    Column("RUN", lambda one: one.run_id, is_id=True),
    Column("NODE", lambda one: one.node_id, rank=2),
    pending.WHAT,
    Column("ASKED", lambda one: one.asked_at, keep=True),
    Column("EXPIRES", lambda one: one.expires_at, keep=True, rank=1),
    pending.TEXT,
)
#: The columns of a run's requests, which are listed in every status.
ASKED: tuple[Column[HumanRequestSummary], ...] = (
    Column("ID", lambda one: one.id, is_id=True),
    Column("NODE", lambda one: one.node_id, rank=2),
    Column("KIND", lambda one: one.kind),
    Column("STATUS", lambda one: one.status),
    Column("BY", lambda one: one.answered_by),
    Column("ANSWERED", lambda one: one.answered_at, keep=True),
    Column("ASKED", lambda one: one.asked_at, keep=True, rank=1),
    Column("PROMPT", lambda one: one.prompt, below=True),
)


CLAIMABLE: tuple[Column[ClaimableRun], ...] = (
    Column("RUN", lambda one: one.run_id, is_id=True),
    Column("WORKFLOW", lambda one: one.workflow_name),
    Column("KIND", lambda one: one.kind),
    Column("LAST OWNER", lambda one: one.last_owner, rank=2),
    Column("SEEN", lambda one: one.seen_at, keep=True),
    Column("RESTARTS LEFT", lambda one: one.restarts_left, right=True, rank=1),
)
UNHEALTHY: tuple[Column[UnhealthyRun], ...] = (
    Column("ID", lambda one: one.id, is_id=True),
    Column("WORKFLOW", lambda one: one.workflow_name),
    Column("STATE", lambda one: one.state.state),
    Column("STARTED", lambda one: one.started_at, keep=True),
    Column("WHAT IS WRONG", lambda found: sentences.trouble_text(found.state.unhealthy), below=True),
)
WORKERS: tuple[Column[WorkerStatus], ...] = (
    Column("NAME", lambda one: one.name, keep=True),
    Column("HOST", lambda one: one.host, rank=3),
    Column("PID", lambda one: one.pid, right=True, rank=4),
    Column("STATE", lambda found: "gone" if found.is_gone else "there"),
    Column("SLOTS", lambda found: f"{len(found.run_ids)} of {found.slots}", right=True),
    Column("WORKFLOWS", lambda found: ", ".join(found.workflow_names)),
    Column("VERSIONS", lambda found: None if found.app_versions is None else ", ".join(found.app_versions), rank=2),
    Column("STARTED", lambda one: one.started_at, keep=True, rank=1),
    Column("SEEN", lambda one: one.seen_at, keep=True),
)
WAITING_WORKFLOWS: tuple[Column[WaitingWorkflow], ...] = (
    Column("WORKFLOW", lambda one: one.workflow_name),
    Column("RUNS", lambda one: one.runs, right=True),
    Column("SINCE", lambda one: one.since, keep=True),
    Column("WHY", lambda one: one.why, below=True),
)
NODES: tuple[Column[Node], ...] = (
    Column("NODE", lambda one: one.node_id, keep=True),
    Column("ITERATION", lambda one: one.iteration, right=True),
    Column("STATE", lambda one: one.state),
    Column("ATTEMPT", lambda one: one.last_attempt, right=True, rank=2),
    Column("LABEL", lambda one: one.label, rank=3),
    Column("WAITS FOR", lambda one: one.waiting_for, rank=1),
    Column("DUE", lambda one: one.wake_at, keep=True, rank=1),
    Column("UPDATED", lambda one: one.updated_at, keep=True),
)
OVERRIDES: tuple[Column[WorkflowOverride], ...] = (
    Column("WORKFLOW", lambda one: one.name),
    Column("ENABLED", lambda one: one.enabled),
    Column("BY", lambda one: one.updated_by, rank=1),
    Column("SINCE", lambda one: one.updated_at, keep=True),
    Column("REASON", lambda one: one.reason, below=True),
)


def _overrides(store: Store, filters: Filters) -> Page[Any]:
    filters.refuse("overrides", "status", "since", "run")
    return store.workflows.overrides.list(**filters.page_arguments)


def _runs(store: Store, filters: Filters) -> Page[Any]:
    filters.refuse("runs", "run")
    found = store.workflows.runs.list(
        statuses=filters.statuses,
        since=filters.since,
        until=filters.until,
        workflow_names=filters.workflows,
        repo=filters.repo,
        triggered_by=filters.by,
        **filters.page_arguments,
    )
    return _with_waits(store, found)


def _with_waits(store: Store, page: Page[RunSummary]) -> Page[Any]:
    """Add a sentence to each run of the page: what a live run waits for, or why a run failed."""
    w = store.workflows
    states = w.health.get_states([run.id for run in page.items if run.finished_at is None])
    errors = w.lookups.get_errors([run.id for run in page.items if run.status in ("failed", "cancelled")])
    why = {run_id: waits_because(state) for run_id, state in states.items()}
    listed = load("lastlight_state.cli.views.listed_runs").ListedRun
    told = {
        run.id: sentences.story_text(run.status, run.status_reason, errors.get(run.id), states.get(run.id), timed=False)
        for run in page.items
    }
    items = tuple(
        listed(**dict(run), waits_because=why.get(run.id), error=errors.get(run.id), told=told[run.id] or None)
        for run in page.items
    )
    return Page(items=items, next_page_token=page.next_page_token, damaged=page.damaged)


def waits_because(state: RunState) -> str | None:
    """Return why no worker takes the run. Return None if the run does not wait for a worker."""
    return state.blocked.label if state.blocked is not None and state.blocked.kind == "worker" else None


def _queue(store: Store, filters: Filters) -> Page[Any]:
    filters.refuse("the queue", "status", "since", "run")
    return _with_waits(store, store.workflows.queue.list(**filters.page_arguments))


def _workers(store: Store, filters: Filters) -> Page[Any]:
    filters.refuse("workers", "status", "since", "run")
    return store.workflows.workers.list(**filters.page_arguments)


def _claimable(store: Store, filters: Filters) -> Page[Any]:
    filters.refuse("claimable runs", "status", "since", "run")
    return store.workflows.claims.list_claimable(workflow_names=filters.workflows, **filters.page_arguments)


def _unhealthy(store: Store, filters: Filters) -> Page[Any]:
    filters.refuse("unhealthy runs", "status", "since", "run")
    return store.workflows.health.list_unhealthy(workflow_names=filters.workflows, **filters.page_arguments)


def _nodes(store: Store, filters: Filters) -> Page[Any]:
    filters.refuse("nodes", "since")
    states: Any = filters.statuses
    return store.workflows.nodes.list(filters.run("nodes"), states=states, **filters.page_arguments)


def _executions(store: Store, filters: Filters) -> Page[Any]:
    return store.workflows.executions.list(
        outcomes=filters.statuses, since=filters.since, run_id=filters.run_id, **filters.page_arguments
    )


def _approvals(store: Store, filters: Filters) -> Page[Any]:
    filters.refuse("approvals", "since")
    if filters.run_id is not None:
        if filters.statuses is not None:
            raise InvalidValue("--status", "must not be given together with --run: a run has few approvals")
        return store.workflows.approvals.list_for_run(filters.run_id, **filters.page_arguments)
    return store.workflows.approvals.list(statuses=filters.statuses, **filters.page_arguments)


def _questions(store: Store, filters: Filters) -> Page[Any]:
    filters.refuse("questions", "since")
    if filters.status not in (None, "pending"):
        raise InvalidValue(
            "--status", f"{filters.status!r:.80} is not listed: `show run` has them", permitted=("pending",)
        )
    return pending.page(store, filters.limit, filters.page_token, filters.run_id)


def _of_run(store: Store, run: Any) -> Mapping[str, Page[Any]]:
    return {
        "executions": store.workflows.executions.list(run_id=run.id),
        "approvals": store.workflows.approvals.list_for_run(run.id),
        "questions": store.workflows.human_requests.list_for_run(run.id),
    }


#: Kinds of records, by the word that ``ls`` takes.
KINDS = {
    "runs": Kind(
        "run",
        RUNS,
        _runs,
        "(no runs)",
        lambda store, key: store.workflows.runs.get(key),
        children=_of_run,
        by=("workflow", "repo", "by", "until"),
    ),
    "queue": Kind("queued run", RUNS, _queue, "(nothing is queued)"),
    "claimable": Kind("claimable run", CLAIMABLE, _claimable, "(no run may be taken)", by=("workflow",)),
    "unhealthy": Kind("unhealthy run", UNHEALTHY, _unhealthy, "(no unhealthy run on this page)", by=("workflow",)),
    "workers": Kind(
        "worker", WORKERS, _workers, "(no worker was seen)", lambda store, key: store.workflows.workers.get(key)
    ),
    "nodes": Kind("node", NODES, _nodes, "(no nodes)"),
    "executions": Kind(
        "execution",
        EXECUTIONS,
        _executions,
        "(no executions)",
        lambda store, key: store.workflows.executions.get(key),
    ),
    "approvals": Kind(
        "approval", APPROVALS, _approvals, "(no approvals)", lambda store, key: store.workflows.approvals.get(key)
    ),
    "overrides": Kind("override", OVERRIDES, _overrides, "(no workflow is switched)"),
    "questions": Kind(
        "question",
        QUESTIONS,
        _questions,
        "(nothing waits for a person)",
        lambda store, key: store.workflows.human_requests.get(key),
    ),
}

#: The columns of children, by their name in ``Kind.children``.
COLUMNS: Mapping[str, tuple[Column[Any], ...]] = {"executions": EXECUTIONS, "approvals": APPROVALS, "questions": ASKED}
