"""The state of a session (lifecycle, health, delivery), derived from its row and the current time, and never stored."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from lastlight_state.conversations.arguments import Limits
from lastlight_state.conversations.words import RUNNING, TERMINAL, DeliveryState, Health, SessionStatus, Severity, Tone
from lastlight_state.db import valid

#: The version of the rules in `derive_state`. Raise it when a rule's results change.
POLICY_VERSION = 1
#: The invocation kinds of sessions that may go longer without a message.
_LONG = ("flow", "fanout", "show-play", "engine")
_EXIT_CODES: Mapping[str, int] = {
    "completed": 0,
    "completed_empty": 0,
    "timed_out": 124,
    "aborted": 130,
    "cancelled": 143,
}
_DELIVERIES: Mapping[Any, DeliveryState] = {"passed": "passed", "warning": "partial", "failed": "missing"}

Facts = Mapping[str, Any]


def exit_code(status: SessionStatus) -> int:
    """Return the process exit code for a session that ended with this status: 0, 124, 130 or 143, else 1."""
    return _EXIT_CODES.get(valid.word("status", status, TERMINAL), 1)


def status_of_exit_code(code: int) -> SessionStatus:
    """Return the final session status for a process exit code."""
    known: dict[int, SessionStatus] = {0: "completed", 124: "timed_out", 130: "aborted", 143: "cancelled"}
    return known.get(code, "failed")


def derive_state(facts: Facts, now: datetime, limits: Limits) -> dict[str, Any]:
    """Derive the fields of a `NormalizedState` from a session's columns and its ``message_count``."""
    status = facts["status"]
    outcome = status if status in TERMINAL else None
    health, delivery = _health(facts, now, limits), _delivery(facts)
    severity, tone = _severity(outcome, health, delivery)
    return {
        "lifecycle": "unknown" if status is None else status,
        "outcome": outcome,
        "health": health,
        "delivery": delivery,
        "severity": severity,
        "tone": tone,
        "last_sign": _newest(facts["heartbeat_at"], _activity(facts)),
        "evaluated_at": now,
        "policy_version": POLICY_VERSION,
    }


def _health(facts: Facts, now: datetime, limits: Limits) -> Health:
    if facts["status"] in TERMINAL:
        return "ok"
    if facts["status"] != RUNNING:
        return "unknown"
    heartbeat, activity = facts["heartbeat_at"], _activity(facts)
    if heartbeat is not None and now - heartbeat > limits.heartbeat:
        return _dead(facts)
    if activity is None:
        return "unknown" if heartbeat is None else "running"
    quiet = now - activity
    if quiet <= limits.busy:
        return "running"
    if quiet <= _patience(facts, limits):
        return "idle"
    return _dead(facts) if heartbeat is None else "stalled"


def _patience(facts: Facts, limits: Limits) -> timedelta:
    return limits.long_idle if facts["invocation_kind"] in _LONG else limits.idle


def _dead(facts: Facts) -> Health:
    return "orphaned" if not facts["message_count"] and facts["artifacts_path"] is None else "process_dead"


def _delivery(facts: Facts) -> DeliveryState:
    if facts["artifact_contract"] is None:
        return "not_expected"
    if facts["artifact_verification"] is None:
        return "unknown"
    result = facts["artifact_verification"].get("status")
    return _DELIVERIES.get(result, "invalid") if isinstance(result, str) else "invalid"


def _severity(outcome: str | None, health: Health, delivery: DeliveryState) -> tuple[Severity, Tone]:
    """Return the severity and tone of a session's state. The first rule that applies decides."""
    gone = health in ("process_dead", "orphaned", "stalled")
    if outcome in ("failed", "aborted") or gone or delivery == "missing":
        return "critical", "danger"
    if outcome == "timed_out" or health == "idle" or delivery in ("partial", "invalid"):
        return "warning", "warning"
    if health == "running":
        return "info", "info"
    return "neutral", "success" if outcome in ("completed", "completed_empty") else "neutral"


def _activity(facts: Facts) -> datetime | None:
    return _newest(facts["last_message_at"], facts["started_at"])


def _newest(*times: datetime | None) -> datetime | None:
    return max((time for time in times if time is not None), default=None)
