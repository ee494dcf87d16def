"""What becomes of a run when one of its questions is closed (workflows W-85).

Everything here happens under the run's lock, taken before: the questions that are left are counted after it, so two
people who close the last two at the same instant cannot leave the run paused with nothing pending.

How a question ends without an answer: cancelled by an operator, or expired; and what that means for its run.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, TypedDict

from lastlight_state.clock import iso_text
from lastlight_state.db.listeners import Listeners
from lastlight_state.db.unit import Unit
from lastlight_state.workflows import words
from lastlight_state.workflows.kernel import questions as open_questions, rows as run_rows, transitions
from lastlight_state.workflows.questions.rows import Q, Questions
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


def cancel(unit: Unit, questions: Questions[Q], question_id: str, *, by: str, reason: str, at: datetime) -> Q:
    """End a question without an answer; the run goes on as after one."""
    row, question = questions.locked(unit, question_id)
    if question.status == "cancelled":
        return question
    if question.status != "pending":
        raise questions.closed(question)
    run_rows.expect(row, words.LIVE)
    cancelled = questions.close(unit, question, "cancelled", by=by, at=at, closed_reason=reason)
    go_on(unit, row, {"at": at, "source": "operator", "actor": by})
    return cancelled


def expire(
    unit: Unit, listeners: Listeners, questions: Questions[Q], run_id: str, ids: Sequence[str], now: datetime
) -> list[str]:
    """Expire those of a run's questions that are due, and let the run fail or go on. The ids that changed."""
    row = run_rows.lock(unit, run_id)
    expired = questions.expire(unit, run_id, ids, now)
    if expired and row["status"] in words.LIVE:
        _after(unit, listeners, row, expired, {"at": now, "source": "system", "actor": None})
    return [question["id"] for question in expired]


def _after(unit: Unit, listeners: Listeners, row: dict[str, Any], expired: list[dict[str, Any]], said: Said) -> None:
    failing = next((question for question in expired if question["policy"] == "fail"), None)
    if failing is None:
        go_on(unit, row, said)
        return
    error = f"Expired: {failing['title']} was not answered by {iso_text(failing['expires_at'])}"
    fail(unit, listeners, row, error, reason="gate.expired", said=said)
