"""The only code that changes a run's status (workflows W-11, W-18).

Every change is a compare-and-set on the status that also increments ``transition_seq`` and writes the
``run_transitions`` row of that number, so the newest transition always agrees with the run's row. A change that leaves
the status as it is, such as a request to cancel, is a *note*: from and to are equal.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Literal, TypedDict

import sqlalchemy as sa

from lastlight_state.clock import iso_text
from lastlight_state.db.news.listeners import Listeners
from lastlight_state.db.rows.statements import Family, RowT, bind
from lastlight_state.db.rows.writes import Chain, from_head
from lastlight_state.db.runs import TERMINAL_TOPIC
from lastlight_state.db.schema.base import later_of
from lastlight_state.db.units.unit import Unit
from lastlight_state.errors import LostRace
from lastlight_state.workflows.arguments import Claim, Wait
from lastlight_state.workflows.records import WorkflowRun
from lastlight_state.workflows.shared import executions, questions
from lastlight_state.workflows.shared.claims import END_CLAIM, PUT_BACK
from lastlight_state.workflows.shared.run_rows import COLUMNS, RunWithStatus
from lastlight_state.workflows.tables import RUNS, TRANSITIONS
from lastlight_state.workflows.words import TERMINAL, Outcome, RunStatus, Source

#: The reasons of a pause: a paused run waits for a gate, a timer, a signal or an operator.
TransitionReason = Literal["gate", "timer", "signal", "operator"]

#: The reason of the transition of a paused run whose time has come.
WAKE_REASON = "run.resumed.timer"


#: The most characters of an error that `first_line` returns.
LINE_CHARS = 300


class TransitionParameters(TypedDict):
    """The parameters of a transition: who changed a run, when and how."""

    at: datetime
    source: Source
    actor: str | None
    detail: str


_NOTHING = Wait()
_NO_WAIT: Mapping[str, Any] = {"pause_reason": None, "wake_at": None, "waiting_for": None, "correlation_id": None}


def transition_chain(head: Any, row: type[RowT], *, from_status: sa.ColumnElement[Any]) -> Chain[RowT]:
    """Return the `Chain` of two writes: ``head``, which writes and returns a run, and the insert of its transition."""
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
        row=row,
    )


def _status_change(*conditions: sa.ColumnElement[bool], **sets: Any) -> Chain[WorkflowRun]:
    """Return a change from ``:from_status`` to ``:to_status``, if the conditions hold."""
    return _recorded_change(*conditions, status=sa.bindparam("to_status"), status_reason=sa.bindparam("reason"), **sets)


def _recorded_change(*conditions: sa.ColumnElement[bool], **sets: Any) -> Chain[WorkflowRun]:
    """Return a change that is recorded, from ``:from_status``, and leaves the status to ``sets``."""
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
    return transition_chain(head, WorkflowRun, from_status=bind("from_status", TRANSITIONS.c.from_status))


PAUSE = _status_change(
    pause_reason=sa.bindparam("pause_reason"),
    wake_at=sa.bindparam("wake_at"),
    waiting_for=sa.bindparam("waiting_for"),
    correlation_id=sa.bindparam("correlation_id"),
    **END_CLAIM,
)
RESUME = _status_change(**_NO_WAIT, lease_expires_at=None)
END = _status_change(
    finished_at=bind("at", RUNS.c.finished_at),
    error=sa.bindparam("error"),
    error_detail=sa.bindparam("error_detail"),
    **_NO_WAIT,
    **END_CLAIM,
)
RESTART = _status_change(
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
ASK_CANCEL = _recorded_change(
    cancel_requested_at=bind("at", RUNS.c.cancel_requested_at),
    cancel_requested_by=sa.bindparam("actor"),
    cancel_reason=sa.bindparam("detail"),
)
ALLOW_RESTARTS = _recorded_change(max_restarts=sa.bindparam("max_restarts"))
#: Records a note about one of the run's questions, such as its answer. The run keeps its status.
QUESTION = _recorded_change()
ADMIT = _status_change(
    admitted_at=bind("at", RUNS.c.admitted_at), lease_expires_at=sa.bindparam("lease_expires_at"), **_NO_WAIT
)
REQUEUE = _status_change(
    queued_at=bind("at", RUNS.c.queued_at),
    admitted_at=None,
    **{**_NO_WAIT, "wake_at": sa.bindparam("wake_at")},
    **END_CLAIM,
)
QUEUE_AGAIN = _recorded_change(
    queued_at=bind("at", RUNS.c.queued_at),
    wake_at=sa.func.coalesce(bind("wake_at", RUNS.c.wake_at), RUNS.c.wake_at),
)
#: Releases a run without changing its status.
GIVE_BACK = _recorded_change(**PUT_BACK)
RELEASE = _status_change(
    admitted_at=sa.case((bind("to_status", RUNS.c.status) != "queued", RUNS.c.admitted_at)),
    **PUT_BACK,
)

#: Columns of a taken run that its transition needs, besides those that statements of claims return.
TAKEN_FROM = (RUNS.c.status, RUNS.c.previous_status, RUNS.c.previous_owner)


def _takes(run: Any) -> dict[str, sa.ColumnElement[Any]]:
    """Return the values of the transition that records a take, from the columns of the taken run."""
    return {
        "run_id": run.id,
        "seq": run.transition_seq,
        "from_status": run.previous_status,
        "to_status": run.status,
        "reason": sa.case(
            (run.previous_status == "queued", sa.literal("run.admitted")),
            (run.previous_status == "paused", sa.literal(WAKE_REASON)),
            else_=sa.literal("claim.taken_over"),
        ),
        "detail": sa.case((run.previous_status == run.status, "from " + run.previous_owner)),
        "actor": run.claim_owner,
        "source": sa.literal("supervisor"),
        "claim_epoch": run.claim_epoch,
        "at": bind("at", TRANSITIONS.c.at),
    }


def recording_takes(taken: sa.CTE) -> sa.CTE:
    """Return the CTE that records transitions for the taken runs that the CTE ``taken`` returns."""
    values = _takes(taken.c)
    rows = sa.select(*values.values()).select_from(taken)
    return sa.insert(TRANSITIONS).from_select(list(values), rows, include_defaults=False).cte("recorded")


def _recorded_takes(ids: Sequence[sa.BindParameter[Any]]) -> sa.Executable:
    values = _takes(RUNS.c)
    return sa.insert(TRANSITIONS).from_select(list(values), sa.select(*values.values()).where(RUNS.c.id.in_(ids)))


_RECORD_TAKES = Family("run", _recorded_takes)


def move(
    unit: Unit,
    how: Chain[WorkflowRun],
    row: RunWithStatus,
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
    """Move the locked run ``row`` to the status ``to`` and record a transition. A move to the same status is a note.

    Raises `LostRace` if the run no longer has the status of ``row``.
    """
    changed = unit.chain(
        how,
        {
            "run_id": row.id,
            "from_status": row.status,
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
        raise LostRace(f"run {row.id!r} is not {row.status} any more", expected=row.status)
    return changed


def end(
    unit: Unit,
    listeners: Listeners,
    row: RunWithStatus,
    to: RunStatus,
    *,
    error: str | None = None,
    error_detail: str | None = None,
    **said: Any,
) -> WorkflowRun:
    """End a run and its claim, executions in flight, running or waiting nodes, and pending questions.

    Without a ``detail`` the transition has the first line of the error.
    Callbacks of ``on_terminal`` are called after the commit.
    """
    if to not in TERMINAL:
        raise ValueError(to)
    said["detail"] = said.get("detail") or first_line(error)
    run = move(unit, END, row, to, error=error, error_detail=error_detail, **said)
    outcome: Outcome = "cancelled" if to == "cancelled" else "interrupted"
    executions.close(unit, run.id, outcome, at=said["at"])
    executions.close_all(unit, run.id, said["at"])
    questions.close_all(unit, run.id, said["reason"])
    unit.after_commit(lambda: listeners.notify(TERMINAL_TOPIC, run))
    return run


def record_takes(unit: Unit, run_ids: Sequence[str], at: datetime) -> None:
    """Record the transitions of at most 500 runs that were taken over, woken or admitted.

    The caller must have taken these runs, and incremented their ``transition_seq``, in the same transaction.
    """
    if run_ids:
        statement, values = _RECORD_TAKES.of(run_ids)
        unit.change(statement, {**values, "at": at})


def pause(
    unit: Unit,
    row: RunWithStatus,
    why: TransitionReason,
    *,
    at: datetime,
    claim: Claim | None,
    wait: Wait = _NOTHING,
    detail: str | None = None,
    by: str | None = None,
) -> WorkflowRun:
    """Pause a running run that the caller has locked and whose fence the caller has checked. The run's claim ends.

    ``by`` is the operator who pauses the run, None for an engine. Without a ``detail`` the transition records what the
    run waits for.
    """
    return move(
        unit,
        PAUSE,
        row,
        "paused",
        reason=f"run.paused.{why}",
        at=at,
        source="engine" if by is None else "operator",
        actor=by,
        detail=detail or _wait_text(wait),
        presented_epoch=claim.epoch if claim else None,
        pause_reason=why,
        wake_at=wait.until,
        waiting_for=wait.signal,
        correlation_id=wait.correlation_id,
    )


def _wait_text(wait: Wait) -> str | None:
    """Describe the signal and time that a paused run waits for.

    Return None if it waits for a question or an operator.
    """
    signal = wait.signal and " of ".join(filter(None, (wait.signal, wait.correlation_id)))
    until = None if wait.until is None else f"until {iso_text(wait.until)}"
    return ", ".join(filter(None, (signal, until))) or None


def first_line(text: str | None) -> str | None:
    """Return the first line of an error, at most `LINE_CHARS` of it."""
    return text and text.strip().partition("\n")[0][:LINE_CHARS]
