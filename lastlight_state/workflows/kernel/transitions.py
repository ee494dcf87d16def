"""The only code that changes a run's status (workflows W-11, W-18).

Every change is a compare-and-set on the status that also counts ``transition_seq`` up and writes the
``run_transitions`` row of that number, so the newest transition always equals the row. A change that leaves the
status as it is, such as a request to cancel, is a *note*: from and to are equal.

The one way from running to paused, whatever the run is to wait for. Its claim ends: nobody holds a paused run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Literal

import sqlalchemy as sa

from lastlight_state.db.base import later_of
from lastlight_state.db.chains import Chain, from_head
from lastlight_state.db.listeners import Listeners
from lastlight_state.db.statements import Family, bind
from lastlight_state.db.unit import Unit
from lastlight_state.errors import LostRace
from lastlight_state.workflows.arguments import Claim, Wait
from lastlight_state.workflows.kernel import (
    executions as execution_closing,
    nodes as node_rows,
    questions as open_questions,
)
from lastlight_state.workflows.kernel.claims import END_CLAIM, PUT_BACK
from lastlight_state.workflows.kernel.rows import COLUMNS
from lastlight_state.workflows.records import WorkflowRun
from lastlight_state.workflows.tables import RUNS, TRANSITIONS
from lastlight_state.workflows.words import TERMINAL, TERMINAL_TOPIC, Outcome, RunStatus, Source


def recorded(head: Any, *, from_status: sa.ColumnElement[Any]) -> Chain:
    """The chain of a statement that changes (or inserts) a run and returns its row, and of its transition."""
    return Chain(
        head,
        into=TRANSITIONS,
        values={
            "run_id": from_head("id"),
            "seq": from_head("transition_seq"),
            "from_status": from_status,
            "to_status": bind("to_status", TRANSITIONS.c.to_status),
            "reason": bind("reason", TRANSITIONS.c.reason),
            "detail": bind("detail", TRANSITIONS.c.detail),
            "actor": bind("actor", TRANSITIONS.c.actor),
            "source": bind("source", TRANSITIONS.c.source),
            "claim_epoch": bind("presented_epoch", TRANSITIONS.c.claim_epoch),
            "at": bind("at", TRANSITIONS.c.at),
        },
    )


def _moving(*conditions: sa.ColumnElement[bool], **sets: Any) -> Chain:
    return _noting(*conditions, status=sa.bindparam("to_status"), status_reason=sa.bindparam("reason"), **sets)


def _noting(*conditions: sa.ColumnElement[bool], **sets: Any) -> Chain:
    at = bind("at", RUNS.c.updated_at)
    head = (
        sa.update(RUNS)
        .where(RUNS.c.id == sa.bindparam("run_id"), RUNS.c.status == sa.bindparam("from_status"), *conditions)
        .values(
            transition_seq=RUNS.c.transition_seq + 1,
            updated_at=later_of(RUNS.c.updated_at, at),
            **sets,
        )
        .returning(*COLUMNS)
    )
    return recorded(head, from_status=bind("from_status", TRANSITIONS.c.from_status))


_NO_WAIT: Mapping[str, Any] = {"pause_reason": None, "wake_at": None, "waiting_for": None, "correlation_id": None}

PAUSE = _moving(
    pause_reason=sa.bindparam("pause_reason"),
    wake_at=sa.bindparam("wake_at"),
    waiting_for=sa.bindparam("waiting_for"),
    correlation_id=sa.bindparam("correlation_id"),
    **END_CLAIM,
)
RESUME = _moving(**_NO_WAIT, lease_expires_at=None)
END = _moving(
    finished_at=bind("at", RUNS.c.finished_at),
    error=sa.bindparam("error"),
    error_detail=sa.bindparam("error_detail"),
    **_NO_WAIT,
    **END_CLAIM,
)
RESTART = _moving(
    RUNS.c.restart_count < RUNS.c.max_restarts,
    restart_count=RUNS.c.restart_count + 1,
    finished_at=None,
    error=None,
    error_detail=None,
    cancel_requested_at=None,
    cancel_requested_by=None,
    cancel_reason=None,
    queued_at=sa.bindparam("queued_at"),
    admitted_at=None,
    **_NO_WAIT,
    **END_CLAIM,
)
ASK_CANCEL = _noting(
    cancel_requested_at=bind("at", RUNS.c.cancel_requested_at),
    cancel_requested_by=sa.bindparam("actor"),
    cancel_reason=sa.bindparam("detail"),
)
ALLOW_RESTARTS = _noting(max_restarts=sa.bindparam("max_restarts"))
ADMIT = _moving(
    admitted_at=bind("at", RUNS.c.admitted_at), lease_expires_at=sa.bindparam("lease_expires_at"), **_NO_WAIT
)
REQUEUE = _moving(
    queued_at=bind("at", RUNS.c.queued_at),
    admitted_at=None,
    **{**_NO_WAIT, "wake_at": sa.bindparam("wake_at")},
    **END_CLAIM,
)
QUEUE_AGAIN = _noting(
    queued_at=bind("at", RUNS.c.queued_at),
    wake_at=sa.func.coalesce(bind("wake_at", RUNS.c.wake_at), RUNS.c.wake_at),
)
RELEASE = _moving(
    admitted_at=sa.case((sa.bindparam("to_status", type_=RUNS.c.status.type) != "queued", RUNS.c.admitted_at)),
    **PUT_BACK,
)

WAKE_REASON = "run.resumed.timer"

_takes = {
    "run_id": RUNS.c.id,
    "seq": RUNS.c.transition_seq,
    "from_status": RUNS.c.previous_status,
    "to_status": RUNS.c.status,
    "reason": sa.case(
        (RUNS.c.previous_status == "queued", sa.literal("run.admitted")),
        (RUNS.c.previous_status == "paused", sa.literal(WAKE_REASON)),
        else_=sa.literal("claim.taken_over"),
    ),
    "detail": sa.case((RUNS.c.previous_status == RUNS.c.status, "from " + RUNS.c.previous_owner)),
    "actor": RUNS.c.claim_owner,
    "source": sa.literal("supervisor"),
    "claim_epoch": RUNS.c.claim_epoch,
    "at": bind("at", TRANSITIONS.c.at),
}
_RECORD_TAKES = Family(
    "run",
    lambda ids: sa.insert(TRANSITIONS).from_select(
        list(_takes), sa.select(*_takes.values()).where(RUNS.c.id.in_(ids)), include_defaults=False
    ),
)


def move(
    unit: Unit,
    how: Chain,
    row: Mapping[str, Any],
    to: str,
    *,
    reason: str,
    at: datetime,
    source: Source,
    actor: str | None = None,
    detail: str | None = None,
    presented_epoch: int | None = None,
    **sets: Any,
) -> WorkflowRun:
    """Move the locked run ``row`` to a status and record it; to its own status for a note.

    Raises `LostRace` if its status is not ``row``'s any more.
    """
    changed = unit.chain(
        how,
        {
            "run_id": row["id"],
            "from_status": row["status"],
            "to_status": to,
            "reason": reason,
            "at": at,
            "source": source,
            "actor": actor,
            "detail": detail,
            "presented_epoch": presented_epoch,
            **sets,
        },
    )
    if changed is None:
        raise LostRace(f"run {row['id']!r} is not {row['status']} any more", expected=row["status"])
    return WorkflowRun.of(changed)


def end(
    unit: Unit,
    listeners: Listeners,
    row: Mapping[str, Any],
    to: RunStatus,
    *,
    error: str | None = None,
    error_detail: str | None = None,
    **said: Any,
) -> WorkflowRun:
    """Make a run terminal and close all that hangs on it: executions in flight, nodes, pending questions, its claim.

    Those who listen with ``on_terminal`` are told after the commit.
    """
    if to not in TERMINAL:
        raise ValueError(to)
    run = move(unit, END, row, to, error=error, error_detail=error_detail, **said)
    outcome: Outcome = "cancelled" if to == "cancelled" else "interrupted"
    execution_closing.close(unit, run.id, outcome, at=said["at"])
    node_rows.close_all(unit, run.id, said["at"])
    open_questions.close_all(unit, run.id, said["reason"])
    unit.after_commit(lambda: listeners.notify(TERMINAL_TOPIC, run))
    return run


def record_takes(unit: Unit, run_ids: Sequence[str], at: datetime) -> None:
    """Record what taking these runs did to them (500 at most): taken over, woken, or admitted.

    For runs that a statement of this unit has taken, counting ``transition_seq`` up.
    """
    if run_ids:
        statement, values = _RECORD_TAKES.of(run_ids)
        unit.change(statement, {**values, "at": at})


Why = Literal["gate", "timer", "signal", "operator"]
NOTHING = Wait()


def pause(
    unit: Unit, row: dict[str, Any], why: Why, *, at: datetime, claim: Claim | None, wait: Wait = NOTHING
) -> WorkflowRun:
    """Pause a locked, running run that the caller has fenced; besides its gates it waits for ``wait``."""
    return move(
        unit,
        PAUSE,
        row,
        "paused",
        reason=f"run.paused.{why}",
        at=at,
        source="engine",
        presented_epoch=claim.epoch if claim else None,
        pause_reason=why,
        wake_at=wait.until,
        waiting_for=wait.signal,
        correlation_id=wait.correlation_id,
    )
