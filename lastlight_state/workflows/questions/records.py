"""The base of the records of both kinds of question, and the rule by which a question reads as expired."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Protocol, TypeVar

from lastlight_state.db.rows.records import Record, with_values


class AskedQuestion(Record):
    """A question of a run to a person.

    ``answered_by`` and ``answered_at`` say who answered (or cancelled) and when; ``closed_reason`` says why a question
    ended without an answer. A question past ``expires_at`` reads as ``expired``, even before a sweep has stored that.
    """

    id: str
    run_id: str
    status: str
    kind: str
    node_id: str | None
    iteration: int
    blocks_run: bool
    asked_at: datetime
    expires_at: datetime | None
    answered_at: datetime | None
    answered_by: str | None
    closed_reason: str | None


class ExpiringQuestion(Protocol):
    """What decides whether a question has expired."""

    @property
    def status(self) -> str: ...

    @property
    def expires_at(self) -> datetime | None: ...


AskedT = TypeVar("AskedT", bound=ExpiringQuestion)


def as_of(question: AskedT, now: datetime) -> AskedT:
    """Return a question as it reads at this time: an overdue one has expired."""
    expires_at = question.expires_at
    if question.status != "pending" or expires_at is None or expires_at > now:
        return question
    reads = {"status": "expired"}
    if hasattr(question, "closed_reason"):
        reads["closed_reason"] = "gate.expired"
    record: Any = question
    expired: AskedT = with_values(record, **reads)
    return expired
