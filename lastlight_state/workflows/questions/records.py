"""The base of the records of both kinds of question, and the rule by which a question reads as expired."""

from __future__ import annotations

from datetime import datetime
from typing import Any, TypedDict, TypeVar

from lastlight_state.db.rows.records import Record


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


class PendingRow(TypedDict):
    """What decides whether a question has expired."""

    status: str
    expires_at: datetime | None


class AskedRow(PendingRow):
    """The columns of an `AskedQuestion`."""

    id: str
    run_id: str
    kind: str
    node_id: str | None
    iteration: int
    blocks_run: bool
    asked_at: datetime
    answered_at: datetime | None
    answered_by: str | None
    closed_reason: str | None


AskedT = TypeVar("AskedT", bound=PendingRow)


def as_of(values: AskedT, now: datetime) -> AskedT:
    """Return the values of a question as they read at ``now``: an overdue question reads as expired."""
    expires_at = values["expires_at"]
    if values["status"] != "pending" or expires_at is None or expires_at > now:
        return values
    read: Any = {**values, "status": "expired"}
    if "closed_reason" in read:
        read["closed_reason"] = "gate.expired"
    expired: AskedT = read
    return expired
