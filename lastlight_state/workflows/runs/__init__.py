"""Workflow runs: one row per dispatch, and what resumes it.

A run's ``context`` never changes; ``scratch`` is the small JSON that its phases hand on (large text goes to an
execution's ``output_text``, and scratch holds the pointer); ``phase_history`` only grows. Every change of status is
recorded with its reason. Engine writes take the ``claim`` that holds the run and are refused with `ClaimLost`
otherwise; operators' calls compare the status.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, Literal, TypeVar

from lastlight_state import codec
from lastlight_state.db import valid
from lastlight_state.db.records import Page
from lastlight_state.db.repository import Repository
from lastlight_state.db.unit import Unit
from lastlight_state.errors import AlreadyExists, Conflict, NotFound, StateError
from lastlight_state.workflows import checks as shared, words
from lastlight_state.workflows.arguments import DEFAULTS, Claim, Failure, PhaseEntry, RunOptions, Trigger
from lastlight_state.workflows.kernel import fence, progress as run_progress, rows as run_rows, transitions
from lastlight_state.workflows.kernel.progress import Step
from lastlight_state.workflows.records import EnsuredRun, RunProgress, RunSummary, WorkflowRun
from lastlight_state.workflows.runs import (
    cancels as run_cancels,
    checks as run_checks,
    lists as run_list,
    resume as run_resume,
    statements as sql,
)
from lastlight_state.workflows.runs.cancels import Cancel
from lastlight_state.workflows.runs.resume import ResumeView

T = TypeVar("T")

Scope = Literal["run", "tree"]


class Runs(Repository):
    """``store.workflows.runs``"""

    def create(
        self,
        workflow_name: str,
        *,
        trigger: Trigger,
        phase: str,
        context: Any = None,
        scratch: dict[str, Any] | None = None,
        options: RunOptions = DEFAULTS,
    ) -> WorkflowRun:
        """Store a new run, running or queued, and return it.

        A running one has 30 seconds of grace before others may take it. Raises `AlreadyExists` for a used id,
        `NotFound` for an unknown parent, `Conflict` ``workflow_disabled`` while the workflow's kill switch is off,
        ``parent_cancelled`` under a parent that is cancelled or asked to be: no child escapes a cancel of the tree.
        """
        row = run_checks.new_run(
            self._settings.limits, self._now(), workflow_name, trigger, phase, context, scratch, options
        )
        return self._insert(row, lambda: self._chained(lambda unit: _inserted(unit, row)))

    def ensure(
        self,
        run_key: str,
        workflow_name: str,
        *,
        trigger: Trigger,
        phase: str,
        context: Any = None,
        scratch: dict[str, Any] | None = None,
        options: RunOptions = DEFAULTS,
    ) -> EnsuredRun:
        """The run of this key, made now unless it is there. Keys are unique per workflow.

        The same key with another trigger, repository, context or parent is `AlreadyExists`, which carries the run's
        id. Any number of concurrent calls make one run.
        """
        row = run_checks.new_run(
            self._settings.limits, self._now(), workflow_name, trigger, phase, context, scratch, options
        )
        row["run_key"] = valid.identifier("run_key", run_key, words.RUN_KEY)
        row["create_digest"] = run_checks.create_digest(row, context)
        found = self._reading(lambda unit: _found(unit, row))
        return found or self._insert(
            row, lambda: self._writing(lambda unit: _find_or_insert(unit, row), repeatable=True)
        )

    def get(self, run_id: str) -> WorkflowRun:
        """The whole run. Raises `NotFound`, or `CorruptData` where its JSON cannot be read."""
        return self._reading(lambda unit: run_rows.get(unit, run_id))

    def get_resume(self, run_id: str) -> ResumeView:
        """Everything that resuming a run begins with, all of one moment. Raises as `get`."""
        return self._viewing(lambda unit: run_resume.read(unit, run_id))

    def list(
        self,
        *,
        statuses: Sequence[words.RunStatus] | None = None,
        workflow_names: Sequence[str] | None = None,
        repo: str | None = None,
        since: datetime | None = None,
        order: Literal["newest", "active_first"] = "newest",
        limit: int = 50,
        page_token: str | None = None,
    ) -> Page[RunSummary]:
        """A page of runs with their totals, newest first.

        ``repo`` is ``"owner/name"``, or a bare name for any owner. ``since`` is inclusive. An empty sequence matches
        nothing. ``active_first`` shows running, paused and queued runs before the rest.
        """
        given = shared.list_filters(statuses, workflow_names, repo, since)
        valid.page_limit(limit)
        how = run_list.ORDERS[valid.word("order", order, run_list.ORDERS)]
        seen = self._reading if order == "newest" else self._viewing  # several ranges of one moment
        return seen(lambda unit: how(unit, given, limit, page_token))

    def append_phase(
        self, run_id: str, entry: PhaseEntry, *, scratch: dict[str, Any] | None = None, claim: Claim | None = None
    ) -> RunProgress:
        """Add a completed phase to the history of a live run, make it the current phase, and merge ``scratch`` with it.

        Concurrent calls all survive, in the order they commit. Raises `PayloadTooLarge` past 2,000 entries or 256 KiB.
        """
        now = self._now()
        added = shared.phase_entry(entry, now)
        patch = shared.scratch_patch(scratch)
        step = Step(run_id, now, added, patch)
        return self._writing(lambda unit: run_progress.take(unit, step, self._settings.limits, claim))

    def merge_scratch(
        self, run_id: str, patch: dict[str, Any], *, remove: Sequence[str] = (), claim: Claim | None = None
    ) -> RunProgress:
        """Set top-level keys of a live run's scratch, and drop those in ``remove``; nested values are replaced whole.

        Merged under the run's lock, so concurrent patches of different keys all survive. The limit of 64 KiB holds for
        the result; one that shrinks what was larger already is accepted. `PayloadTooLarge` names the largest key.
        """
        now = self._now()
        step = Step(run_id, now, None, *run_checks.merge(patch, remove))
        return self._writing(lambda unit: run_progress.take(unit, step, self._settings.limits, claim))

    def set_trace(self, run_id: str, *, trace_id: str | None, span_id: str | None) -> None:
        """Note the trace that the run belongs to. Nothing else of it changes. Raises `NotFound`."""
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
        """End a run: marker, scratch, error, status and everything that hangs on it, in one transaction.

        Running runs end in any way, queued and paused ones only failed. Repeat-safe for the same status and claim;
        anything else on an ended run is `Conflict` ``run_status``, or `ClaimLost`.
        """
        now = self._now()
        valid.word("status", status, words.TERMINAL)
        ending = run_checks.ending(failure, reason)
        added = None if marker is None else shared.phase_entry(marker, now)
        step = Step(run_id, now, added, shared.scratch_patch(scratch))

        def work(unit: Unit) -> WorkflowRun:
            row = run_progress.lock(unit, step)
            if row["status"] in words.TERMINAL:
                return _finished_already(unit, row, status, claim)
            fence.fence(row, claim)
            run_rows.expect(row, ("running",) if status != "failed" else words.LIVE)
            run_progress.add(unit, row, step, self._settings.limits)
            epoch = claim.epoch if claim else None
            return transitions.end(
                unit, self._listeners, row, status, at=now, source="engine", presented_epoch=epoch, **ending
            )

        return self._writing(work)

    def request_cancel(self, run_id: str, *, by: str, reason: str, scope: Scope = "run") -> WorkflowRun:
        """Ask for a cancel. A running run goes on until its holder obeys; a queued or paused one is cancelled at once.

        The first request stays. ``scope="tree"`` asks all live descendants too. An ended run is `Conflict`. No run
        that was asked gets children any more.
        """
        return self._cancel(Cancel(run_id, shared.operator(by, reason), self._now(), _is_tree(scope), ask=True))

    def cancel(self, run_id: str, *, by: str, reason: str, scope: Scope = "run") -> WorkflowRun:
        """Cancel now, whoever holds the run: the holder is fenced.

        Repeat-safe on a cancelled run; a succeeded or failed one is `Conflict` ``run_status``.
        """
        return self._cancel(Cancel(run_id, shared.operator(by, reason), self._now(), _is_tree(scope), ask=False))

    def restart(
        self, run_id: str, *, by: str, reason: str, into: Literal["running", "queued"] = "running"
    ) -> WorkflowRun:
        """Start a failed or cancelled run again, once more than before, below its limit.

        Context, scratch, history and ``started_at`` stay; end, error, cancel request, waits and claim are cleared.
        Raises `Conflict` ``restart_limit`` or ``workflow_disabled``; then nothing changed.
        """
        now = self._now()
        said = shared.operator(by, reason)
        valid.word("into", into, ("running", "queued"))

        def work(unit: Unit) -> WorkflowRun:
            row = run_rows.lock(unit, run_id, sql.LOCK_ENDED)
            run_rows.expect(row, ("failed", "cancelled"))
            if row["restart_count"] >= row["max_restarts"]:
                raise run_rows.restart_limit(row)
            if unit.row(sql.IS_DISABLED, row):
                raise _disabled(row["workflow_name"])
            detail = f"{said['detail']}; ended with: {row['error']}" if row["error"] else said["detail"]
            queued_at = now if into == "queued" else None
            return transitions.move(
                unit, transitions.RESTART, row, into, at=now, source="operator", actor=said["actor"],
                reason="run.restarted", detail=detail, queued_at=queued_at,
            )  # fmt: skip

        return self._writing(work)

    def allow_restarts(self, run_id: str, max_restarts: int, *, by: str, reason: str) -> WorkflowRun:
        """Set how often the run may be restarted in all (0 to 100): the one way past the breaker, recorded."""
        now = self._now()
        said = shared.operator(by, reason)
        valid.number("max_restarts", max_restarts, most=100)

        def work(unit: Unit) -> WorkflowRun:
            row = run_rows.lock(unit, run_id)
            detail = f"{row['max_restarts']} to {max_restarts}: {said['detail']}"
            return transitions.move(
                unit, transitions.ALLOW_RESTARTS, row, row["status"], at=now, source="operator", actor=said["actor"],
                reason="restarts.allowed", detail=detail, max_restarts=max_restarts,
            )  # fmt: skip

        return self._writing(work)

    def _cancel(self, cancel: Cancel) -> WorkflowRun:
        return self._writing(lambda unit: run_cancels.carry_out(unit, self._listeners, cancel))

    def _insert(self, row: dict[str, Any], insert: Callable[[], T | None]) -> T:
        """What ``insert`` made; where it made nothing, the reason as an error."""
        try:
            made = insert()
        except Conflict as error:
            if error.code in ("unique", "refused_by_database"):  # the id, by its index or by the guard before it
                raise AlreadyExists("workflow_run", row["id"]) from error
            raise
        if made is None:
            raise self._reading(lambda unit: _refusal(unit, row))
        return made


def _find_or_insert(unit: Unit, row: dict[str, Any]) -> EnsuredRun | None:
    unit.named_lock(f"run_key:{row['workflow_name']}:{row['run_key']}")
    found = _found(unit, row)
    if found is not None:
        return found
    made = _inserted(unit, row)
    return None if made is None else EnsuredRun.of({"run": made, "created": True})


def _found(unit: Unit, row: dict[str, Any]) -> EnsuredRun | None:
    """The run that has the key of ``row``. Raises `AlreadyExists` where it was made from something else."""
    found = unit.row(sql.FIND_KEY, row)
    if found is None:
        return None
    if found.pop("create_digest") != row["create_digest"]:
        raise AlreadyExists(
            "workflow_run", found["id"], problem="has this key with another content", run_key=row["run_key"]
        )
    return EnsuredRun.of({"run": WorkflowRun.of(found), "created": False})


def _inserted(unit: Unit, row: dict[str, Any]) -> WorkflowRun | None:
    """The run inserted, as a later read gives it; None where the statement inserted nothing."""
    stated = {name: value for name, value in row.items() if value is not None}
    if unit.chain(sql.create(frozenset(stated)), stated | sql.first_transition(row)) is None:
        return None
    return WorkflowRun.of({column.name: _read_back(column.name, row[column.name]) for column in run_rows.COLUMNS})


def _read_back(name: str, value: Any) -> Any:
    return codec.decode(value) if value is not None and name in ("context", "scratch", "phase_history") else value


def _refusal(unit: Unit, row: dict[str, Any]) -> StateError:
    parent = row["parent_run_id"]
    if parent is None or unit.row(sql.IS_DISABLED, row):
        return _disabled(row["workflow_name"])
    if unit.row(run_rows.EXISTS, {"run_id": parent}) is None:
        return NotFound("workflow_run", parent, reason="named as parent")
    return Conflict(
        f"run {parent!r} is cancelled or asked to be, and gets no children",
        code="parent_cancelled",
        parent_run_id=parent,
    )


def _disabled(workflow_name: str) -> Conflict:
    return Conflict(
        f"workflow {workflow_name!r} is switched off", code="workflow_disabled", workflow_name=workflow_name
    )


def _finished_already(unit: Unit, row: dict[str, Any], status: str, claim: Claim | None) -> WorkflowRun:
    """The stored run for the same finish again; anything else on an ended run is an error."""
    ended_by = unit.value(sql.ENDED_BY, {"run_id": row["id"], "status": row["status"]})
    own = claim is None or valid.group("claim", claim, Claim).run_id == row["id"]
    if own and row["status"] == status and ended_by == (claim.epoch if claim else None):
        return run_rows.get(unit, row["id"])
    if claim is not None:
        fence.fence(row, claim)
    raise run_rows.wrong_status(row["id"], row["status"], ("running",))


def _is_tree(scope: str) -> bool:
    return valid.word("scope", scope, ("run", "tree")) == "tree"
