"""Pauses that are no question to a person of their own: until a time, for a signal, by an operator, for gates asked.

A paused run is held by nobody. What wakes it stands in its row: `claims` takes one whose time has come, an answer
wakes one that waits for gates, and whoever sends a signal finds in `list_waiting` the runs to resume.

No signal is slept through by who does both in one transaction: the waiter pauses and then looks for a stored signal,
the sender stores it and then resumes whoever waits.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from lastlight_state.db import checks
from lastlight_state.db.pages import Page
from lastlight_state.db.repository import Repository
from lastlight_state.db.unit import Unit
from lastlight_state.errors import Conflict
from lastlight_state.workflows import (
    open_questions,
    run_checks,
    run_list,
    run_pauses,
    run_rows,
    transitions,
    wait_checks,
    words,
)
from lastlight_state.workflows import wait_statements as sql
from lastlight_state.workflows.arguments import Claim
from lastlight_state.workflows.records import RunSummary, WorkflowRun
from lastlight_state.workflows.wait_checks import Pause


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
        pause = wait_checks.pause(gates, until, signal, correlation_id)
        return self._writing(lambda unit: _pause(unit, run_id, pause, now, claim))

    def resume(self, run_id: str, *, by: str, reason: str) -> WorkflowRun:
        """Let a paused run go on: it runs, and any worker may take it.

        While a question that blocks it is pending, `Conflict` ``gate_pending`` with its ``ids`` (at most 20): answer or
        cancel that. A run that is not paused is `Conflict` ``run_status``.
        """
        now, said = self._now(), run_checks.operator(by, reason)

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
            "signal": checks.identifier("signal", signal, words.SIGNAL),
            "correlation_id": checks.optional("correlation_id", correlation_id, words.SIGNAL),
        }
        checks.page_limit(limit)
        return self._reading(lambda unit: run_list.page(unit, sql.WAITING, given, limit, page_token))


def _pause(unit: Unit, run_id: str, pause: Pause, now: datetime, claim: Claim | None) -> WorkflowRun:
    row = run_rows.lock(unit, run_id)
    run_rows.fence(row, claim)
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
            raise wait_checks.not_open(unit.row(sql.QUESTION, {"run_id": run_id, "question_id": gate}), gate)


def _expect_unblocked(unit: Unit, run_id: str) -> None:
    ids = open_questions.blocking(unit, run_id)
    if ids:
        raise Conflict(f"run {run_id!r} waits for {', '.join(ids)}", code="gate_pending", ids=tuple(ids))
