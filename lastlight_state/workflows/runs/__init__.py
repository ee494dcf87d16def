"""Workflow runs: one row per dispatch, with all that an engine needs to resume it.

A run's ``context`` never changes. ``scratch`` is small JSON that one phase hands to the next; large text belongs in
the output of an execution, with a pointer in scratch. ``phase_history`` only grows. Every change of status is recorded
with its reason. Writes of an engine take the ``claim`` that holds the run, or raise `ClaimLost`; calls of an operator
check the status instead.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from lastlight_state.db import valid
from lastlight_state.db.repository import Repository
from lastlight_state.db.rows.records import Page
from lastlight_state.db.schema.declarations import limits_of
from lastlight_state.db.units.unit import Unit
from lastlight_state.errors import AlreadyExists, Conflict
from lastlight_state.lazy import Part
from lastlight_state.workflows import checks as shared, repos, words
from lastlight_state.workflows.arguments import Claim, Failure, PhaseEntry, RunOptions, Trigger
from lastlight_state.workflows.records import EnsuredRun, RunProgress, RunSummary, WorkflowRun
from lastlight_state.workflows.runs import checks, lists, statements, statements as sql
from lastlight_state.workflows.runs.checks import Cancel
from lastlight_state.workflows.runs.statements import NewRun
from lastlight_state.workflows.shared import progress, run_rows, transitions
from lastlight_state.workflows.shared.progress import Step
from lastlight_state.workflows.shared.run_rows import LockedRun
from lastlight_state.workflows.tables import RUNS

_LIMITS = limits_of(RUNS)

if TYPE_CHECKING:
    from lastlight_state.workflows.runs.resume import ResumeView

T = TypeVar("T")

#: The runs that a cancel reaches: only the run itself, or also its live descendants.
CancelScope = Literal["run", "tree"]

NO_OPTIONS = RunOptions()

#: The error codes for an id that is used already: of the unique index, or of the guard that fires before it.
_ID_IS_USED = ("unique", "refused_by_database")


class Runs(Repository):
    """``store.workflows.runs``: create, read, change, end, cancel and restart runs."""

    #: Imported at its first use, because it needs the records of other packages.
    _read_resume: Part[Callable[[Unit, str, datetime], ResumeView]] = Part(
        "lastlight_state.workflows.runs.resume.read", lambda _, read: read
    )

    def create(
        self,
        workflow_name: str,
        *,
        trigger: Trigger,
        phase: str,
        context: Any = None,
        scratch: dict[str, Any] | None = None,
        options: RunOptions = NO_OPTIONS,
    ) -> WorkflowRun:
        """Store a new run, running or queued, and return it.

        A run for a worker is created with ``options=RunOptions(offered=True)``. Any other running run is left to its
        creator for 30 seconds; then others may take it, which costs no restart. Raises `AlreadyExists` for a used id,
        `NotFound` for an unknown parent, `Conflict` ``workflow_disabled`` while the workflow is switched off, and
        `Conflict` ``parent_cancelled`` if the parent is cancelled or has a cancel request.
        """
        row = checks.new_run(
            self._settings.limits, self._now(), workflow_name, trigger, phase, context, scratch, options
        )
        return self._insert(row, lambda: self._chained(lambda unit: statements.insert(unit, row)))

    def ensure(
        self,
        run_key: str,
        workflow_name: str,
        *,
        trigger: Trigger,
        phase: str,
        context: Any = None,
        scratch: dict[str, Any] | None = None,
        options: RunOptions = NO_OPTIONS,
    ) -> EnsuredRun:
        """Return the run with this key, or create it as `create` does. Keys are unique per workflow.

        The same key with another trigger, repository, context or parent raises `AlreadyExists` with the id of the run.
        Any number of concurrent calls create one run.
        """
        row = checks.new_run(
            self._settings.limits, self._now(), workflow_name, trigger, phase, context, scratch, options
        )
        row["run_key"] = valid.identifier("run_key", run_key, _LIMITS.run_key)
        row["create_digest"] = checks.create_digest(row, context)
        found = self._reading(lambda unit: statements.find(unit, row))
        return found or self._insert(
            row, lambda: self._writing(lambda unit: statements.find_or_insert(unit, row), repeatable=True)
        )

    def get(self, run_id: str) -> WorkflowRun:
        """Return the whole run. Raises `NotFound`, or `CorruptData` if its JSON cannot be read."""
        return self._get_row(run_rows.GET, {"run_id": run_id}, kind="workflow_run", key=run_id)

    def find(self, run_id: str) -> WorkflowRun | None:
        """Return the whole run, or None. Raises `CorruptData` as `get`."""
        return self._find(run_rows.GET, {"run_id": valid.lookup_text("run_id", run_id)})

    def get_resume(self, run_id: str) -> ResumeView:
        """Return everything that an engine needs to resume a run, read from one snapshot. Raises as `get` does."""
        now = self._now()
        return self._viewing(lambda unit: self._read_resume(unit, run_id, now))

    def list(
        self,
        *,
        statuses: Sequence[words.RunStatus] | None = None,
        workflow_names: Sequence[str] | None = None,
        repo: str | Sequence[str] | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        triggered_by: str | None = None,
        order: Literal["newest", "active_first"] = "newest",
        limit: int = 50,
        page_token: str | None = None,
    ) -> Page[RunSummary]:
        """Return a page of runs with their totals, newest first.

        ``repo`` is ``"owner/name"``, or a bare name for any owner; or at most 50 of these. ``since`` (inclusive) and
        ``until`` (exclusive) bound the start of runs. ``triggered_by`` is the actor of the trigger. An empty sequence
        matches nothing. ``active_first`` lists running, paused and queued runs before all others.

        A search for rare ``statuses`` of ended runs, or for an actor with few runs, reads all newer runs: give
        ``since``, a workflow or a repository.
        """
        given = shared.list_filters(statuses, workflow_names, None, since, until)
        given["triggered_by"] = valid.optional("triggered_by", triggered_by, _LIMITS.triggered_by)
        given |= {} if repo is None else repos.repos_filter(repo)
        valid.page_limit(limit)
        how = lists.ORDERS[valid.word("order", order, lists.ORDERS)]
        return self._viewing(lambda unit: how(unit, given, limit, page_token))

    def append_phase(
        self, run_id: str, entry: PhaseEntry, *, scratch: dict[str, Any] | None = None, claim: Claim | None = None
    ) -> RunProgress:
        """Append a completed phase to the history of a live run, make it the current phase, and merge ``scratch``.

        Concurrent calls all take effect, in the order of their commits. Raises `PayloadTooLarge` past 2,000 entries or
        256 KiB.
        """
        now = self._now()
        added = shared.phase_entry(entry, now)
        patch = shared.scratch_patch(scratch)
        step = Step(run_id, now, added, patch)
        return self._writing(lambda unit: progress.take(unit, step, self._settings.limits, claim))

    def merge_scratch(
        self, run_id: str, patch: dict[str, Any], *, remove: Sequence[str] = (), claim: Claim | None = None
    ) -> RunProgress:
        """Set top-level keys of a live run's scratch and drop the keys in ``remove``. Nested values are replaced whole.

        A value None is stored as null. Concurrent patches of different keys all take effect. The limit of 64 KiB
        applies to the result; a result over the limit is accepted if it is smaller than before. `PayloadTooLarge` names
        the largest key.
        """
        now = self._now()
        step = Step(run_id, now, None, *checks.merge(patch, remove))
        return self._writing(lambda unit: progress.take(unit, step, self._settings.limits, claim))

    def set_trace(self, run_id: str, *, trace_id: str | None, span_id: str | None) -> None:
        """Store the trace id and span id of a run. No other column changes. Raises `NotFound`."""
        values = {
            "run_id": run_id,
            "trace_id": valid.optional("trace_id", trace_id),
            "span_id": valid.optional("span_id", span_id),
        }
        if not self._once(lambda unit: unit.change(sql.SET_TRACE, values)):
            raise valid.not_found("workflow_run", run_id)

    def finish(
        self,
        run_id: str,
        status: Literal["succeeded", "failed", "cancelled"],
        *,
        failure: Failure | None = None,
        marker: PhaseEntry | None = None,
        scratch: dict[str, Any] | None = None,
        reason: str | None = None,
        claim: Claim | None = None,
    ) -> WorkflowRun:
        """End a run and store its marker, scratch and error, in one transaction.

        The run's claim, executions in flight, pending questions, and running or waiting nodes end with it; nodes that
        never began stay pending. A running run may end with any status, a queued or paused run only as failed. A
        success has no ``failure``; its ``reason`` may say why it stopped. Repeat-safe for the same status and claim;
        any other end of an ended run raises `Conflict` ``run_status`` or `ClaimLost`.
        """
        now = self._now()
        ending = checks.check_ending(status, failure, reason)
        added = None if marker is None else shared.phase_entry(marker, now)
        step = Step(run_id, now, added, shared.scratch_patch(scratch))

        def work(unit: Unit) -> WorkflowRun:
            row = progress.lock(unit, step)
            if row.status in words.TERMINAL:
                return _finished_already(unit, row, status, claim)
            run_rows.check(row, claim)
            run_rows.expect(row, ("running",) if status != "failed" else words.LIVE)
            progress.add(unit, row, step, self._settings.limits)
            epoch = claim.epoch if claim else None
            return transitions.end(
                unit, self._listeners, row, status, at=now, source="engine", presented_epoch=epoch, **ending
            )

        return self._writing(work)

    def request_cancel(self, run_id: str, *, by: str, reason: str, scope: CancelScope = "run") -> WorkflowRun:
        """Request a cancel. A running run goes on until its holder ends it; queued and paused runs are cancelled now.

        The holder learns of the request by its next heartbeat, and may still end the run as succeeded. The first
        request is kept. ``scope="tree"`` includes all live descendants. An ended run raises `Conflict`. A run with a
        cancel request cannot get more children.
        """
        return self._cancel(Cancel(run_id, shared.operator(by, reason), self._now(), _is_tree(scope), ask=True))

    def cancel(self, run_id: str, *, by: str, reason: str, scope: CancelScope = "run") -> WorkflowRun:
        """Cancel a run now, whoever holds it: later writes of the holder are refused.

        Repeat-safe for a cancelled run. A succeeded or failed run raises `Conflict` ``run_status``.
        ``scope="tree"`` cancels the run and all live descendants, or nothing. A repeated call also cancels descendants
        that were created later.
        """
        return self._cancel(Cancel(run_id, shared.operator(by, reason), self._now(), _is_tree(scope), ask=False))

    def restart(
        self, run_id: str, *, by: str, reason: str, into: Literal["running", "queued"] = "running"
    ) -> WorkflowRun:
        """Start a failed or cancelled run again, if it is below its restart limit.

        The restart is counted. The old error stays in the run's transitions. Context, scratch, history and
        ``started_at`` are kept; end, error, cancel request, waits and claim are cleared. Raises `Conflict`
        ``restart_limit`` or ``workflow_disabled``; then nothing changed.
        """
        now = self._now()
        said = shared.operator(by, reason)
        valid.word("into", into, ("running", "queued"))

        def work(unit: Unit) -> WorkflowRun:
            row = run_rows.lock(unit, run_id, sql.LOCK_ENDED)
            run_rows.expect(row, ("failed", "cancelled"))
            if row.restart_count >= row.max_restarts:
                raise run_rows.restart_limit(row)
            if unit.value(sql.IS_DISABLED, {"workflow_name": row.workflow_name}) is not None:
                raise statements.disabled_error(row.workflow_name)
            detail = f"{said['detail']}; ended with: {row.error}" if row.error else said["detail"]
            queued_at = now if into == "queued" else None
            return transitions.move(
                unit, transitions.RESTART, row, into, at=now, source="operator", actor=said["actor"],
                reason="run.restarted", detail=detail, queued_at=queued_at,
            )  # fmt: skip

        return self._writing(work)

    def allow_restarts(self, run_id: str, max_restarts: int, *, by: str, reason: str) -> WorkflowRun:
        """Set the restart limit of a run: the total number of restarts that it may have (0 to 100).

        The change is recorded as a transition, and is the only way past the restart limit. A limit that is not above
        the run's present count allows no more restarts.
        """
        now = self._now()
        said = shared.operator(by, reason)
        valid.number("max_restarts", max_restarts, most=100)

        def work(unit: Unit) -> WorkflowRun:
            row = run_rows.lock(unit, run_id)
            detail = f"{row.max_restarts} to {max_restarts}: {said['detail']}"
            return transitions.move(
                unit, transitions.ALLOW_RESTARTS, row, row.status, at=now, source="operator", actor=said["actor"],
                reason="restarts.allowed", detail=detail, max_restarts=max_restarts,
            )  # fmt: skip

        return self._writing(work)

    def _cancel(self, cancel: Cancel) -> WorkflowRun:
        return self._writing(lambda unit: checks.carry_out(unit, self._listeners, cancel))

    def _insert(self, row: NewRun, insert: Callable[[], T | None]) -> T:
        """Call ``insert`` and return its result.

        If the result is None, raise an error with the reason why no run was inserted.
        """
        try:
            made = insert()
        except Conflict as error:
            if error.code in _ID_IS_USED:
                raise AlreadyExists("workflow_run", row["id"]) from error
            raise
        if made is None:
            raise self._reading(lambda unit: statements.refusal(unit, row))
        return made


def _finished_already(unit: Unit, row: LockedRun, status: str, claim: Claim | None) -> WorkflowRun:
    """Return the stored run if this end is repeated. Any other end of an ended run is an error."""
    ended_by = unit.value(sql.ENDED_BY, {"run_id": row.id, "status": row.status})
    own = claim is None or valid.argument_group("claim", claim, Claim).run_id == row.id
    if own and row.status == status and ended_by == (claim.epoch if claim else None):
        return run_rows.get(unit, row.id)
    if claim is not None:
        run_rows.check(row, claim)
    raise run_rows.wrong_status(row.id, row.status, ("running",))


def _is_tree(scope: str) -> bool:
    return valid.word("scope", scope, ("run", "tree")) == "tree"
