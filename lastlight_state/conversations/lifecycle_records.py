"""Records of a session's lifecycle: status changes, stale sessions, derived states, and feed entries."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from lastlight_state.conversations import words
from lastlight_state.db.rows.records import Record


class Transition(Record):
    """Status change number ``seq`` of a session. If ``branch_id`` is set, it changed the status of that branch."""

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


class StaleSession(Record):
    """A running session without a recent sign of life. ``last_sign`` is its last sign, or its time of creation."""

    id: str
    owner: str | None
    last_sign: datetime


class NormalizedState(Record):
    """The state of a session, derived from its row when it is requested.

    ``lifecycle`` is the status, or ``unknown``; ``outcome`` is the final status, None before the end. ``last_sign`` is
    the time of the last sign of life: heartbeat, message or start. ``reason`` is the last status change.
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
    """Entry number ``seq`` of a session's feed: the ``kind`` of the change, and the ids of the changed objects.

    ``ord`` is the first position affected, ``count`` the number of messages that were appended or removed.
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
