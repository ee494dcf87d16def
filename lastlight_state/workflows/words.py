"""The vocabularies of the workflows domain, and its bounds that are no column's."""

from __future__ import annotations

from datetime import timedelta
from typing import Literal

from lastlight_state.db.valid import words

#: How long a new running run waits for its creator to claim it before others may take it.
GRACE = timedelta(seconds=30)

RunStatus = Literal["queued", "running", "paused", "succeeded", "failed", "cancelled"]

Outcome = Literal["running", "succeeded", "failed", "skipped", "deferred", "cancelled", "interrupted"]

NodeState = Literal[
    "pending",
    "running",
    "finished",
    "failed",
    "skipped",
    "cancelled",
    "waiting_approval",
    "waiting_person",
    "waiting_timer",
    "waiting_signal",
]

ApprovalStatus = Literal["pending", "approved", "rejected", "expired", "cancelled"]
ApprovalKind = Literal["approve", "reply"]
OnReject = Literal["fail", "resume"]
HumanStatus = Literal["pending", "answered", "cancelled", "expired"]
HumanKind = Literal["text", "confirm", "select", "form"]
OnExpiry = Literal["resume", "fail"]
AnsweredVia = Literal["person", "policy"]
TriggerType = Literal["webhook", "cron", "chat", "api", "cli"]
ActorType = Literal["github", "slack", "cli", "cron", "admin", "system"]

Source = Literal["engine", "operator", "responder", "supervisor", "system"]

#: Reasons of the notes about questions, of runs that stay as they are.
QUESTION_ASKED, QUESTION_ANSWERED = "question.asked", "question.answered"
QUESTION_EXPIRED, QUESTION_CANCELLED = "question.expired", "question.cancelled"
QUESTION_NOTES = (QUESTION_ASKED, QUESTION_ANSWERED, QUESTION_EXPIRED, QUESTION_CANCELLED)

RUN_STATUSES = words(RunStatus)
OUTCOMES = words(Outcome)
NODE_STATES = words(NodeState)
APPROVAL_STATUSES = words(ApprovalStatus)
APPROVAL_KINDS = words(ApprovalKind)
ON_REJECT = words(OnReject)
HUMAN_STATUSES = words(HumanStatus)
HUMAN_KINDS = words(HumanKind)
ON_EXPIRY = words(OnExpiry)
ANSWERED_VIA = words(AnsweredVia)
TRIGGER_TYPES = words(TriggerType)
ACTOR_TYPES = words(ActorType)

#: What is stored as the trigger type of an execution whose run has none; the column needs a word.
UNKNOWN_TRIGGER = "unknown"
#: Statuses of runs that have not ended.
LIVE: tuple[RunStatus, ...] = ("queued", "running", "paused")
#: Statuses of runs that have ended.
TERMINAL: tuple[RunStatus, ...] = ("succeeded", "failed", "cancelled")
#: States of nodes that wait.
WAITING_NODE: tuple[NodeState, ...] = ("waiting_approval", "waiting_person", "waiting_timer", "waiting_signal")

#: The most that an execution may report of each count, and of its cost in micro-dollars. Nobody uses or spends more.
#: What other programs wrote beyond it counts nothing, because a few such rows would overflow every total.
MOST_REPORTED = 10**12

#: The most bytes of the summary of a phase, which is a part of the phase history.
SUMMARY = 2 * 1024
