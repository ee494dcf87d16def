"""How a question ends without an answer: cancelled by an operator, or expired; and what that means for its run."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from lastlight_state.clock import iso_text
from lastlight_state.db.listeners import Listeners
from lastlight_state.db.unit import Unit
from lastlight_state.workflows import gates, run_rows, words
from lastlight_state.workflows.gates import Said
from lastlight_state.workflows.questions import Q, Questions


def cancel(unit: Unit, questions: Questions[Q], question_id: str, *, by: str, reason: str, at: datetime) -> Q:
    """End a question without an answer; the run goes on as after one."""
    row, question = questions.locked(unit, question_id)
    if question.status == "cancelled":
        return question
    if question.status != "pending":
        raise questions.closed(question)
    run_rows.expect(row, words.LIVE)
    cancelled = questions.close(unit, question, "cancelled", by=by, at=at, closed_reason=reason)
    gates.go_on(unit, row, {"at": at, "source": "operator", "actor": by})
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
        gates.go_on(unit, row, said)
        return
    error = f"Expired: {failing['title']} was not answered by {iso_text(failing['expires_at'])}"
    gates.fail(unit, listeners, row, error, reason="gate.expired", said=said)
