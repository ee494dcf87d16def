"""Derive the state of a run from its stored facts (workflows W-97, W-98), without access to the database.

The stored status says what was decided; whether a running run is still driven depends on the time. The rules are those
of `claims.lists`: a lease that ends exactly now is alive, a run whose ``wake_at`` is in the future is left alone, and a
running run of a program without claims is abandoned when its row was not changed for 30 seconds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta

from lastlight_state.db.rows.records import Record
from lastlight_state.workflows.arguments import NodeRef
from lastlight_state.workflows.shared.workers import UNSERVED, WAITS_AFTER, Shortage
from lastlight_state.workflows.words import GRACE, LIVE, TERMINAL

# The records of `health`.


class Blocked(Record):
    """The event or question that a run waits for, by ``kind``.

    For ``approval`` and ``human_request``, ``id`` and ``node`` are those of the first of ``count`` pending questions;
    ``label`` is the label of its node, or else the name of the gate or node. For ``timer``, ``until`` is the time. For
    ``signal``, ``id`` is the signal's name and ``label`` the correlation id. For ``workflow_disabled``, ``id`` is the
    workflow. For ``worker``, nobody drives the run and ``id`` is its last owner; after a minute ``label`` says why no
    worker has taken it. The other kinds are ``operator`` and ``queue``.
    """

    kind: str
    id: str | None = None
    node: NodeRef | None = None
    label: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    count: int = 1


class RunState(Record):
    """The state of a run at ``computed_at``, derived from its stored ``status`` and other facts.

    The ``state`` of an ended run is its status; of a queued run ``queued`` or ``delayed``; of a paused run
    ``waiting_approval``, ``waiting_person``, ``waiting_timer``, ``waiting_signal`` or ``paused``; of a running run
    ``running``, ``offered`` (any worker may take it), ``stopping`` (a cancel was requested), ``stale`` (its owner is
    silent), ``busy`` (its lease is over, but its owner is alive) or ``orphaned`` (never claimed). It is
    ``waiting_worker`` if the run is offered or due and no worker has taken it for more than a minute, or if it is
    queued for that long and no worker serves it. It is ``unknown`` for a status of a newer version. ``unhealthy`` lists
    what is wrong; it is empty for a healthy run.
    """

    status: str
    state: str
    blocked: Blocked | None
    unhealthy: tuple[str, ...]
    computed_at: datetime


class UnhealthyRun(Record):
    """A live run with a problem; ``state.unhealthy`` lists what is wrong."""

    id: str
    workflow_name: str
    trigger_id: str
    started_at: datetime
    state: RunState


#: A callback that returns true if the owner of a claim is alive, as far as the caller can tell.
OwnerAlive = Callable[[str], bool]

#: The time in which a holder should end a run after a cancel request.
CANCEL_PATIENCE = timedelta(seconds=60)
#: The time that an execution in flight may go without a heartbeat.
EXECUTION_PATIENCE = timedelta(minutes=15)

#: States that are not replaced by ``waiting_worker``, because they say more.
_KEPT = ("stale", "orphaned", "stopping")
_GATE = (None, "gate")
_WAITING = {"approval": "waiting_approval", "human_request": "waiting_person"}


@dataclass(frozen=True)
class PendingQuestions:
    """The pending questions of one kind: the one asked first, their number, and the earliest expiry."""

    kind: str
    id: str
    node: NodeRef | None
    label: str | None
    asked_at: datetime
    expires_at: datetime | None
    count: int = 1
    first_expiry: datetime | None = None


@dataclass(frozen=True)
class Facts:
    """The stored facts of a run, read from one snapshot.

    ``updated_at`` is None unless the run is running without a lease. ``status_since`` is the time when the run got its
    status, ``disabled_since`` when its workflow was switched off. ``silent_since`` is the oldest last sign of life
    among its executions in flight.
    """

    status: str
    workflow_name: str
    started_at: datetime
    updated_at: datetime | None
    transition_seq: int = 1
    restart_count: int = 0
    max_restarts: int = 3
    claim_owner: str | None = None
    lease_expires_at: datetime | None = None
    wake_at: datetime | None = None
    pause_reason: str | None = None
    waiting_for: str | None = None
    correlation_id: str | None = None
    cancel_requested_at: datetime | None = None
    deadline_at: datetime | None = None
    queued_at: datetime | None = None
    status_since: datetime | None = None
    disabled_since: datetime | None = None
    silent_since: datetime | None = None
    app_version: str | None = None
    questions: tuple[PendingQuestions, ...] = ()
    #: The reason why no worker takes the run, if it `waits_for_worker`.
    shortage: Shortage | None = None

    @property
    def earliest(self) -> PendingQuestions | None:
        """Return the questions of the kind of which one was asked first; None without questions."""
        return min(self.questions, key=lambda question: (question.asked_at, question.id), default=None)


def derive(facts: Facts, now: datetime, owner_alive: OwnerAlive | None = None) -> RunState:
    """Return the state of a run at ``now``. Calls ``owner_alive`` only for an owner whose lease is over."""
    abandoned = facts.status == "running" and is_abandoned(facts, now)
    owner = facts.claim_owner if abandoned else None
    busy = owner is not None and owner_alive is not None and bool(owner_alive(owner))
    state = _state(facts, now, abandoned=abandoned, busy=busy)
    blocked = _blocker(facts, now, state)
    if facts.shortage is not None and not busy:
        state = state if state in _KEPT else "waiting_worker"
        since = free_since(facts, now)
        blocked = Blocked(kind="worker", id=facts.claim_owner, label=facts.shortage.told, since=since)
    return RunState(
        status=facts.status,
        state=state,
        blocked=blocked,
        unhealthy=tuple(word for word, is_so in _complaints(facts, now, abandoned and not busy) if is_so),
        computed_at=now,
    )


def free_since(facts: Facts, now: datetime) -> datetime | None:
    """Return the time since when a worker has been able to take or admit the run, or None if no worker can."""
    if facts.status not in LIVE or _ahead(facts.wake_at, now):
        return None
    if facts.status == "paused":
        return None if facts.questions else facts.wake_at
    if facts.status == "queued":
        left = None if facts.disabled_since is not None else facts.queued_at
    elif is_abandoned(facts, now):
        spent = facts.claim_owner is not None and facts.restart_count >= facts.max_restarts
        left = None if spent else facts.lease_expires_at or facts.updated_at
    else:
        free = facts.claim_owner is None and facts.lease_expires_at is None and not _is_foreign(facts)
        left = facts.updated_at if free else None
    return left if left is None or facts.wake_at is None else max(left, facts.wake_at)


def waits_for_worker(facts: Facts, now: datetime) -> bool:
    """True if the run has been ready for at least a minute and no worker has taken or admitted it."""
    since = free_since(facts, now)
    return since is not None and since <= now - WAITS_AFTER


def is_abandoned(facts: Facts, now: datetime) -> bool:
    """True if the last holder of a running run has been silent for so long that another process may take the run."""
    if _ahead(facts.wake_at, now):
        return False
    if facts.lease_expires_at is not None:
        return facts.lease_expires_at < now
    return _is_foreign(facts) and facts.updated_at is not None and facts.updated_at < now - GRACE


def _state(facts: Facts, now: datetime, *, abandoned: bool, busy: bool) -> str:
    if facts.status in TERMINAL:
        return facts.status
    if facts.status == "queued":
        return "delayed" if _ahead(facts.wake_at, now) else "queued"
    if facts.status == "paused":
        return _paused_state(facts)
    if facts.status == "running":
        return _running_state(facts, abandoned=abandoned, busy=busy)
    return "unknown"


def _paused_state(facts: Facts) -> str:
    if facts.pause_reason in ("timer", "signal"):
        return f"waiting_{facts.pause_reason}"
    question = facts.earliest if facts.pause_reason in _GATE else None
    return "paused" if question is None else _WAITING[question.kind]


def _running_state(facts: Facts, *, abandoned: bool, busy: bool) -> str:
    if facts.claim_owner is None and facts.lease_expires_at is None and not _is_foreign(facts):
        return "offered"
    if facts.cancel_requested_at is not None:
        return "stopping"
    if busy:
        return "busy"
    if abandoned:
        return "stale" if facts.claim_owner is not None or _is_foreign(facts) else "orphaned"
    return "running"


def _blocker(facts: Facts, now: datetime, state: str) -> Blocked | None:
    if state in ("queued", "delayed"):
        return _blocked_in_queue(facts, state)
    if facts.status == "paused":
        return _blocked_in_pause(facts)
    if facts.status == "running" and _ahead(facts.wake_at, now):
        return Blocked(kind="timer", since=facts.status_since, until=facts.wake_at)
    if state in ("offered", "stale", "orphaned"):
        since = facts.lease_expires_at or facts.status_since or facts.updated_at
        return Blocked(kind="worker", id=facts.claim_owner, since=since)
    return None


def _blocked_in_queue(facts: Facts, state: str) -> Blocked:
    if facts.disabled_since is not None:
        return Blocked(kind="workflow_disabled", id=facts.workflow_name, since=facts.disabled_since)
    if state == "delayed":
        return Blocked(kind="timer", since=facts.queued_at, until=facts.wake_at)
    return Blocked(kind="queue", since=facts.queued_at)


def _blocked_in_pause(facts: Facts) -> Blocked | None:
    since, until = facts.status_since, facts.wake_at
    if facts.pause_reason == "operator":
        return Blocked(kind="operator", since=since, until=until)
    if facts.pause_reason == "signal":
        return Blocked(kind="signal", id=facts.waiting_for, label=facts.correlation_id, since=since, until=until)
    question = facts.earliest if facts.pause_reason in _GATE else None
    if question is not None:
        return Blocked(
            kind=question.kind,
            id=question.id,
            node=question.node,
            label=question.label,
            since=question.asked_at,
            until=question.expires_at,
            count=sum(each.count for each in facts.questions),
        )
    return None if until is None else Blocked(kind="timer", since=since, until=until)


def _complaints(facts: Facts, now: datetime, lost: bool) -> tuple[tuple[str, bool], ...]:
    """Return pairs of a word of ``unhealthy`` and a bool, which is True if that word applies to the run.

    ``lost`` is true for an abandoned run, unless its owner is known to be alive.
    """
    live, running = facts.status in LIVE, facts.status == "running"
    free = facts.claim_owner is None and not _is_foreign(facts)  # taking it costs no restart
    return (
        ("lease_expired", lost and facts.claim_owner is not None),
        ("never_claimed", lost and facts.claim_owner is None),
        ("restart_limit", lost and not free and facts.restart_count >= facts.max_restarts),
        ("deadline_passed", live and _is_reached(facts.deadline_at, now)),
        ("gate_expired", live and any(_is_reached(each.first_expiry, now) for each in facts.questions)),
        ("cancel_ignored", running and _silent(facts.cancel_requested_at, now, CANCEL_PATIENCE)),
        ("execution_silent", running and _silent(facts.silent_since, now, EXECUTION_PATIENCE)),
        ("stuck_paused", facts.status == "paused" and _is_stuck(facts)),
        ("no_worker", facts.shortage is not None and facts.shortage.reason in UNSERVED),
    )


def _is_stuck(facts: Facts) -> bool:
    """True if a paused run can never wake up: it waits for no time, signal or question, and no operator paused it."""
    if facts.wake_at is not None:
        return False
    if facts.pause_reason in _GATE:
        return not facts.questions
    return facts.pause_reason == "timer" or (facts.pause_reason == "signal" and facts.waiting_for is None)


def _is_foreign(facts: Facts) -> bool:
    """True if another program created the run: it has no owner, lease or transition of ours (workflows W-49)."""
    return facts.claim_owner is None and facts.lease_expires_at is None and facts.transition_seq == 0


def _ahead(moment: datetime | None, now: datetime) -> bool:
    return moment is not None and moment > now


def _is_reached(moment: datetime | None, now: datetime) -> bool:
    return moment is not None and moment <= now


def _silent(last: datetime | None, now: datetime, patience: timedelta) -> bool:
    return last is not None and last < now - patience
