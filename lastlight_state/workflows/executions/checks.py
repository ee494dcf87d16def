"""Check the arguments of `executions` before any statement."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from lastlight_state import codec
from lastlight_state.clock import aware_utc
from lastlight_state.db import valid
from lastlight_state.db.rows.statements import Row
from lastlight_state.db.schema.declarations import limits_of
from lastlight_state.errors import InvalidValue
from lastlight_state.ids import new_id
from lastlight_state.settings import Limits
from lastlight_state.workflows import words
from lastlight_state.workflows.arguments import Claim, ExecutionOptions, Failure, NodeRef, Trigger, Usage
from lastlight_state.workflows.checks import (
    TriggerColumns,
    failure_columns,
    fence_parameters,
    no_success,
    node_columns,
    trigger_columns,
)
from lastlight_state.workflows.executions.changes import (
    Ending,
    Finish,
    Interruption,
    NewExecution,
    OutputText,
    Overruling,
    Update,
    UsageColumns,
    UsageCounts,
)
from lastlight_state.workflows.executions.lists import ANY_OUTCOME, POINTER
from lastlight_state.workflows.tables import EXECUTIONS
from lastlight_state.workflows.words import cost_of, float_dollars

_LIMITS = limits_of(EXECUTIONS)

CHAT = "chat"
ENDED = words.OUTCOMES - {"running"}


def new_execution(
    now: datetime, skill: str, run_id: str | None, node: NodeRef | None, options: ExecutionOptions, claim: Claim | None
) -> NewExecution:
    """Check the arguments of a new execution in flight and return its row."""
    valid.argument_group("options", options, ExecutionOptions)
    fence = fence_parameters(claim)
    return {
        "id": new_id() if options.id is None else valid.identifier("id", options.id, _LIMITS.id),
        "skill": valid.identifier("skill", skill, _LIMITS.skill),
        "started_at": now if options.started_at is None else aware_utc("started_at", options.started_at),
        "finished_at": None,
        "success": None,
        "outcome": "running",
        "error": None,
        "duration_ms": None,
        "session_id": None,
        "stop_reason": None,
        "attempt": None,
        "node_state": "running",
        "at": now,
        "workflow_run_id": valid.optional("run_id", run_id, _LIMITS.workflow_run_id),
        "cached": valid.flag("cached", options.cached),
        "vcs_pointer": valid.optional("vcs_pointer", options.vcs_pointer, _LIMITS.vcs_pointer),
        "work_dir": valid.optional("work_dir", options.work_dir, _LIMITS.work_dir),
        "details": None
        if options.details is None
        else codec.encode("details", options.details, max_bytes=_LIMITS.details),
        "claim_epoch": fence["presented_epoch"],
        **node_columns(node),
        **fence,
    }


def in_a_run(trigger: Trigger | None) -> None:
    """Raise `InvalidValue` for a trigger given with a run: the execution copies the run's trigger."""
    if trigger is not None:
        raise InvalidValue("trigger", "must be None when run_id is given: the trigger of the run is used")


def alone(skill: str, trigger: Trigger | None, node: NodeRef | None, claim: Claim | None) -> TriggerColumns:
    """Return the trigger columns of an execution that belongs to no run.

    Raises `InvalidValue` if a node or a claim was given.
    """
    if trigger is None:
        raise InvalidValue("trigger", "missing: an execution without run_id needs a trigger")
    if node is not None or claim is not None:
        raise InvalidValue("node" if node is not None else "claim", "must not be given without a run_id")
    columns = trigger_columns(trigger)
    if columns["trigger_type"] is None:
        if skill != CHAT:
            raise InvalidValue("trigger.type", f"missing: only the skill {CHAT!r} needs none")
        columns["trigger_type"] = CHAT
    return columns


def usage_columns(usage: Usage | None) -> UsageColumns:
    """Return a checked usage report as columns, None for each figure that was not reported."""
    usage = Usage() if usage is None else valid.argument_group("usage", usage, Usage)
    counts: UsageCounts = {
        "turns": _count("turns", usage.turns),
        "input_tokens": _count("input_tokens", usage.input_tokens),
        "output_tokens": _count("output_tokens", usage.output_tokens),
        "cache_creation_input_tokens": _count("cache_creation_input_tokens", usage.cache_creation_input_tokens),
        "cache_read_input_tokens": _count("cache_read_input_tokens", usage.cache_read_input_tokens),
        "api_duration_ms": _count("api_duration_ms", usage.api_duration_ms),
    }
    cost = None if usage.cost_usd is None else cost_of("usage.cost_usd", usage.cost_usd)
    includes = valid.flag("usage.input_includes_cache_reads", usage.input_includes_cache_reads)
    says_nothing = usage.input_tokens is None and usage.cache_read_input_tokens is None
    return {
        **counts,
        "cost_micros": None if cost is None else cost.micros,
        "cost_picos": None if cost is None else cost.picos,
        "cost_usd": None if cost is None else float_dollars(cost),
        "input_includes_cache_reads": None if says_nothing else includes,
        "model": valid.optional("usage.model", usage.model, _LIMITS.model),
        "price_table": valid.optional("usage.price_table", usage.price_table, _LIMITS.price_table),
    }


def _count(name: str, value: int | None) -> int | None:
    return None if value is None else valid.number(f"usage.{name}", value, most=words.MOST_REPORTED)


def skipped_execution(
    now: datetime, skill: str, run_id: str, node: NodeRef | None, reason: str, claim: Claim | None
) -> NewExecution:
    """Check the arguments of a skipped execution and return its row."""
    row = new_execution(now, skill, run_id, node, ExecutionOptions(), claim)
    return {
        **row,
        "outcome": "skipped",
        "node_state": "skipped",
        "success": False,
        "stop_reason": "skipped",
        "duration_ms": 0,
        "finished_at": now,
        "error": _reason(reason),
    }


def update(
    execution_id: str,
    now: datetime,
    session_id: str | None,
    checkpoint: Any,
    usage: Usage | None,
    claim: Claim | None,
) -> Update:
    """Check the arguments of an update and return them as parameters."""
    return {
        "execution_id": execution_id,
        "at": now,
        "session_id": None if session_id is None else valid.session_id("session_id", session_id),
        "checkpoint": None
        if checkpoint is None
        else codec.encode("checkpoint", checkpoint, max_bytes=_LIMITS.checkpoint),
        **usage_columns(usage),
        **fence_parameters(claim),
    }


def finish(
    execution_id: str,
    now: datetime,
    outcome: str,
    usage: Usage | None,
    failure: Failure | None,
    stop_reason: str | None,
    session_id: str | None,
    claim: Claim | None,
) -> Finish:
    """Check the arguments of `finish` and return the parameters of the statement that ends an execution."""
    valid.word("outcome", outcome, ENDED)
    why = valid.optional("stop_reason", stop_reason, _LIMITS.stop_reason)
    ending: Ending = {"error": None, "error_detail": None, "stop_reason": why}
    if failure is not None:
        ending = failure_ending(outcome, failure, why)
    row = update(execution_id, now, session_id, None, usage, claim)
    return {**row, **ending, "outcome": outcome, "success": outcome == "succeeded"}


def results(limits: Limits, output: str | None, details: Any) -> Row:
    """Check the output text and details of an execution. Return them as columns; a missing one has no column."""
    also: Row = {}
    if output is not None:
        also["output_text"] = valid.content("output", output, limits.output_text)
    if details is not None:
        also["details"] = codec.encode("details", details, max_bytes=_LIMITS.details)
    return also


def pointer_members(key: str | None, output: str | None, execution_id: str) -> dict[str, dict[str, Any]] | None:
    """Return the change of scratch that makes ``scratch[key]`` point to an output's execution; None without a key."""
    if key is None:
        return None
    if output is None:
        raise InvalidValue("pointer", "must not be given without an output")
    return {valid.identifier("pointer", key): {POINTER: execution_id}}


def failure_ending(outcome: str | None, failure: Failure, why: str | None) -> Ending:
    """Return a failure as columns of an execution's end.

    ``outcome`` and ``why`` are the outcome and stop reason given with the failure.
    """
    stop = valid.argument_group("failure", failure, Failure).stop_reason
    no_success(outcome, failure)
    reason = valid.optional("failure.stop_reason", stop, _LIMITS.stop_reason)
    if why is not None and reason is not None:
        raise InvalidValue("stop_reason", "must not be given twice: it stands in the failure too")
    return {**failure_columns(failure), "stop_reason": why or reason}


def overrule(execution_id: str, now: datetime, failure: Failure, claim: Claim | None) -> Overruling:
    """Check the arguments of `overrule` and return the parameters that turn a success into a failure."""
    if valid.argument_group("failure", failure, Failure).stop_reason not in (None, "overruled"):
        raise InvalidValue("failure.stop_reason", "must be 'overruled' or None")
    return {
        **failure_columns(failure),
        "stop_reason": "overruled",
        "outcome": "failed",
        "execution_id": execution_id,
        "at": now,
        **fence_parameters(claim),
    }


def interruption(now: datetime, reason: str, skill: str | None) -> Interruption:
    """Check the arguments of `interrupt`. Return the time, reason and skill."""
    return {"at": now, "because": _reason(reason), "skill": valid.optional("skill", skill, _LIMITS.skill)}


def output_text(limits: Limits, execution_id: str, text: str, claim: Claim | None) -> OutputText:
    """Check an output text and return the parameters of the statement that saves it."""
    text = valid.content("text", text, limits.output_text)
    found = valid.lookup_text("execution_id", execution_id)
    return {"execution_id": found, "output_text": text, **fence_parameters(claim)}


def list_filters(
    run_id: str | None,
    trigger_id: str | None,
    skill: str | None,
    node: NodeRef | None,
    outcomes: Sequence[str] | None,
    since: datetime | None,
    lost_log: bool,
) -> Row:
    """Check the filters of a list of executions. Return them by the names that the list's statements give them."""
    valid.flag("lost_log", lost_log)
    if node is not None and run_id is None:
        raise InvalidValue("node", "must not be given without a run_id")
    given: Row = {
        "run_id": valid.optional("run_id", run_id, _LIMITS.workflow_run_id),
        "trigger_id": valid.optional("trigger_id", trigger_id, _LIMITS.trigger_id),
        "skill": valid.optional("skill", skill, _LIMITS.skill),
        "node": None if node is None else node_columns(node),
        "since": None if since is None else aware_utc("since", since),
        "lost_log": {} if lost_log else None,
    }
    return given | ({} if outcomes is None else _outcome_filter(outcomes))


def _outcome_filter(outcomes: Sequence[str]) -> Row:
    wanted = sorted({valid.word("outcomes", outcome, words.OUTCOMES) for outcome in outcomes})
    if wanted == ["running"]:
        return {"in_flight": {}}
    return {"outcomes": ANY_OUTCOME.of(wanted)}


def _reason(reason: str) -> str:
    """Return a checked reason, which must not be blank; it is stored as the error."""
    text = valid.content("reason", reason, _LIMITS.error)
    if not text.strip():
        raise InvalidValue("reason", "must not be blank")
    return text
