"""Converts a run with its attempts, nodes, loops, gates and requests to the library's rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any, TypeAlias

from lastlight_state.db import valid
from lastlight_state.db.schema.declarations import limits_of
from lastlight_state.maintenance.imports import cells
from lastlight_state.maintenance.imports.cells import Row
from lastlight_state.maintenance.imports.node_databases.source_rows import (
    SourceRow,
    Terms,
    fit_text,
    id_of,
    map_word,
    moment,
)
from lastlight_state.workflows import words
from lastlight_state.workflows.tables import APPROVALS, EXECUTIONS, NODES, REQUESTS, RUNS

# Converts approvals and human requests to our rows.

_GATE, _QUESTION = limits_of(APPROVALS), limits_of(REQUESTS)
_QUESTION_ID, _QUESTION_NODE = cells.name(_QUESTION.id), cells.name(_QUESTION.node_id)
#: The check of a person's name, which may be longer than callers may give.
_WHO = cells.text(1024)
_QUESTION_STATUSES = {
    "requested": "pending",
    "pending": "pending",
    "approved": "approved",
    "denied": "rejected",
    "cancelled": "cancelled",
    "expired": "expired",
}
_KINDS = {"ask": "text", "confirm": "confirm", "select": "select", "json": "form"}
#: The reason for closing a question that was still open in a run that has ended.
_CLOSED = "run.ended"
#: The columns of a question that is closed without an answer.
CANCELLED: Row = {"status": "cancelled", "closed_reason": _CLOSED}


def approval(terms: Terms, row: Row, run: Row) -> Row:
    """Convert a gate. If the gate was answered, the source may no longer state when the question was asked."""
    found = SourceRow(terms, "_smithers_approvals", row, "node_id", adapts=True)
    run_id, node = found.must("run_id", _QUESTION_ID), found.must("node_id", _QUESTION_NODE)
    iteration = found.must("iteration", valid.number)
    status = found.must("status", partial(map_word, _QUESTION_STATUSES))
    asked, answered = found.may("requested_at_ms", moment), found.may("decided_at_ms", moment)
    request, decision = (found.json(name, _GATE.action) for name in ("request_json", "decision_json"))
    is_answered = status in ("approved", "rejected")
    by_policy = found.may("auto_approved", cells.flag) is True
    told = {name: value for name, value in (("request", request), ("decision", decision)) if value is not None}
    made = {
        "id": id_of(run_id, node, iteration),
        "workflow_run_id": run_id,
        "gate": fit_text(node, _GATE.gate),
        "summary": _summary(request, node),
        "status": status,
        "responded_by": found.may("decided_by", _WHO),
        "response": found.may("note", cells.text(_GATE.response)),
        "responded_at": answered if is_answered else None,
        "created_at": asked or answered or run["started_at"],
        "node_id": node,
        "iteration": iteration,
        "blocks_run": not (isinstance(request, dict) and request.get("waitAsync") is True),
        "answered_via": ("policy" if by_policy else "person") if is_answered else None,
        "closed_reason": None,
    }
    return _close_question(terms, {**made, "action": found.add_adapted(told, _GATE.action)}, run)


def request(terms: Terms, row: Row, run: Row) -> Row:
    """Convert a question to a person."""
    found = SourceRow(terms, "_smithers_human_requests", row, "request_id")
    made = {
        "id": found.must("request_id", _QUESTION_ID),
        "run_id": found.must("run_id", _QUESTION_ID),
        "node_id": found.must("node_id", _QUESTION_NODE),
        "iteration": found.must("iteration", valid.number),
        "kind": found.must("kind", partial(map_word, _KINDS)),
        "status": found.must("status", partial(valid.word, vocabulary=words.HUMAN_STATUSES)),
        "blocks_run": run["status"] == "paused",
        "prompt": found.must("prompt", cells.text(_QUESTION.prompt)),
        "options": found.json("options_json", _QUESTION.options),
        "schema": found.json("schema_json", _QUESTION.schema),
        "response": found.json("response_json", _QUESTION.response),
        "requested_at": found.must("requested_at_ms", moment),
        "expires_at": found.may("timeout_at_ms", moment),
        "answered_at": found.may("answered_at_ms", moment),
        "answered_by": found.may("answered_by", _WHO),
        "closed_reason": None,
    }
    return _close_question(terms, made, run)


def _summary(request: Any, node: str) -> str:
    """Return the summary or title that the request contains, else the name of its node."""
    told = [request.get(name) for name in ("summary", "title")] if isinstance(request, dict) else []
    text = next((one for one in told if isinstance(one, str) and one.strip()), node)
    return text.encode()[: _GATE.summary].decode(errors="ignore")


def _close_question(terms: Terms, made: Row, run: Row) -> Row:
    """Return the question. An open question of an ended run is cancelled, because no ended run has open questions."""
    if made["status"] != "pending" or run["status"] not in words.TERMINAL:
        return made
    terms.noticed["question_closed"] += 1
    return {**made, **CANCELLED}


#: A node in an iteration.
Place: TypeAlias = tuple[str, int]

_RUN, _EXECUTION = limits_of(RUNS), limits_of(EXECUTIONS)
_ID, _NODE = cells.name(_RUN.id), cells.name(_EXECUTION.node_id)
_TEXT, _OUTPUT_TABLE = cells.text(1024), cells.name(limits_of(NODES).output_table)
#: Statuses of runs, from the source's word to ours. `_wait` finds what a paused run waits for.
_STATUSES = {
    "running": "running",
    **dict.fromkeys(("waiting-approval", "waiting-event", "waiting-timer"), "paused"),
    **dict.fromkeys(("finished", "continued"), "succeeded"),
    "failed": "failed",
    **dict.fromkeys(("cancelled", "canceled"), "cancelled"),
}
#: The source's words for waiting that have no word here. The row keeps the word if it has a place for it.
_WAITS = ("waiting-quota", "waiting-bound", "bound-stale", "paused", "stalled")
_STATUSES |= dict.fromkeys(_WAITS, "paused")
_CONTINUED = "run.continued"
_OUTCOMES = {
    "finished": "succeeded",
    "failed": "failed",
    "cancelled": "cancelled",
    "skipped": "skipped",
    **dict.fromkeys(
        ("pending", "in-progress", "waiting-approval", "waiting-event", "waiting-timer", *_WAITS), "running"
    ),
}
_STATES = {
    **{word: word for word in ("pending", "finished", "failed", "skipped", "cancelled")},
    "in-progress": "running",
    "waiting-approval": "waiting_approval",
    "waiting-event": "waiting_signal",
    "waiting-timer": "waiting_timer",
    **dict.fromkeys(_WAITS, "pending"),
}
#: The columns of a run that have a place here. Values of other columns go to the run's context.
_PLACED_RUN = {
    *("run_id", "parent_run_id", "workflow_name", "workflow_path", "workflow_hash", "status", "created_at_ms"),
    *("started_at_ms", "finished_at_ms", "heartbeat_at_ms", "cancel_requested_at_ms", "error_json"),
    *("vcs_type", "vcs_root", "vcs_revision"),
}
_PLACED_ATTEMPT = {
    *("run_id", "node_id", "iteration", "attempt", "state", "started_at_ms", "finished_at_ms", "heartbeat_at_ms"),
    *("heartbeat_data_json", "error_json", "jj_pointer", "response_text", "jj_cwd", "cached"),
}
#: The key of an attempt's usage in the details of its execution, and the counts that have a column.
_USAGE = "usage"
_COUNTS = {
    "input_tokens": "input_tokens",
    "output_tokens": "output_tokens",
    "cache_read_input_tokens": "cache_read_tokens",
    "cache_creation_input_tokens": "cache_write_tokens",
}
#: The phase of a run without nodes.
_NO_PHASE = "imported"


def run(terms: Terms, row: Row) -> Row:
    """Convert the run itself. After that, `complete_run` sets what the run waits for."""
    found = SourceRow(terms, "_smithers_runs", row, "run_id", adapts=True)
    run_id = found.must("run_id", _ID)
    created = found.must("created_at_ms", moment)
    status = found.must("status", partial(map_word, _STATUSES))
    started = found.may("started_at_ms", moment)
    error, detail = _failure(found)
    made = {
        "id": run_id,
        "workflow_name": found.must("workflow_name", cells.name(_RUN.workflow_name)),
        "trigger_id": run_id,
        "current_phase": _NO_PHASE,
        "phase_history": [],
        "status": status,
        "status_reason": _CONTINUED if row["status"] == "continued" else None,
        "started_at": created,
        "queued_at": None if started is None else created,
        "admitted_at": started,
        "updated_at": created,
        "finished_at": found.may("finished_at_ms", moment),
        "heartbeat_at": found.may("heartbeat_at_ms", moment),
        "cancel_requested_at": found.may("cancel_requested_at_ms", moment),
        "parent_run_id": found.may("parent_run_id", _ID),
        **{name: found.may(name, _TEXT) for name in ("workflow_path", "workflow_hash")},
        **{name: found.may(name, _TEXT) for name in ("vcs_type", "vcs_root", "vcs_revision")},
        **dict.fromkeys(("pause_reason", "wake_at", "waiting_for", "correlation_id")),
        "error": error if status in ("failed", "cancelled") else None,
        "error_detail": detail,
    }
    placed = _PLACED_RUN - {"status"} if row["status"] in _WAITS else _PLACED_RUN
    return {**made, "context": found.other_values(placed, terms.limits.context)}


def attempt(terms: Terms, row: Row, usage: Row | None = None) -> Row:
    """Convert an attempt at a node, with its usage."""
    if usage is not None:
        told = {name: value for name, value in usage.items() if name not in _PLACED_ATTEMPT and value is not None}
        row = {**row, _USAGE: told}
    found = SourceRow(terms, "_smithers_attempts", row, "node_id", adapts=True)
    run_id, node = found.must("run_id", _ID), found.must("node_id", _NODE)
    iteration, number = found.must("iteration", valid.number), found.must("attempt", valid.number)
    outcome = found.may("state", partial(map_word, _OUTCOMES))
    begun, ended = found.must("started_at_ms", moment), found.may("finished_at_ms", moment)
    error, detail = _failure(found)
    made = {
        "id": id_of(run_id, node, iteration, number),
        "trigger_type": words.UNKNOWN_TRIGGER,
        "trigger_id": run_id,
        "skill": node,
        "workflow_run_id": run_id,
        "node_id": node,
        "iteration": iteration,
        "attempt": number,
        "outcome": outcome,
        "success": None if outcome in (None, "running") else outcome == "succeeded",
        "started_at": begun,
        "finished_at": ended,
        "duration_ms": None if ended is None else max(0, round((ended - begun).total_seconds() * 1000)),
        "heartbeat_at": found.may("heartbeat_at_ms", moment),
        "checkpoint": found.json("heartbeat_data_json", _EXECUTION.checkpoint),
        "error": error,
        "error_detail": detail,
        "output_text": found.may("response_text", cells.text(terms.limits.output_text)),
        "vcs_pointer": found.may("jj_pointer", _TEXT),
        "work_dir": found.may("jj_cwd", _TEXT),
        "cached": found.may("cached", cells.flag) is True,
    }
    return {
        **made,
        **_usage_columns(terms, usage),
        "details": found.other_values(_placed_columns(row), _EXECUTION.details),
    }


def _placed_columns(row: Row) -> set[str]:
    """Return the columns of an attempt that this library stores.

    A state that has no equivalent is stored in the details.
    """
    return _PLACED_ATTEMPT - {"state"} if row.get("state") in _WAITS else _PLACED_ATTEMPT


def _usage_columns(terms: Terms, usage: Row | None) -> Row:
    """Return an attempt's usage as columns of an execution. The details contain everything that the source states."""
    found = SourceRow(terms, "_smithers_run_usage", usage or {}, "node_id")
    counts = {ours: found.may(theirs, valid.number) for ours, theirs in _COUNTS.items()}
    return {**counts, "cost_usd": found.may("cost_usd", cells.real)}


def last_attempts(attempts: Iterable[Row]) -> dict[Place, Row]:
    """Return the last attempt of each node in each iteration. The attempts must be in chronological order."""
    return {(one["node_id"], one["iteration"]): one for one in attempts}


def node(terms: Terms, row: Row, attempts: Mapping[Place, Row]) -> Row:
    """Convert the state of a node. The last of its ``attempts`` tells what the node waits for."""
    found = SourceRow(terms, "_smithers_nodes", row, "node_id")
    name, iteration = found.must("node_id", _NODE), found.must("iteration", valid.number)
    state = found.must("state", partial(map_word, _STATES))
    terms.noticed["node_waits"] += row["state"] in _WAITS
    return {
        "run_id": found.must("run_id", _ID),
        "node_id": name,
        "iteration": iteration,
        "state": state,
        "last_attempt": found.may("last_attempt", valid.number) or 0,
        "output_table": found.may("output_table", cells.name(limits_of(NODES).output_table))
        if row.get("output_table")
        else None,
        "label": found.may("label", _TEXT),
        "updated_at": found.must("updated_at_ms", moment),
        **_node_wait(state, attempts.get((name, iteration))),
    }


def loop(terms: Terms, row: Row) -> Row:
    """Convert the state of a loop."""
    found = SourceRow(terms, "_smithers_ralph", row, "ralph_id")
    return {
        "run_id": found.must("run_id", _ID),
        "loop_id": found.must("ralph_id", _NODE),
        "iteration": found.must("iteration", valid.number),
        "done": found.must("done", cells.flag),
        "updated_at": found.must("updated_at_ms", moment),
    }


def complete_run(
    run_row: Row, their_status: str, nodes: Sequence[Row], *, is_asked: bool, others: Iterable[Row]
) -> Row:
    """Return the run, completed from its other rows: its phase, what it waits for, and its last sign of life."""
    last = max(nodes, key=lambda one: (one["updated_at"], one["node_id"]), default=None)
    phase = (
        last["node_id"] if last is not None and valid.is_identifier(last["node_id"], _RUN.current_phase) else _NO_PHASE
    )
    waits = _wait(their_status, nodes, is_asked) if run_row["status"] == "paused" else {}
    signs = [value for row in (run_row, *nodes, *others) for name, value in row.items() if _is_sign(name, value)]
    return {**run_row, "current_phase": phase, **waits, "updated_at": max(signs)}


def _is_sign(name: str, value: Any) -> bool:
    """True if a column contains the time of a past event, and not a time at which something is due."""
    return isinstance(value, datetime) and name not in ("wake_at", "expires_at")


def _wait(their_status: str, nodes: Sequence[Row], is_asked: bool) -> Row:
    """Return why a run is paused. A question has its own row; otherwise a waiting node has the timer or signal."""
    if is_asked:
        return {"pause_reason": "gate"}
    wanted, reason = {
        "waiting-timer": ("waiting_timer", "timer"),
        "waiting-event": ("waiting_signal", "signal"),
    }.get(their_status, ("", None))
    waiting = [one for one in nodes if one["state"] == wanted]
    names = ("wake_at", "waiting_for", "correlation_id")
    return {"pause_reason": reason, **{name: waiting[0][name] for name in names if waiting}}


def _node_wait(state: str, last: Row | None) -> Row:
    """Return the timer or signal that a node waits for. The details of its last attempt name it."""
    wait: Row = {"wake_at": None, "waiting_for": None, "correlation_id": None}
    details = {} if last is None else last["details"] or {}
    timer, event = (_inner(_inner(details, "meta"), name) for name in ("timer", "waitForEvent"))
    if state == "waiting_timer" and timer.get("firesAtMs") is not None:
        wait["wake_at"] = moment("timer.firesAtMs", timer["firesAtMs"])
    if state == "waiting_signal":
        said = {"waiting_for": event.get("signalName"), "correlation_id": event.get("correlationId")}
        wait |= {name: value for name, value in said.items() if valid.is_identifier(value, _RUN.waiting_for)}
    return wait


def _inner(value: Row, name: str) -> Row:
    found = value.get(name)
    return found if isinstance(found, dict) else {}


def _failure(found: SourceRow) -> tuple[str | None, Any]:
    """Return the text of an error, cut if it is too long, and the complete error."""
    detail = found.json("error_json", _RUN.error_detail)
    told = detail.get("message") if isinstance(detail, dict) else detail
    if not isinstance(told, str) or not told:
        return None, detail
    return told.encode()[: _RUN.error].decode(errors="ignore"), detail
