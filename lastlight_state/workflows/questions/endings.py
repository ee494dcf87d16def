"""How a question ends without an answer, and what any end of a question does to its run (workflows W-85).

Callers hold the run's lock, and pending questions are counted after it was taken: two people who close the last two at
the same instant cannot leave the run paused with nothing pending.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from lastlight_state.clock import iso_text
from lastlight_state.db.declarations import limits_of
from lastlight_state.db.listeners import Listeners
from lastlight_state.db.unit import Unit
from lastlight_state.workflows import words
from lastlight_state.workflows.kernel import rows, transitions
from lastlight_state.workflows.kernel.questions import blocking
from lastlight_state.workflows.kernel.rows import LockedRun
from lastlight_state.workflows.kernel.transitions import Said
from lastlight_state.workflows.questions.rows import ExpiredRow, Q, QuestionRows
from lastlight_state.workflows.records import WorkflowRun
from lastlight_state.workflows.tables import RUNS, TRANSITIONS

_RUN, _TRANSITION = limits_of(RUNS), limits_of(TRANSITIONS)


def go_on(unit: Unit, row: LockedRun, said: Said, *, reason: str) -> WorkflowRun:
    """Offer a run to any worker if it was paused for gates and no question blocks it.

    Other runs stay as they are, and a note of them has this reason.
    """
    waits = row["status"] == "paused" and row["pause_reason"] in (None, "gate")
    if not waits or blocking(unit, row["id"]):
        return transitions.move(unit, transitions.QUESTION, row, row["status"], reason=reason, **said)
    return transitions.move(unit, transitions.RESUME, row, "running", reason="run.resumed.gate", **said)


def fail(unit: Unit, listeners: Listeners, row: LockedRun, error: str, *, reason: str, said: Said) -> WorkflowRun:
    """Fail a live run because of a question, and close everything else that belongs to it."""
    return transitions.end(unit, listeners, row, "failed", error=_cut(error, _RUN.error), reason=reason, **said)


def _cut(text: str, limit: int) -> str:
    """The beginning of the text that has at most so many bytes."""
    return text.encode()[:limit].decode(errors="ignore")


def cancel(unit: Unit, questions: QuestionRows[Q], question_id: str, *, by: str, reason: str, at: datetime) -> Q:
    """Cancel a question; its run goes on as after an answer."""
    row, question = questions.locked(unit, question_id)
    if question.status == "cancelled":
        return question
    if question.status != "pending":
        raise questions.closed(question)
    rows.expect(row, words.LIVE)
    cancelled = questions.close(unit, question, "cancelled", by=by, at=at, closed_reason=reason)
    said: Said = {"at": at, "source": "operator", "actor": by, "detail": questions.told(question, "cancelled")}
    go_on(unit, row, said, reason=words.QUESTION_CANCELLED)
    return cancelled


def expire(
    unit: Unit, listeners: Listeners, questions: QuestionRows[Q], run_id: str, ids: Sequence[str], now: datetime
) -> list[str]:
    """Expire the overdue among these questions of a run, which then fails or goes on. Returns the ids that changed."""
    row = rows.lock(unit, run_id)
    expired = questions.expire(unit, run_id, ids, now)
    if expired and row["status"] in words.LIVE:
        told = _cut("; ".join(questions.told(question, "expired") for question in expired), _TRANSITION.detail)
        _after(unit, listeners, row, expired, {"at": now, "source": "system", "actor": None, "detail": told})
    return [question["id"] for question in expired]


def _after(unit: Unit, listeners: Listeners, row: LockedRun, expired: list[ExpiredRow], said: Said) -> None:
    failing = next((question for question in expired if question["policy"] == "fail"), None)
    if failing is None:
        go_on(unit, row, said, reason=words.QUESTION_EXPIRED)
        return
    error = f"Expired: {failing['title']} was not answered by {iso_text(failing['expires_at'])}"
    fail(unit, listeners, row, error, reason="gate.expired", said=said)
