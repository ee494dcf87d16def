"""The vocabularies of the workflows domain, and its bounds that are no column's."""

from __future__ import annotations

from datetime import timedelta
from decimal import ROUND_HALF_EVEN, Context, Decimal
from typing import Literal, NamedTuple

from lastlight_state.db.valid import words
from lastlight_state.errors import InvalidValue

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


# Exact money: callers use a Decimal of dollars, the database holds whole picodollars (10^-12) in two integers.
#
# ``cost_micros`` are the whole micro-dollars, and ``cost_picos`` what is left below one: no sum of either can pass 64
# bits. The seed's column ``cost_usd`` is a float that mirrors both. Foreign rows have the float alone.

#: Picodollars of a micro-dollar, and micro-dollars of a dollar.
MILLION = 1_000_000
_TRILLION = Decimal(MILLION * MILLION)
#: Floats below this many dollars tell single picodollars, larger ones micro-dollars.
FINE = 1_000.0
#: The greatest float that counts as a cost: the most that an execution may report. Larger foreign values are ignored.
MOST_MIRRORED = MOST_REPORTED / MILLION
#: A decimal context of our own, wide enough for every float: the caller's context must not change results.
_WIDE = Context(prec=400, rounding=ROUND_HALF_EVEN, traps=[])


class Cost(NamedTuple):
    """An amount as two integers: the whole micro-dollars, and the picodollars below one."""

    micros: int
    picos: int


def cost_of(where: str, dollars: Decimal | float) -> Cost:
    """Return an amount in whole picodollars, rounded half to even. Raises `InvalidValue` if it cannot be stored.

    A float is the shortest decimal number that reads as it: 0.1 is a tenth.
    """
    if isinstance(dollars, bool) or not isinstance(dollars, Decimal | float | int):
        raise InvalidValue(where, f"expected a Decimal or a float, got {type(dollars).__name__}")
    if not isinstance(dollars, Decimal):
        dollars = Decimal(repr(dollars))
    if not dollars.is_finite() or dollars < 0:
        raise InvalidValue(where, "must be a finite amount of zero or more")
    if dollars > MOST_REPORTED // MILLION:
        raise InvalidValue(where, f"must be at most {MOST_REPORTED // MILLION} dollars")
    return _split(int(_WIDE.multiply(dollars, _TRILLION).to_integral_value(ROUND_HALF_EVEN, _WIDE)))


def dollars_of(micros: int, picos: int = 0) -> Decimal:
    """Return an amount of micro-dollars and picodollars in dollars; neither has a bound here, as both may be sums."""
    return _WIDE.divide(Decimal(micros * MILLION + picos), _TRILLION)


def mirrored(cost: Cost) -> float:
    """Return the nearest float in dollars, for the column that other programs read."""
    return float(dollars_of(*cost))


def stored_cost(micros: int | None, picos: int | None, mirror: float | None) -> Decimal | None:
    """Return the cost of a row in dollars: the exact amount, or else the float, rounded as the SQL of sums does."""
    if micros is not None:
        return dollars_of(micros, picos or 0)
    if mirror is None or abs(mirror) > MOST_MIRRORED:
        return None
    return dollars_of(0, round(mirror * 1e12)) if abs(mirror) < FINE else dollars_of(round(mirror * 1e6))


def _split(picos: int) -> Cost:
    return Cost(*divmod(picos, MILLION))
