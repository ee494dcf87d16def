"""Admission: runs that wait for a place stand in one line, and no more run at a time than the cap allows.

The line is first come, first served, by ``queued_at`` and id. Who is not due yet, or whose workflow is switched off,
keeps its place and is passed over. Admissions take turns, in all processes, so that together they never pass the cap.
What does not pass through here is not held by it: a run that is created running, resumes, or restarts into running.

How queued runs are admitted and expire.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from lastlight_state.clock import aware_utc, to_millis
from lastlight_state.db import valid
from lastlight_state.db.listeners import Listeners
from lastlight_state.db.records import Page
from lastlight_state.db.repository import Repository
from lastlight_state.db.unit import Unit
from lastlight_state.errors import LostRace
from lastlight_state.workflows import checks as shared, words
from lastlight_state.workflows.arguments import Claim
from lastlight_state.workflows.claims import checks as claim_checks, takes as claim_takes
from lastlight_state.workflows.kernel import fence, rows as run_rows, sweeps, transitions
from lastlight_state.workflows.queue import statements as sql
from lastlight_state.workflows.records import RunSummary, WorkflowRun
from lastlight_state.workflows.runs import lists as run_list
from lastlight_state.workflows.words import GRACE


def admit_next(
    unit: Unit, cap: int, holding: dict[str, Any], limit: int, workflow_names: Sequence[str] | None
) -> list[dict[str, Any]]:
    """Admit and take the first runs in line, while fewer than ``cap`` are running; the rows taken, in their order.

    Counted after the lock that every admission takes, so it sees what the last one has committed.
    """
    unit.named_lock("admission")
    room = min(limit, cap - unit.value(sql.COUNT_RUNNING, {"cap": cap}))
    if room <= 0:
        return []
    statement, names = (sql.NEXT, {}) if workflow_names is None else sql.NEXT_OF.of(workflow_names)
    first = [row["id"] for row in unit.rows(statement, {**names, "at": holding["at"], "limit": room})]
    if not first:
        return []
    take, ids = sql.TAKE.of(first)
    taken = {row["id"]: row for row in unit.rows(take, {**holding, **ids})}
    transitions.record_takes(unit, first, holding["at"])
    return [taken[run_id] for run_id in first]


def overdue(unit: Unit, cutoff: datetime, limit: int) -> list[str]:
    """The runs that are queued since before ``cutoff``, the first in line of them; in ascending id."""
    return sorted(row["id"] for row in unit.rows(sql.OVERDUE, {"cutoff": cutoff, "limit": limit}))


def expire(unit: Unit, listeners: Listeners, run_id: str, cutoff: datetime, error: str, at: datetime) -> bool:
    """Cancel a run if it is still queued since before ``cutoff``; whether it was."""
    row = run_rows.lock(unit, run_id, sql.LOCK)
    if row["status"] != "queued" or row["queued_at"] is None or row["queued_at"] >= cutoff:
        return False
    transitions.end(unit, listeners, row, "cancelled", reason="queue.expired", error=error, at=at, source="system")
    return True


_LEASE = timedelta(seconds=30)


class Queue(Repository):
    """``store.workflows.queue``"""

    def list(self, *, limit: int = 50, page_token: str | None = None) -> Page[RunSummary]:
        """A page of the queued runs, the first in line first; those not due or switched off are among them."""
        valid.page_limit(limit)
        return self._reading(lambda unit: run_list.page(unit, sql.LIST, {}, limit, page_token))

    def admit(self, run_id: str) -> WorkflowRun:
        """Let one queued run run, whatever its place, time, cap or switch; it has 30 seconds of grace to be claimed.

        Raises `NotFound`, or `LostRace` with its status (``found``) when it is not queued any more.
        """
        now = self._now()

        def work(unit: Unit) -> WorkflowRun:
            queued = {"id": run_id, "status": "queued"}
            return transitions.move(
                unit, transitions.ADMIT, queued, "running", reason="run.admitted", at=now, source="supervisor",
                lease_expires_at=now + GRACE,
            )  # fmt: skip

        try:
            return self._chained(work)
        except LostRace:
            found = self._reading(lambda unit: run_rows.get(unit, run_id)).status
        raise LostRace(f"run {run_id!r} is {found}, not queued any more", expected="queued", found=found)

    def admit_next(
        self,
        *,
        cap: int,
        owner: str,
        lease: timedelta = _LEASE,
        limit: int = 1,
        workflow_names: Sequence[str] | None = None,
    ) -> tuple[Claim, ...]:
        """Admit the first runs in line and claim them for ``owner``, as long as fewer than ``cap`` runs are running.

        At most ``limit`` (1 to 500) of them, of these workflows (at most 50) unless None; ``cap`` counts the running
        runs of all workflows. One that somebody else is changing at this moment waits for the next call. The claims
        are in the order of the line; to release one puts its run back into its old place.
        """
        holding = claim_checks.holding(self._now(), owner, lease)
        names = None if workflow_names is None else shared.several_workflows(workflow_names)
        valid.number("cap", cap)
        valid.page_limit(limit)
        if names is not None and not names:
            return ()
        taken = self._writing(lambda unit: admit_next(unit, cap, holding, limit, names))
        return tuple(claim_takes.claim_of(row, lease) for row in taken)

    def requeue(
        self, run_id: str, *, reason: str, not_before: datetime | None = None, claim: Claim | None = None
    ) -> WorkflowRun:
        """Send a running run to the end of the line, or a queued one, which so gets a new time of waiting.

        The claim ends: a later write with it is `ClaimLost`. ``reason`` is in words, at most 2 KiB. The run is not
        admitted by itself before ``not_before``; a queued one keeps the time it had unless a new one is given. Raises
        `NotFound`, `ClaimLost`, `Conflict` ``run_status``; then nothing changed.
        """
        now = self._now()
        wake_at = None if not_before is None else aware_utc("not_before", not_before)
        detail = valid.content("reason", reason, words.SUMMARY)

        def work(unit: Unit) -> WorkflowRun:
            row = run_rows.lock(unit, run_id)
            fence.fence(row, claim)
            run_rows.expect(row, ("running", "queued"))
            how = transitions.REQUEUE if row["status"] == "running" else transitions.QUEUE_AGAIN
            return transitions.move(
                unit, how, row, "queued", reason="run.requeued", at=now, source="engine", detail=detail,
                presented_epoch=claim.epoch if claim else None, wake_at=wake_at,
            )  # fmt: skip

        return self._writing(work)

    def expire(self, older_than: timedelta, *, reason: str, limit: int = 500) -> tuple[str, ...]:
        """Cancel the runs that have been queued for longer than this; the ids that changed.

        ``reason`` becomes the error of each. Looks at ``limit`` runs, the first in line, and takes one transaction for
        each; one that was admitted or requeued meanwhile is left alone.
        """
        now = self._now()
        cutoff = to_millis(now - claim_checks.duration("older_than", older_than))
        error = valid.content("reason", reason, words.ERROR)
        valid.page_limit(limit)
        found = self._reading(lambda unit: overdue(unit, cutoff, limit))
        swept = sweeps.over(found, lambda run_id: self._expire(run_id, cutoff, error, now))
        return tuple(run_id for run_id, expired in swept if expired)

    def _expire(self, run_id: str, cutoff: datetime, error: str, now: datetime) -> bool:
        return self._writing(lambda unit: expire(unit, self._listeners, run_id, cutoff, error, now))
