"""What becomes of a run when one of its questions is closed (workflows W-85).

Everything here happens under the run's lock, taken before: the questions that are left are counted after it, so two
people who close the last two at the same instant cannot leave the run paused with nothing pending.
"""

from __future__ import annotations

from typing import Any, TypedDict

from lastlight_state.db.listeners import Listeners
from lastlight_state.db.unit import Unit
from lastlight_state.workflows import open_questions, run_rows, transitions, words
from lastlight_state.workflows.records import WorkflowRun


class Said(TypedDict):
    """Who closed the question, and when."""

    at: Any
    source: words.Source
    actor: str | None


def go_on(unit: Unit, row: dict[str, Any], said: Said) -> WorkflowRun:
    """Offer a run to any worker if it was paused for gates and none that blocks it is left; else leave it as it is."""
    waits = row["status"] == "paused" and row["pause_reason"] in (None, "gate")
    if not waits or open_questions.blocking(unit, row["id"]):
        return run_rows.get(unit, row["id"])
    return transitions.move(unit, transitions.RESUME, row, "running", reason="run.resumed.gate", **said)


def fail(unit: Unit, listeners: Listeners, row: dict[str, Any], error: str, *, reason: str, said: Said) -> WorkflowRun:
    """Fail a live run because of a gate, and close everything else that hangs on it."""
    return transitions.end(unit, listeners, row, "failed", error=_cut(error), reason=reason, **said)


def _cut(text: str) -> str:
    """The text, as much of it as an error may hold."""
    data = text.encode()
    return text if len(data) <= words.ERROR else data[: words.ERROR].decode(errors="ignore")
