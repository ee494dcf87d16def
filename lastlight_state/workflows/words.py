"""The vocabularies of the workflows domain, limits that belong to no single column, and exact money."""

from __future__ import annotations

from datetime import timedelta
from decimal import ROUND_HALF_EVEN, Context, Decimal
from typing import Literal, NamedTuple

from lastlight_state.db.valid import words
from lastlight_state.errors import InvalidValue

#: The time for which a new running run is left to its creator before others may take it.
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

#: The reasons of transitions that note an event of a question while the run's status stays.
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

#: The trigger type stored for an execution whose run has no trigger type, because the column is required.
UNKNOWN_TRIGGER = "unknown"
#: Statuses of runs that have not ended.
LIVE: tuple[RunStatus, ...] = ("queued", "running", "paused")
#: Statuses of runs that have ended.
TERMINAL: tuple[RunStatus, ...] = ("succeeded", "failed", "cancelled")
#: The waiting states of nodes.
WAITING_NODE: tuple[NodeState, ...] = ("waiting_approval", "waiting_person", "waiting_timer", "waiting_signal")

#: The most that an execution may report of each count, and of its cost in micro-dollars; no real execution uses more.
#: Greater values that other programs wrote count as nothing, because a few such rows would overflow every total.
MOST_REPORTED = 10**12

#: The most bytes of the summary of a phase, which is a part of the phase history.
SUMMARY = 2 * 1024


# Exact money: callers use a Decimal of dollars, the database holds whole picodollars (10^-12) in two integers.
#
# ``cost_micros`` are the whole micro-dollars, and ``cost_picos`` the rest below one micro-dollar: no sum of either can
# pass 64 bits. The original program's column ``cost_usd`` is a float that mirrors both. Rows of other programs have
# only the float.

#: The number of picodollars in a micro-dollar, and of micro-dollars in a dollar.
MILLION = 1_000_000
_TRILLION = Decimal(MILLION * MILLION)
#: Floats below this many dollars are read to the picodollar, greater floats to the micro-dollar.
FINE = 1_000.0
#: The greatest float that counts as a cost: the most that an execution may report. Greater stored values are ignored.
MOST_MIRRORED = MOST_REPORTED / MILLION
#: A separate decimal context, wide enough for every float: the caller's context must not change results.
_WIDE = Context(prec=400, rounding=ROUND_HALF_EVEN, traps=[])


class Cost(NamedTuple):
    """An amount of money as two integers: whole micro-dollars, and a remainder in picodollars."""

    micros: int
    picos: int


def cost_of(where: str, dollars: Decimal | float) -> Cost:
    """Return an amount in whole picodollars, rounded half to even. Raises `InvalidValue` if it cannot be stored.

    A float counts as the shortest decimal number that reads as that float: 0.1 is exactly a tenth.
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
    """Return micro-dollars and picodollars as one amount in dollars. Both may be sums of any size."""
    return _WIDE.divide(Decimal(micros * MILLION + picos), _TRILLION)


def float_dollars(cost: Cost) -> float:
    """Return a cost as the nearest float in dollars, for the column that other programs read."""
    return float(dollars_of(*cost))


def stored_cost(micros: int | None, picos: int | None, mirror: float | None) -> Decimal | None:
    """Return the cost of a row in dollars: the exact amount if stored, else the float, rounded as SQL sums round it.

    Returns None if the row has neither, or if the float is larger than `MOST_MIRRORED`.
    """
    if micros is not None:
        return dollars_of(micros, picos or 0)
    if mirror is None or abs(mirror) > MOST_MIRRORED:
        return None
    return dollars_of(0, round(mirror * 1e12)) if abs(mirror) < FINE else dollars_of(round(mirror * 1e6))


def _split(picos: int) -> Cost:
    return Cost(*divmod(picos, MILLION))
