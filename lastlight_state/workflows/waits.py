"""Pauses of a run: until a time, for a signal, for questions already asked, or until an operator resumes the run.

Nobody holds a paused run. Its row stores what wakes it. When its time has come, a worker takes it through `claims`; an
answer to one of its questions or the signal it waits for resumes it.

To lose no signal, pause first and then look for a stored signal, in one transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import Any, ClassVar, TypedDict

import sqlalchemy as sa

from lastlight_state.clock import aware_utc
from lastlight_state.db import valid
from lastlight_state.db.lists.covering import NarrowIndex
from lastlight_state.db.lists.listing import Listing
from lastlight_state.db.repository import Repository
from lastlight_state.db.rows.records import Page
from lastlight_state.db.rows.statements import Statement, bind, constant, statement_of
from lastlight_state.db.schema.declarations import limits_of
from lastlight_state.db.units.unit import Unit
from lastlight_state.errors import Conflict, InvalidValue, StaleVersion, StateError
from lastlight_state.workflows import checks as shared
from lastlight_state.workflows.arguments import Claim, Wait
from lastlight_state.workflows.records import RunSummary, WorkflowRun
from lastlight_state.workflows.runs.lists import page_of_runs
from lastlight_state.workflows.runs.statements import COVERED, SUMMARY
from lastlight_state.workflows.shared import questions, run_rows, transitions
from lastlight_state.workflows.shared.transitions import TransitionReason
from lastlight_state.workflows.tables import APPROVALS, REQUESTS, RUNS, TRANSITIONS

_LIMITS, _GATE, _TRANSITION = limits_of(RUNS), limits_of(APPROVALS), limits_of(TRANSITIONS)

#: The most questions that one pause may name.
MOST_GATES = 500


@dataclass(frozen=True)
class Pause:
    """The arguments of a pause: the ids of questions, and the time or signal to wait for."""

    gates: Sequence[str]
    wait: Wait

    @property
    def why(self) -> TransitionReason:
        """Return the reason for the pause; the first that applies of gate, signal, operator and timer."""
        if self.gates:
            return "gate"
        if self.wait.signal is not None:
            return "signal"
        return "operator" if self.wait.until is None else "timer"


class _Said(TypedDict):
    """The person who paused a run, and the reason."""

    by: str | None
    detail: str | None


def _check_pause(gates: Sequence[str], until: datetime | None, signal: str | None, correlation_id: str | None) -> Pause:
    """Check the arguments of a pause and return them. Raises `InvalidValue`."""
    ids = dict.fromkeys(valid.identifier("gates", gate, _GATE.id) for gate in valid.several("gates", gates))
    valid.at_most("gates", ids, MOST_GATES)
    if correlation_id is not None and signal is None:
        raise InvalidValue("correlation_id", "must not be given without a signal")
    wait = Wait(
        until=None if until is None else aware_utc("until", until),
        signal=valid.optional("signal", signal, _LIMITS.waiting_for),
        correlation_id=valid.optional("correlation_id", correlation_id, _LIMITS.correlation_id),
    )
    return Pause(gates=tuple(ids), wait=wait)


def _not_open(question: tuple[str, str] | None, question_id: str) -> StateError:
    """Return the error for a question that the run cannot wait for: already closed, or not a question of this run."""
    if question is None:
        return valid.not_found("approval", question_id)
    kind, status = question
    return StaleVersion(kind, question_id, expected="pending", found=status)


#: The kind and status of a question of a run.
QUESTION: Statement[tuple[str, str]] = statement_of(
    sa.union_all(
        *(
            sa.select(constant(kind).label("kind"), table.c.status).where(
                table.c.id == bind("question_id", table.c.id), run == bind("run_id", run)
            )
            for kind, table, run in (
                ("approval", APPROVALS, APPROVALS.c.workflow_run_id),
                ("human_request", REQUESTS, REQUESTS.c.run_id),
            )
        )
    ),
    tuple,
)


class WaitingRun(RunSummary):
    """The row of a run that waits for a signal. It becomes a `RunSummary`."""

    _consumed: ClassVar[frozenset[str]] = frozenset({"waiting_for"})

    @classmethod
    def of(cls, values: Any) -> Any:
        del values["waiting_for"]
        return RunSummary.of(values)


class LockedWait(run_rows.LockedRun):
    """A locked run with the signal that it waits for."""

    waiting_for: str | None
    correlation_id: str | None


LOCK_WAIT = run_rows.lock_statement(LockedWait)

#: Paused runs that wait for a signal.
WAITING: Listing[RunSummary] = Listing(
    "waiting",
    (*SUMMARY, RUNS.c.waiting_for),
    order=(RUNS.c.waiting_for, RUNS.c.id),
    descending=False,
    always=(RUNS.c.status == constant("paused"), RUNS.c.waiting_for.is_not(None)),
    filters={
        "signal": RUNS.c.waiting_for == bind("signal", RUNS.c.waiting_for),
        "correlation_id": RUNS.c.correlation_id == bind("correlation_id", RUNS.c.correlation_id),
    },
    through="ix_workflow_runs_waiting",
    covering=replace(
        COVERED,
        found_by={
            "": NarrowIndex(
                "ix_workflow_runs_waiting",
                ("waiting_for", "correlation_id"),
                only=sa.and_(RUNS.c.status == constant("paused"), RUNS.c.waiting_for.is_not(None)),
            )
        },
    ),
    row=WaitingRun,
)


class Waits(Repository):
    """``store.workflows.waits``: pause and resume runs, and list runs that wait for a signal."""

    def pause(
        self,
        run_id: str,
        *,
        gates: Sequence[str] = (),
        until: datetime | None = None,
        signal: str | None = None,
        correlation_id: str | None = None,
        by: str | None = None,
        reason: str | None = None,
        claim: Claim | None = None,
    ) -> WorkflowRun:
        """Pause a running run until the first of: an answer, the time, the signal.

        If none is given, pause it until `resume`. ``gates`` are ids of pending questions of this run (at most 500); an
        answer to any of them wakes the run. If one of them is no longer pending, `StaleVersion` is raised and the run
        goes on. The claim ends: a later write with the claim raises `ClaimLost`. ``by`` and ``reason`` record which
        person paused the run and why. Raises `NotFound`, `ClaimLost`, `Conflict` ``run_status``; then nothing changed.
        """
        now = self._now()
        wanted = _check_pause(gates, until, signal, correlation_id)
        said: _Said = {
            "by": valid.optional("by", by, _TRANSITION.actor),
            "detail": None if reason is None else valid.content("reason", reason, _TRANSITION.detail),
        }
        return self._writing(lambda unit: _pause(unit, run_id, wanted, now, claim, said))

    def resume(self, run_id: str, *, by: str, reason: str) -> WorkflowRun:
        """Set a paused run running again, offered to any worker.

        While questions block the run, raises `Conflict` ``gate_pending`` with the ``ids`` of at most 20 of them: answer
        or cancel these. A run that is not paused raises `Conflict` ``run_status``.
        """
        now, said = self._now(), shared.operator(by, reason)

        def work(unit: Unit) -> WorkflowRun:
            row = run_rows.lock(unit, run_id)
            run_rows.expect(row, ("paused",))
            _expect_unblocked(unit, run_id)
            why = row.pause_reason or "gate"
            return transitions.move(
                unit, transitions.RESUME, row, "running", reason=f"run.resumed.{why}", at=now, source="operator", **said
            )

        return self._writing(work)

    def list_waiting(
        self, signal: str, *, correlation_id: str | None = None, limit: int = 50, page_token: str | None = None
    ) -> Page[RunSummary]:
        """Return a page of paused runs that wait for this signal, and for ``correlation_id`` if given, by id.

        Ids made by the store sort by their time of creation.
        """
        given = {
            "signal": valid.identifier("signal", signal, _LIMITS.waiting_for),
            "correlation_id": valid.optional("correlation_id", correlation_id, _LIMITS.correlation_id),
        }
        return self._viewing(page_of_runs(WAITING, given, limit, page_token))

    def _wake_callback(
        self, unit: Unit, run_id: str, signal: str, correlation_id: str | None, at: datetime
    ) -> Callable[[], object] | None:
        """Lock the run. Return a callback that wakes the run, or None if the run does not wait for this signal.

        A pause locks the run, too. So either the pause comes first and this check sees it, or the signal comes first
        and the pause finds it stored.
        """
        row = unit.row(LOCK_WAIT, {"run_id": run_id})
        if row is None or (row.status, row.waiting_for) != ("paused", signal):
            return None
        if row.correlation_id not in (None, correlation_id):
            return None
        return partial(
            transitions.move, unit, transitions.RESUME, row, "running", reason="run.resumed.signal", at=at,
            source="system", detail=signal,
        )  # fmt: skip


def _pause(unit: Unit, run_id: str, pause: Pause, now: datetime, claim: Claim | None, said: _Said) -> WorkflowRun:
    row = run_rows.lock(unit, run_id)
    run_rows.check(row, claim)
    run_rows.expect(row, ("running",))
    _expect_open(unit, run_id, pause.gates)
    return transitions.pause(unit, row, pause.why, at=now, claim=claim, wait=pause.wait, **said)


def _expect_open(unit: Unit, run_id: str, gates: Sequence[str]) -> None:
    """Raise unless all gates are pending.

    The caller must hold the run's lock, so that no gate can be answered meanwhile.
    """
    if not gates:
        return
    found = questions.open_among(unit, run_id, gates)
    for gate in gates:
        if gate not in found:
            raise _not_open(unit.row(QUESTION, {"run_id": run_id, "question_id": gate}), gate)


def _expect_unblocked(unit: Unit, run_id: str) -> None:
    ids = questions.blocking_ids(unit, run_id)
    if ids:
        raise Conflict(f"run {run_id!r} waits for {', '.join(ids)}", code="gate_pending", ids=tuple(ids))
