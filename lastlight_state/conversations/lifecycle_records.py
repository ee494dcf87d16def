"""Records of how a session lives: changes of its status, signs of life, how it stands, and entries of its feed."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Self

from lastlight_state.conversations import words
from lastlight_state.conversations.projections import StaleSessionRow
from lastlight_state.conversations.rows import SessionChangeRow, SessionTransitionRow
from lastlight_state.db.rows.records import Record


class Transition(Record):
    """A change of status: the ``seq``-th of its session. With ``branch_id`` it is the status of that branch."""

    id: str
    session_id: str
    branch_id: str | None
    seq: int
    previous_status: str | None
    status: str
    reason_code: str
    source: str
    actor: str | None
    created_at: datetime
    reason_summary: str | None
    evidence: Any

    @classmethod
    def of(cls, values: SessionTransitionRow) -> Self:
        return super().of(values)


class StaleSession(Record):
    """A running session without a recent sign of life. ``last_sign`` is the last one, or else its creation."""

    id: str
    owner: str | None
    last_sign: datetime

    @classmethod
    def of(cls, values: StaleSessionRow) -> Self:
        return super().of(values)


class NormalizedState(Record):
    """The standing of a session, derived when it is asked for.

    ``lifecycle`` is the status, or ``unknown``; ``outcome`` that of a session that has ended. ``last_sign`` is the last
    sign of life: heartbeat, message or start. ``reason`` is the last change of the session's status.
    """

    session_id: str
    lifecycle: str
    outcome: str | None
    health: words.Health
    delivery: words.DeliveryState
    severity: words.Severity
    tone: words.Tone
    last_sign: datetime | None
    reason: Transition | None
    evaluated_at: datetime
    policy_version: int


class Change(Record):
    """An entry of a session's feed: the ``seq``-th change, of which ``kind``, and what it is about.

    ``ord`` and ``count``: from which position on, and how many messages were appended.
    """

    session_id: str
    seq: int
    kind: str
    branch_id: str | None
    progression_id: str | None
    message_id: str | None
    ord: int | None
    count: int | None
    at: datetime
    details: dict[str, Any] | None

    @classmethod
    def of(cls, values: SessionChangeRow) -> Self:
        return super().of(values)
