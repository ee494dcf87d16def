"""Rows of every kind, and plausible values of arguments, for calls that have one argument that nobody expects."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from lastlight_state.messaging import ConversationKey, MessageDraft
from lastlight_state.schedules import CronSpec
from lastlight_state.store import StateStore
from lastlight_state.workflows import Gate, NodeRef, PhaseEntry, Question, Trigger
from lastlight_state.workflows.arguments import ExecutionOptions, RunOptions

#: Arguments by name: the rows that `fill` makes, and words that are refused before anything else is looked at.
KNOWN: dict[str, Any] = {
    "run_id": "run-1", "workflow_name": "wf", "trigger": Trigger(type="cli", id="t-1"), "trigger_id": "t-1",
    "execution_id": "ex-1", "node": NodeRef("n-1"), "node_id": "n-1", "approval_id": "ap-1", "request_id": "hr-1",
    "gate": Gate("review", "Sure?", id="ap-2"), "by": "ana", "reason": "because", "owner": "worker-1",
    "entry": PhaseEntry("build", True), "session_id": "ms-1", "content": "hello", "role": "user",
    "spec": CronSpec("0 9 * * *", "wf"), "cron_name": "nightly", "pattern": "0 9 * * *",
    "target": "/nowhere/there.db", "folder": "/proc/nowhere/backup",
    "since": datetime(2026, 1, 1, tzinfo=UTC), "loop_id": "l-1", "iteration": 0, "limit": 5, "claim": None,
}  # fmt: skip


def fill(store: StateStore) -> None:
    """Rows of every kind, with the same ids in every database."""
    w = store.workflows
    w.runs.create("wf", trigger=KNOWN["trigger"], phase="p", scratch={"a": 1}, options=RunOptions(id="run-1"))
    w.nodes.put("run-1", NodeRef("n-1"), state="pending")
    w.executions.start("wf:skill", run_id="run-1", options=ExecutionOptions(id="ex-1"))
    w.loops.put("run-1", "l-1", iteration=0)
    w.approvals.create("run-1", Gate("gate", "Sure?", id="ap-1"))
    w.human_requests.create("run-1", Question(NodeRef("n-2"), "text", "Which?", id="hr-1"))
    w.overrides.put("wf", enabled=True, by="ana")
    w.workers.announce("worker-1", workflow_names=["wf"], slots=2, app_versions=["1.0"])
    store.messaging.sessions.create(ConversationKey("chat", "c", "u", "t"), session_id="ms-1")
    store.messaging.messages.append_many("ms-1", [MessageDraft("user", "hi"), MessageDraft("assistant", "yes")])
    store.schedules.crons.put("nightly", KNOWN["spec"])
    store.schedules.overrides.put("nightly", enabled=True)


class Undone(Exception):
    """Ends a transaction that nobody wants to keep."""


def undo() -> None:
    raise Undone
