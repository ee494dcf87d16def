"""Runs and crons as rows of lists: each with its state, and one line that states what is wrong or what it waits for."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any

from lastlight_state import View as Moment
from lastlight_state.clock import ago
from lastlight_state.schedules import CronHealth, CronSummary
from lastlight_state.workflows import RunState, RunSummary, WorkflowRun
from lastlight_state.workflows.sentences import story_text, troubles, waits_text
from lastlight_state.workflows.words import LIVE

#: A row of a list.
Told = dict[str, Any]
#: How long after its due time a cron that no scheduler has taken counts as overdue.
LATE = timedelta(minutes=1)


def told_runs(moment: Moment, runs: Iterable[RunSummary], now: datetime) -> list[Told]:
    """Convert runs to rows of a list. The states and errors of all runs are read by a few statements."""
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
    """Return the heading data of a run's page: what the run waits for or failed with, its duration and its troubles."""
    return {
        "story": run.error or error if state.blocked is None else waits_text(state.blocked, now),
        "took_ms": _milliseconds(run.started_at, run.finished_at or now),
        "troubles": [trouble._asdict() for trouble in troubles(state.unhealthy)],
    }


def _milliseconds(start: datetime, end: datetime) -> int:
    return max(int((end - start).total_seconds() * 1000), 0)


def questions(moment: Moment, most: int) -> list[Told]:
    """Return the pending gates and requests together, oldest first, at most ``most``."""
    w = moment.workflows
    gates = w.approvals.list_pending(order="oldest", limit=most).items
    requests = w.human_requests.list_pending(order="oldest", limit=most).items
    found: Sequence[Told] = [
        *({**gate.model_dump(), "where": "gates", "name": gate.gate, "text": gate.summary} for gate in gates),
        *({**one.model_dump(), "where": "requests", "name": one.node_id, "text": one.prompt} for one in requests),
    ]
    return sorted(found, key=lambda one: (one["asked_at"], one["id"]))[:most]


def told_crons(moment: Moment, crons: Collection[CronSummary], now: datetime) -> list[Told]:
    """Convert crons to rows, with the outcome of their last fires, and one line on why a cron does not run."""
    health = moment.schedules.fires.health([one.name for one in crons])
    return [_cron_row(moment, one, health[one.name], now) for one in crons]


def _cron_row(moment: Moment, cron: CronSummary, health: CronHealth, now: datetime) -> Told:
    told, error = [], None
    if cron.retired_at is not None or not cron.effective_enabled:
        off = "switched off" if cron.retired_at is None else "no program defines it any more"
        return {**cron.model_dump(), "health": health, "story": off, "error": None, "well": True}
    if cron.next_run_at is not None and cron.next_run_at <= now - LATE:
        told.append(f"due {ago(cron.next_run_at, now)}, and no scheduler has taken it")
    if health.failure_streak and health.latest is not None:
        count = "its last fire" if health.failure_streak == 1 else f"its last {health.failure_streak} fires"
        told.append(f"{count} ended {health.latest.status}")
        error = _error_of(moment, health)
    return {**cron.model_dump(), "health": health, "story": "; ".join(told) or None, "error": error, "well": not told}


def _error_of(moment: Moment, health: CronHealth) -> str | None:
    """Return the first line of the error of a cron's newest fire."""
    latest = None if health.latest is None else moment.schedules.fires.find(health.latest.id)
    if latest is None:
        return None
    told = latest.error.get("message") if isinstance(latest.error, dict) else latest.error
    return next(iter(str(told or latest.note or "").splitlines()), None)
