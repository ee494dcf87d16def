"""The queue: runs that wait in one line to be admitted, while a cap limits how many runs are running at a time.

The line is ordered by ``queued_at`` and id. A run that is not due yet, or whose workflow is switched off, keeps its
place and is skipped. Admissions of all processes take a lock, so that together they never exceed the cap. The cap does
not apply to runs that are created running, resume, or restart into running.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from lastlight_state.clock import aware_utc, to_millis
from lastlight_state.db import valid
from lastlight_state.db.news.listeners import Listeners
from lastlight_state.db.repository import Context, Repository
from lastlight_state.db.rows.records import Page
from lastlight_state.db.schema.declarations import limits_of
from lastlight_state.db.units.unit import Unit
from lastlight_state.errors import InvalidValue, LostRace
from lastlight_state.workflows import checks as shared
from lastlight_state.workflows.arguments import Claim
from lastlight_state.workflows.claims.checks import LONGEST, holding_parameters
from lastlight_state.workflows.claims.lists import Claimable
from lastlight_state.workflows.claims.takes import claim_of
from lastlight_state.workflows.queue import statements, statements as sql
from lastlight_state.workflows.records import RunSummary, WorkflowRun
from lastlight_state.workflows.runs.lists import page_of_runs
from lastlight_state.workflows.shared import overdue, overdue as shared_overdue, run_rows, transitions
from lastlight_state.workflows.shared.overdue import Overdue
from lastlight_state.workflows.shared.run_rows import StatusOfRun
from lastlight_state.workflows.tables import RUNS, TRANSITIONS
from lastlight_state.workflows.words import GRACE

# Checks of the arguments of `queue`, before any statement.


def check_caps(given: Any) -> dict[str, int]:
    """Check caps and return them by workflow name. At most 50 workflows are allowed; None means no caps."""
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise InvalidValue("workflow_caps", f"expected a mapping of names to numbers, got {type(given).__name__}")
    names = shared.several_workflows(list(given))
    return {name: valid.number(f"workflow_caps[{name!r}]", given[name]) for name in names}


_RUN, _TRANSITION = limits_of(RUNS), limits_of(TRANSITIONS)

_LEASE = timedelta(seconds=30)


class Queue(Repository):
    """``store.workflows.queue``: list, admit, requeue and expire queued runs."""

    def __init__(self, context: Context, expire: Callable[[Sequence[str] | None], Sequence[str]]) -> None:
        super().__init__(context)
        self._overdue = Overdue(self._scope, self._now, expire)

    def list(self, *, limit: int = 50, page_token: str | None = None) -> Page[RunSummary]:
        """Return a page of the queued runs, in the order of the line.

        Includes runs that are not due, or whose workflow is switched off.
        """
        return self._viewing(page_of_runs(sql.LIST, {}, limit, page_token))

    def admit(self, run_id: str) -> WorkflowRun:
        """Admit one queued run, whatever its place, its time, the cap and the kill switch.

        The run is then running without a claim, with 30 seconds of grace before others may take it. Raises `NotFound`,
        or `LostRace` with the status as ``found`` if the run is no longer queued.
        """
        now = self._now()

        def work(unit: Unit) -> WorkflowRun:
            queued = StatusOfRun(run_id, "queued")
            return transitions.move(
                unit, transitions.ADMIT, queued, "running", reason="run.admitted", at=now, source="supervisor",
                lease_expires_at=now + GRACE,
            )  # fmt: skip

        try:
            return self._chained(work)
        except LostRace:
            found = self._get_row(run_rows.GET, {"run_id": run_id}, kind="workflow_run", key=run_id).status
        raise LostRace(f"run {run_id!r} must be queued, it is {found}", expected="queued", found=found)

    def admit_next(
        self,
        *,
        cap: int,
        owner: str,
        lease: timedelta = _LEASE,
        limit: int = 1,
        workflow_names: Sequence[str] | None = None,
        workflow_caps: Mapping[str, int] | None = None,
        app_versions: Sequence[str] | None = None,
    ) -> tuple[Claim, ...]:
        """Admit the first runs in line and claim them for ``owner``, while fewer than ``cap`` runs are running.

        Admits at most ``limit`` runs (1 to 500). With ``workflow_names`` (at most 50), admits runs of these workflows
        only, and ``cap`` counts only their running runs: services that share a database do not use up each other's
        places. Without names ``cap`` counts all running runs. Each of ``workflow_caps`` (at most 50) counts the running
        runs of its workflow. Runs of a workflow that is full are skipped. With ``app_versions`` admits only runs that
        `Claims.take_next` would take with the same versions; the caps still count all versions. Runs that others are
        changing at this moment are left for a later call. Runs that are not due, or whose workflow is switched off,
        keep their place and do not hold up others. Callers of all processes take a lock, so that together they never
        exceed a cap. Returns the claims in the order of the line. A release puts a run back into its old place.
        """
        holder = holding_parameters(self._now(), owner, lease)
        names = shared.some_workflows(workflow_names)
        caps = check_caps(workflow_caps)
        given = {"of": names, "versions": shared.some_versions(app_versions)}
        valid.number("cap", cap)
        valid.page_limit(limit)
        if names == []:
            return ()
        if self._backend.locks_in_one_trip and not caps:
            taken = self._once(lambda unit: statements.admit_at_once(unit, cap, holder, limit, given))
        else:
            taken = self._writing(lambda unit: statements.admit_next(unit, cap, caps, holder, limit, given))
        return tuple(claim_of(row, lease) for row in taken)

    def wait(
        self,
        *,
        cap: int,
        timeout: float,
        workflow_names: Sequence[str] | None = None,
        workflow_caps: Mapping[str, int] | None = None,
        app_versions: Sequence[str] | None = None,
        claimable: bool = False,
        poll_interval: float | None = None,
    ) -> bool:
        """Wait for a run that `admit_next` would admit. Returns true if there is one, false after ``timeout`` seconds.

        With ``claimable``, a run of these workflows that `Claims.take_next` would take ends the wait, too, for a worker
        that does both. Notices a run that is queued, comes due or gets room below the caps meanwhile. It is noticed
        within ``poll_interval`` seconds, or within half a second while polls are slow. Without ``poll_interval`` it is
        noticed within 50 ms if this store committed the change, and otherwise within 250 ms for the first 15 seconds
        without news; then the interval grows, to a second after a minute. One thread of the store polls for all callers
        and holds no connection between two polls. Another process may be quicker: call `admit_next` to be sure. Raises
        `MisuseError` in a transaction, `StoreClosed`.
        """
        return self._work_wait(
            cap, timeout, workflow_names, workflow_caps, app_versions, claimable, poll_interval
        ).wait()

    def requeue(
        self, run_id: str, *, reason: str, not_before: datetime | None = None, claim: Claim | None = None
    ) -> WorkflowRun:
        """Send a running or queued run to the end of the line.

        Runs that entered the line in the same millisecond are in the order of their ids. The run keeps its
        ``started_at``. Its claim ends: a later write with the claim raises `ClaimLost`. ``reason`` is text of at most
        2 KiB. `admit_next` skips the run until ``not_before``; a queued run keeps its earlier ``not_before`` unless a
        new one is given. Raises `NotFound`, `ClaimLost`, `Conflict` ``run_status``; then nothing changed.
        """
        now = self._now()
        wake_at = None if not_before is None else aware_utc("not_before", not_before)
        detail = valid.content("reason", reason, _TRANSITION.detail)

        def work(unit: Unit) -> WorkflowRun:
            row = run_rows.lock(unit, run_id)
            run_rows.check(row, claim)
            run_rows.expect(row, ("running", "queued"))
            how = transitions.REQUEUE if row.status == "running" else transitions.QUEUE_AGAIN
            return transitions.move(
                unit, how, row, "queued", reason="run.requeued", at=now, source="engine", detail=detail,
                presented_epoch=claim.epoch if claim else None, wake_at=wake_at,
            )  # fmt: skip

        return self._writing(work)

    def expire(
        self, older_than: timedelta, *, reason: str, limit: int = 500, workflow_names: Sequence[str] | None = None
    ) -> tuple[str, ...]:
        """Cancel runs that have been queued for longer than ``older_than``. Returns the ids of the cancelled runs.

        ``reason`` becomes the error of each run. Looks at the first ``limit`` runs in line, of ``workflow_names`` or of
        all workflows. Each run takes one transaction. A run that was admitted or requeued meanwhile is not cancelled.
        """
        now = self._now()
        cutoff = to_millis(now - valid.duration("older_than", older_than, most=LONGEST))
        error = valid.content("reason", reason, _RUN.error)
        names = shared.some_workflows(workflow_names)
        valid.page_limit(limit)
        if names == []:
            return ()

        def find_overdue(size: int) -> shared_overdue.DueRuns:
            return self._reading(lambda unit: _overdue_runs(unit, cutoff, names, size))

        swept = shared_overdue.expire_in_batches(
            find_overdue, limit, lambda run_id: self._expire(run_id, cutoff, error, now)
        )
        return tuple(run_id for run_id, expired in swept if expired)

    def _work_wait(
        self,
        cap: int,
        timeout: float,
        workflow_names: Sequence[str] | None,
        workflow_caps: Mapping[str, int] | None,
        app_versions: Sequence[str] | None,
        claimable: bool,
        poll_interval: float | None,
    ) -> overdue.WorkWait:
        """Check the arguments of `wait`. Return the `WorkWait` for admissible runs that they describe."""
        names = shared.frozen_workflows(workflow_names)
        caps = tuple(check_caps(workflow_caps).items())
        versions = shared.frozen_versions(app_versions)
        also = Claimable(names, versions) if valid.flag("claimable", claimable) else None
        sought = statements.Admissible(valid.number("cap", cap), caps, names, versions, also)
        return overdue.WorkWait(self._scope, self._now, self._overdue, sought, timeout, poll_interval)

    def _expire(self, run_id: str, cutoff: datetime, error: str, now: datetime) -> bool:
        return self._writing(lambda unit: _expire(unit, self._listeners, run_id, cutoff, error, now))


def _overdue_runs(unit: Unit, cutoff: datetime, names: Sequence[str] | None, limit: int) -> shared_overdue.DueRuns:
    """Return the first runs in line that were queued before ``cutoff``, of the workflows ``names`` or of all."""
    statement, given = sql.OVERDUE.of({"of": names})
    rows, in_all = unit.readable_rows(statement, {**given, "cutoff": cutoff, "limit": limit})
    return shared_overdue.DueRuns([run_id for (run_id,) in rows], in_all)


def _expire(unit: Unit, listeners: Listeners, run_id: str, cutoff: datetime, error: str, at: datetime) -> bool:
    """Cancel a run if it has been queued since before ``cutoff`` and still is. Returns true if it was cancelled."""
    row = run_rows.lock(unit, run_id, sql.LOCK)
    if row.status != "queued" or row.queued_at is None or row.queued_at >= cutoff:
        return False
    transitions.end(unit, listeners, row, "cancelled", reason="queue.expired", error=error, at=at, source="system")
    return True
