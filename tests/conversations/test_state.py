"""How sessions stand: rules without a database, and one look at a real one."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from support.each import with_each

from lastlight_state import InvalidValue, StateStore
from lastlight_state.conversations import (
    Limits,
    NewMessage,
    NewSession,
    Provenance,
    exit_code,
    status_of_exit_code,
)
from lastlight_state.conversations.state import derive_state
from lastlight_state.testing import FrozenClock

NOW = datetime(2026, 2, 3, 12, tzinfo=UTC)
STEP = timedelta(milliseconds=1)
FACTS: dict[str, Any] = {
    "status": "running",
    "invocation_kind": None,
    "artifacts_path": None,
    "started_at": None,
    "last_message_at": None,
    "heartbeat_at": None,
    "artifact_contract": None,
    "artifact_verification": None,
    "message_count": 1,
}


def state(**facts: Any) -> dict[str, Any]:
    ages = {name: NOW - value if isinstance(value, timedelta) else value for name, value in facts.items()}
    return derive_state({**FACTS, **ages}, NOW, Limits())


FRESH = timedelta(seconds=90)


@with_each(
    ("facts", "health"),
    [
        ({"status": None}, "unknown"),
        ({"status": "pending", "heartbeat_at": FRESH}, "unknown"),
        ({"status": "cancelled"}, "ok"),
        ({}, "unknown"),
        ({"heartbeat_at": FRESH}, "running"),
        ({"heartbeat_at": -FRESH}, "running"),
        ({"heartbeat_at": FRESH + STEP, "last_message_at": STEP}, "process_dead"),
        ({"heartbeat_at": FRESH + STEP, "message_count": 0}, "orphaned"),
        ({"heartbeat_at": FRESH + STEP, "message_count": 0, "artifacts_path": "/a"}, "process_dead"),
        ({"last_message_at": timedelta(minutes=60)}, "running"),
        ({"last_message_at": timedelta(minutes=60) + STEP}, "idle"),
        ({"started_at": timedelta(hours=6), "last_message_at": timedelta(hours=9)}, "idle"),
        ({"started_at": timedelta(hours=6) + STEP}, "process_dead"),
        ({"started_at": timedelta(hours=6) + STEP, "message_count": 0}, "orphaned"),
        ({"started_at": timedelta(hours=12), "invocation_kind": "flow"}, "idle"),
        ({"started_at": timedelta(hours=12) + STEP, "invocation_kind": "flow"}, "process_dead"),
        ({"last_message_at": timedelta(days=1), "heartbeat_at": FRESH}, "stalled"),
    ],
)
def test_health_follows_signs_of_life(facts: dict[str, Any], health: str) -> None:
    """conversations CV-26: a limit that is met exactly is not passed."""
    assert state(**facts)["health"] == health


@with_each(
    ("facts", "expected"),
    [
        ({"status": "failed"}, ("critical", "danger")),
        ({"last_message_at": timedelta(days=1)}, ("critical", "danger")),
        ({"status": "timed_out"}, ("warning", "warning")),
        ({"last_message_at": timedelta(hours=2)}, ("warning", "warning")),
        ({"last_message_at": STEP}, ("info", "info")),
        ({"status": "completed_empty"}, ("neutral", "success")),
        ({"status": "cancelled"}, ("neutral", "neutral")),
        ({"status": None}, ("neutral", "neutral")),
    ],
)
def test_severity_is_that_of_the_worst(facts: dict[str, Any], expected: tuple[str, str]) -> None:
    """conversations CV-26."""
    found = state(**facts)
    assert (found["severity"], found["tone"]) == expected


@with_each(
    ("result", "delivery", "severity"),
    [
        (None, "unknown", "critical"),
        ({"status": "passed"}, "passed", "critical"),
        ({"status": "warning"}, "partial", "critical"),
        ({"status": "failed"}, "missing", "critical"),
        ({"status": "odd"}, "invalid", "critical"),
        ({"status": ["odd"]}, "invalid", "critical"),
    ],
)
def test_a_failed_session_may_have_delivered(result: Any, delivery: str, severity: str) -> None:
    """conversations CV-26: no axis contradicts another."""
    found = state(status="failed", artifact_contract={"files": []}, artifact_verification=result)
    assert (found["lifecycle"], found["health"], found["delivery"], found["severity"]) == (
        "failed", "ok", delivery, severity
    )  # fmt: skip


def test_statuses_have_exit_codes() -> None:
    """conversations CV-2: and codes have statuses."""
    for status, code in (("completed", 0), ("timed_out", 124), ("aborted", 130), ("cancelled", 143), ("failed", 1)):
        assert exit_code(status) == code  # type: ignore[arg-type]
        assert status_of_exit_code(code) == status
    assert exit_code("completed_empty") == 0
    with pytest.raises(InvalidValue):
        exit_code("running")


def test_a_stored_session_is_read_with_its_last_reason(every_backend: StateStore, frozen_clock: FrozenClock) -> None:
    """conversations CV-26: several at once, each by its own row."""
    c = every_backend.conversations
    flow = Provenance(invocation_kind="flow")
    c.sessions.create(NewSession("s", status="running", artifact_contract={"files": ["x"]}, provenance=flow))
    c.sessions.create(NewSession("t"))
    c.sessions.create(NewSession("empty", status="running"))
    c.lifecycle.heartbeat("empty", "w")
    branch = c.branches.create("s")
    c.branches.append(branch.id, [NewMessage("user", "hi")])
    c.lifecycle.transition("s", "running", branch_id=branch.id)
    c.lifecycle.record_verification("s", {"status": "warning", "missing": ["x"]})
    frozen_clock.advance(seconds=7 * 3_600)
    found = c.lifecycle.states(["s", "t", "nobody"])
    assert set(found) == {"s", "t"}
    s = found["s"]
    assert (s.health, s.delivery, s.severity) == ("idle", "partial", "warning")
    assert s.reason is not None
    assert (s.reason.reason_code, s.evaluated_at, s.policy_version) == ("run.started.ok", frozen_clock.now(), 1)
    assert (s.reason.seq, s.reason.branch_id) == (1, None)
    assert (found["t"].lifecycle, found["t"].reason, found["t"].last_sign) == ("unknown", None, None)
    assert c.lifecycle.state("s", limits=Limits(long_idle=timedelta(0))).health == "process_dead"
    assert c.lifecycle.state("empty").health == "orphaned"
    with pytest.raises(InvalidValue, match="session_id: "):
        c.lifecycle.state("")
