"""Check the arguments of `runs` before any statement; carry out cancels."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypedDict, cast

from lastlight_state import codec, metrics
from lastlight_state.clock import aware_utc
from lastlight_state.db import valid
from lastlight_state.db.news.listeners import Listeners
from lastlight_state.db.schema.declarations import limits_of
from lastlight_state.db.units.unit import Unit
from lastlight_state.errors import InvalidValue
from lastlight_state.ids import new_id
from lastlight_state.settings import Limits
from lastlight_state.workflows import words
from lastlight_state.workflows.arguments import Failure, Provenance, RunOptions, Trigger
from lastlight_state.workflows.checks import Operator, failure_columns, no_success, scratch_patch, trigger_columns
from lastlight_state.workflows.records import WorkflowRun
from lastlight_state.workflows.runs import statements as sql
from lastlight_state.workflows.runs.statements import NewRun, ProvenanceColumns, RunFacts, new_row
from lastlight_state.workflows.shared import run_rows, transitions
from lastlight_state.workflows.shared.progress import encoded_scratch
from lastlight_state.workflows.shared.run_rows import LockedRun
from lastlight_state.workflows.shared.transitions import TransitionParameters
from lastlight_state.workflows.tables import RUNS

# How runs are cancelled: on request or at once, one run or its whole tree.


@dataclass(frozen=True)
class Cancel:
    """The arguments of a cancel.

    With ``ask``, a running run only gets a cancel request, and its holder ends the run.
    """

    run_id: str
    said: Operator
    at: datetime
    tree: bool
    ask: bool


def carry_out(unit: Unit, listeners: Listeners, cancel: Cancel) -> WorkflowRun:
    """Cancel a run. With ``tree``, cancel its live descendants, too. Returns the run. Raises `NotFound`."""
    cancelled: dict[str, WorkflowRun] = {}
    for run_id in _tree(unit, cancel.run_id) if cancel.tree else (cancel.run_id,):
        row = run_rows.lock(unit, run_id)
        if run_id == cancel.run_id or row.status in words.LIVE:
            cancelled[run_id] = _cancel_run(unit, listeners, row, cancel)
    if cancel.run_id not in cancelled:
        raise valid.not_found("workflow_run", cancel.run_id)
    return cancelled[cancel.run_id]


def _tree(unit: Unit, root: str) -> Iterator[str]:
    """Yield the ids of a run and its descendants, ascending. The caller must lock each run before it takes the next id.

    The query is repeated until it finds no new run, because a child may have been created while the caller waited for
    its parent's lock. A named lock lets only one caller at a time walk a tree. Without it, two callers could deadlock:
    runs found late are locked out of order.
    """
    unit.named_lock("run_tree")
    seen: set[str] = set()
    while found := [run_id for run_id in unit.values(sql.TREE, {"run_id": root}) if run_id not in seen]:
        yield from found
        seen.update(found)


def _cancel_run(unit: Unit, listeners: Listeners, row: LockedRun, cancel: Cancel) -> WorkflowRun:
    if row.status == "cancelled" and not cancel.ask:
        return run_rows.get(unit, row.id)
    run_rows.expect(row, words.LIVE)
    said: TransitionParameters = {**cancel.said, "at": cancel.at, "source": "operator"}
    if cancel.ask and row.status == "running":
        if row.cancel_requested_at is not None:
            return run_rows.get(unit, row.id)
        return transitions.move(unit, transitions.ASK_CANCEL, row, "running", reason="cancel.requested", **said)
    return transitions.end(unit, listeners, row, "cancelled", reason="run.cancelled", **said)


_LIMITS = limits_of(RUNS)

_ANY_SIZE = 2**40


class Ending(TypedDict):
    """The end of a run: its reason code, error text and details."""

    reason: str
    error: str | None
    error_detail: str | None


def new_run(
    limits: Limits,
    now: datetime,
    workflow_name: str,
    trigger: Trigger,
    phase: str,
    context: Any,
    scratch: dict[str, Any] | None,
    options: RunOptions,
) -> NewRun:
    """Check the arguments of a new run and return its row."""
    valid.argument_group("options", options, RunOptions)
    patch = scratch_patch(scratch)
    if valid.flag("offered", options.offered) and options.status == "queued":
        raise InvalidValue("offered", "a queued run is offered when it is admitted: leave offered out, or the status")
    facts: RunFacts = {
        "id": new_id() if options.id is None else valid.identifier("id", options.id, _LIMITS.id),
        "workflow_name": valid.identifier("workflow_name", workflow_name, _LIMITS.workflow_name),
        "current_phase": valid.identifier("phase", phase, _LIMITS.current_phase),
        "status": valid.word("status", options.status, ("queued", "running")),
        "context": None if context is None else codec.encode("context", context, max_bytes=limits.context),
        "scratch": None if patch is None else encoded_scratch(patch, limits),
        "parent_run_id": valid.optional("parent_run_id", options.parent_run_id, _LIMITS.parent_run_id),
        "max_restarts": valid.number("max_restarts", options.max_restarts, most=100),
        "wake_at": None if options.not_before is None else aware_utc("not_before", options.not_before),
        "deadline_at": None if options.deadline_at is None else aware_utc("deadline_at", options.deadline_at),
        **trigger_columns(trigger),
        **_provenance(options.provenance),
    }
    return new_row(now, facts, offered=options.offered)


def create_digest(row: Mapping[str, Any], context: Any) -> str:
    """Return the digest by which `ensure` recognises an equal creation: of trigger, repository, context and parent."""
    names = ("trigger_id", "trigger_type", "owner", "repo", "issue_number", "parent_run_id")
    return codec.digest([[row[name] for name in names], context])


def merge(patch: dict[str, Any], remove: Sequence[str]) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return a checked patch of scratch, and the keys to drop from scratch."""
    checked = scratch_patch(patch)
    if checked is None:
        raise InvalidValue("scratch", "expected an object, got NoneType")
    return checked, tuple(valid.content("remove", key, _ANY_SIZE) for key in valid.several("remove", remove))


def check_ending(status: str, failure: Failure | None, reason: str | None) -> Ending:
    """Check the arguments that end a run. Return the reason code, error text and details."""
    valid.word("status", status, words.TERMINAL)
    stop = None if failure is None else valid.argument_group("failure", failure, Failure).stop_reason
    code = valid.optional("reason", reason if reason is not None else stop, _LIMITS.status_reason) or "run.finished"
    no_success(status, failure, instead="reason")
    if failure is None:
        return {"reason": code, "error": None, "error_detail": None}
    return {"reason": code, **failure_columns(failure)}


def _provenance(provenance: Provenance) -> ProvenanceColumns:
    given = vars(valid.argument_group("provenance", provenance, Provenance))
    span = None if metrics.current_span is None or given["trace_id"] is not None else metrics.current_span()
    if span is not None:
        given = {**given, "trace_id": span[0], "span_id": span[1]}
    checked = {
        name: valid.optional(f"provenance.{name}", value, getattr(_LIMITS, name)) for name, value in given.items()
    }
    return cast(ProvenanceColumns, checked)
