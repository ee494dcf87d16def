"""Runs as rows of pages: each with its state, and in one line what it waits for, what is wrong, or why it failed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from lastlight_state import View as Moment
from lastlight_state.workflows import RunState, RunSummary, WorkflowRun
from lastlight_state.workflows.sentences import story_text, troubles, waits_text
from lastlight_state.workflows.words import LIVE

#: A row of a list of runs.
Told = dict[str, Any]


def told_runs(moment: Moment, runs: Iterable[RunSummary], now: datetime) -> list[Told]:
    """Return the runs as rows. Their states and errors take a few statements for all."""
    found = list(runs)
    states = moment.workflows.health.get_states([run.id for run in found if run.status in LIVE])
    errors = moment.workflows.lookups.get_errors([run.id for run in found if run.status in ("failed", "cancelled")])
    return [_row(run, states.get(run.id), errors.get(run.id), now) for run in found]


def _row(run: RunSummary, state: RunState | None, error: str | None, now: datetime) -> Told:
    return {
        **run.model_dump(),
        "state": run.status if state is None else state.state,
        "error": error,
        "story": story_text(run.status, run.status_reason, error, state) or None,
        "took_ms": _milliseconds(run.started_at, run.finished_at or now),
        "well": state is None or not state.unhealthy,
        "waits": None if state is None or state.blocked is None else state.blocked.kind,
    }


def told_run(run: WorkflowRun, state: RunState, error: str | None, now: datetime) -> Told:
    """Return what the head of a page of a run says beside its record."""
    return {
        "story": run.error or error if state.blocked is None else waits_text(state.blocked, now),
        "took_ms": _milliseconds(run.started_at, run.finished_at or now),
        "troubles": [trouble._asdict() for trouble in troubles(state.unhealthy)],
    }


def _milliseconds(start: datetime, end: datetime) -> int:
    return max(int((end - start).total_seconds() * 1000), 0)


def questions(moment: Moment, most: int) -> list[Told]:
    """Return what waits for a person, the oldest first, of gates and requests together at most so many."""
    w = moment.workflows
    gates = w.approvals.list_pending(order="oldest", limit=most).items
    requests = w.human_requests.list_pending(order="oldest", limit=most).items
    found: Sequence[Told] = [
        *({**gate.model_dump(), "where": "gates", "name": gate.gate, "text": gate.summary} for gate in gates),
        *({**one.model_dump(), "where": "requests", "name": one.node_id, "text": one.prompt} for one in requests),
    ]
    return sorted(found, key=lambda one: (one["asked_at"], one["id"]))[:most]
