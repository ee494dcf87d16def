"""Pauses that are no question to a person of their own: until a time, for a signal, by an operator, for gates asked.

A paused run is held by nobody. What wakes it stands in its row: `claims` takes one whose time has come, an answer
wakes one that waits for gates, and whoever sends a signal finds in `list_waiting` the runs to resume.

No signal is slept through by who does both in one transaction: the waiter pauses and then looks for a stored signal,
the sender stores it and then resumes whoever waits.

What `waits` accepts, checked before any statement.

The statements of `waits`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from lastlight_state.clock import aware_utc
from lastlight_state.db import valid
from lastlight_state.db.listing import Listing
from lastlight_state.db.records import Page
from lastlight_state.db.repository import Repository
from lastlight_state.db.statements import bind, constant, prepared
from lastlight_state.db.unit import Unit
from lastlight_state.errors import Conflict, InvalidValue, StaleVersion, StateError
from lastlight_state.workflows import checks as shared, words
from lastlight_state.workflows.arguments import Claim, Wait
from lastlight_state.workflows.kernel import (
    fence,
    questions as open_questions,
    rows as run_rows,
    transitions,
    transitions as run_pauses,
)
from lastlight_state.workflows.kernel.transitions import Why
from lastlight_state.workflows.records import RunSummary, WorkflowRun
from lastlight_state.workflows.runs import lists as run_list
from lastlight_state.workflows.runs.statements import SUMMARY
from lastlight_state.workflows.tables import APPROVALS, REQUESTS, RUNS

MOST_GATES = 500


@dataclass(frozen=True)
class Pause:
    """What a run is to wait for, and the word for the first of it."""

    gates: Sequence[str]
    wait: Wait

    @property
    def why(self) -> Why:
        if self.gates:
            return "gate"
        if self.wait.signal is not None:
            return "signal"
        return "operator" if self.wait.until is None else "timer"


def pause(gates: Sequence[str], until: datetime | None, signal: str | None, correlation_id: str | None) -> Pause:
    """A pause as its caller wants it."""
    ids = dict.fromkeys(valid.identifier("gates", gate, words.ID) for gate in valid.several("gates", gates))
    if len(ids) > MOST_GATES:
        raise InvalidValue("gates", f"{len(ids)} gates, more than the limit of {MOST_GATES}", limit=MOST_GATES)
    if correlation_id is not None and signal is None:
        raise InvalidValue("correlation_id", "says nothing without a signal")
    wait = Wait(
        until=None if until is None else aware_utc("until", until),
        signal=valid.optional("signal", signal, words.SIGNAL),
        correlation_id=valid.optional("correlation_id", correlation_id, words.SIGNAL),
    )
    return Pause(gates=tuple(ids), wait=wait)


def not_open(question: Mapping[str, Any] | None, question_id: str) -> StateError:
    """The error for a question that the run cannot wait for: closed a moment ago, or none of its own."""
    if question is None:
        return valid.not_found("approval", question_id)
    return StaleVersion(question["kind"], question_id, expected="pending", found=question["status"])


#: How a question of a run stands, whichever kind it is of.
QUESTION = prepared(
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
    )
)


WAITING = Listing(
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
)


class Waits(Repository):
    """``store.workflows.waits``"""

    def pause(
        self,
        run_id: str,
        *,
        gates: Sequence[str] = (),
        until: datetime | None = None,
        signal: str | None = None,
        correlation_id: str | None = None,
        claim: Claim | None = None,
    ) -> WorkflowRun:
        """Pause a running run until the first of what is named here; with nothing named, until `resume`.

        ``gates`` are ids of questions of this run that are still open (at most 500), any of whose answers wakes it;
        one that is open no more is `StaleVersion`, and the run goes on. The claim ends: a later write with it is
        `ClaimLost`. Raises `NotFound`, `ClaimLost`, `Conflict` ``run_status``; then nothing changed.
        """
        now = self._now()
        wanted = pause(gates, until, signal, correlation_id)
        return self._writing(lambda unit: _pause(unit, run_id, wanted, now, claim))

    def resume(self, run_id: str, *, by: str, reason: str) -> WorkflowRun:
        """Let a paused run go on: it runs, and any worker may take it.

        While a question that blocks it is pending, `Conflict` ``gate_pending`` with its ``ids`` (at most 20): answer or
        cancel that. A run that is not paused is `Conflict` ``run_status``.
        """
        now, said = self._now(), shared.operator(by, reason)

        def work(unit: Unit) -> WorkflowRun:
            row = run_rows.lock(unit, run_id)
            run_rows.expect(row, ("paused",))
            _expect_unblocked(unit, run_id)
            why = row["pause_reason"] or "gate"
            return transitions.move(
                unit, transitions.RESUME, row, "running", reason=f"run.resumed.{why}", at=now, source="operator", **said
            )

        return self._writing(work)

    def list_waiting(
        self, signal: str, *, correlation_id: str | None = None, limit: int = 50, page_token: str | None = None
    ) -> Page[RunSummary]:
        """A page of the paused runs that wait for this signal, by id; with any correlation unless one is given.

        Ids that the store made stand in the order in which their runs were created.
        """
        given = {
            "signal": valid.identifier("signal", signal, words.SIGNAL),
            "correlation_id": valid.optional("correlation_id", correlation_id, words.SIGNAL),
        }
        valid.page_limit(limit)
        return self._reading(lambda unit: run_list.page(unit, WAITING, given, limit, page_token))


def _pause(unit: Unit, run_id: str, pause: Pause, now: datetime, claim: Claim | None) -> WorkflowRun:
    row = run_rows.lock(unit, run_id)
    fence.fence(row, claim)
    run_rows.expect(row, ("running",))
    _expect_open(unit, run_id, pause.gates)
    return run_pauses.pause(unit, row, pause.why, at=now, claim=claim, wait=pause.wait)


def _expect_open(unit: Unit, run_id: str, gates: Sequence[str]) -> None:
    """Looked at after the lock that every answer takes too: an answer came before, or finds the run paused."""
    if not gates:
        return
    found = open_questions.open_among(unit, run_id, gates)
    for gate in gates:
        if gate not in found:
            raise not_open(unit.row(QUESTION, {"run_id": run_id, "question_id": gate}), gate)


def _expect_unblocked(unit: Unit, run_id: str) -> None:
    ids = open_questions.blocking(unit, run_id)
    if ids:
        raise Conflict(f"run {run_id!r} waits for {', '.join(ids)}", code="gate_pending", ids=tuple(ids))
