"""The first lines about a run: its outcome and reason, who started it, its cost, and which commands apply to it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime
from typing import TYPE_CHECKING, Any

from lastlight_state.cli.screen import Screen
from lastlight_state.cli.views.money import money
from lastlight_state.clock import duration_text
from lastlight_state.workflows.sentences import state_text, troubles

if TYPE_CHECKING:
    from lastlight_state.workflows import RunState, UsageTotals, WorkflowRun


def lines(
    run: WorkflowRun,
    state: RunState,
    usage: UsageTotals,
    why: str | None,
    command: Callable[..., str],
    screen: Screen,
) -> Iterator[Any]:
    """Return sentences about a run that answer the usual first questions."""
    yield screen.heading(f"{run.workflow_name}, for {run.trigger_id}")
    yield from screen.wrapped_lines(_status(run, state, screen))
    if told := run.error or why:
        yield from screen.indented_lines(told.strip().partition("\n")[0])
    by = "" if run.triggered_by is None else f" by {run.triggered_by}"
    of = "" if run.trigger_type is None else f" ({run.trigger_type})"
    executions = "1 execution" if usage.executions == 1 else f"{usage.executions:,} executions"
    yield from screen.wrapped_lines(f"begun{by}{of}; cost {money(usage.cost_usd)} in {executions}")
    for told, what in _orders(run, state, command):
        yield f"{told}: {what}"
    yield ""


def _status(run: WorkflowRun, state: RunState, screen: Screen) -> str:
    now = state.computed_at
    if run.finished_at is not None:
        return f"{run.status} {screen.ago(run.finished_at, now)}, after {_length(run.started_at, run.finished_at)}"
    held = "" if run.claim_owner is None or state.state != "running" else f", driven by {run.claim_owner}"
    told = state_text(state)
    begun = f"began {screen.ago(run.started_at, now)}, in phase {run.current_phase}{held}"
    return f"{run.status}: {told}; {begun}" if told else f"{run.status}; {begun}"


def _length(start: datetime, end: datetime) -> str:
    return duration_text(max(end - start, end - end))


def _orders(run: WorkflowRun, state: RunState, command: Callable[..., str]) -> Iterator[tuple[str, str]]:
    """Yield the possible actions on a run, each with its command line."""
    if run.status == "failed":
        yield "begin it again", command("retry", run.id)
    elif state.blocked is not None and state.blocked.kind in ("approval", "human_request"):
        yield "answer it", command("inbox", "--run", run.id)
    elif state.blocked is not None and state.blocked.kind == "operator":
        yield "let it go on", command("run", run.id, "resume")
    for trouble in troubles(state.unhealthy)[:1]:
        if trouble.verb is not None:
            yield trouble.todo, command("run", run.id, *trouble.verb.split())
