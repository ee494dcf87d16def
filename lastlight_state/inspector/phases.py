"""Phases of a run as landmarks in a transcript: during which phase was each entry written?"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from lastlight_state import View as Moment
from lastlight_state.inspector.entries import Entry
from lastlight_state.workflows import WorkflowRun

#: Most executions of a run that are read to find when an agent was running.
MOST_EXECUTIONS = 500

#: A phase: name, start, end, success, and its own summary.
Phase = dict[str, Any]


def of_run(run: WorkflowRun | None) -> list[Phase]:
    """Return the phases of a run in order. Each starts where the one before ended."""
    if run is None:
        return []
    found: list[Phase] = []
    start = run.started_at
    for done in run.phase_history:
        found.append(
            {"phase": done.phase, "start": start, "end": done.at, "success": done.success, "summary": done.summary}
        )
        start = start if done.at is None else max(start, done.at)
    if not found or run.current_phase != found[-1]["phase"]:
        phase = {"phase": run.current_phase, "start": start, "end": run.finished_at}
        found.append({**phase, "success": None, "summary": None})
    return found


def of_agent(moment: Moment, session_id: str, run_id: str | None) -> list[Phase]:
    """Return the phases of a run during which the agent's session was running."""
    if run_id is None:
        return []
    workflows = moment.workflows
    done = workflows.executions.list(run_id=run_id, limit=MOST_EXECUTIONS).items
    own = [one for one in done if one.session_id == session_id]
    if not own:
        return []
    first, ends = min(one.started_at for one in own), [one.finished_at for one in own]
    last = None if None in ends else max(end for end in ends if end is not None)
    return [one for one in of_run(workflows.runs.find(run_id)) if _overlaps(one, first, last)]


def _overlaps(phase: Phase, first: datetime, last: datetime | None) -> bool:
    """True if the phase overlaps the time from ``first`` to ``last``."""
    return (phase["end"] is None or phase["end"] >= first) and (last is None or phase["start"] <= last)


def mark_phases(said: Sequence[Entry], phases: Sequence[Phase]) -> list[Entry]:
    """Return the entries, with the phase's number added as ``phase`` to the first entry of each phase."""
    starts = [phase["start"] for phase in phases]
    found: list[Entry] = []
    before: int | None = None
    for one in said:
        at = one["at"]
        number = max(bisect_right(starts, at) - 1, 0) if starts and isinstance(at, datetime) else before
        found.append(one if number == before else {**one, "phase": number})
        before = number
    return found
