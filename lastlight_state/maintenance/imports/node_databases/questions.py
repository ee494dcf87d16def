"""Approvals and human requests, as rows of ours."""

from __future__ import annotations

from functools import partial
from typing import Any

from lastlight_state.db import valid
from lastlight_state.db.declarations import limits_of
from lastlight_state.maintenance.imports import cells
from lastlight_state.maintenance.imports.cells import Row
from lastlight_state.maintenance.imports.node_databases.found import Found, Terms, fitting, id_of, mapped, moment
from lastlight_state.workflows import words
from lastlight_state.workflows.tables import APPROVALS, REQUESTS

_GATE, _QUESTION = limits_of(APPROVALS), limits_of(REQUESTS)
_ID, _NODE = cells.name(_QUESTION.id), cells.name(_QUESTION.node_id)
#: More of a name than a caller may give.
_WHO = cells.text(1024)
_STATUSES = {
    "requested": "pending",
    "pending": "pending",
    "approved": "approved",
    "denied": "rejected",
    "cancelled": "cancelled",
    "expired": "expired",
}
_KINDS = {"ask": "text", "confirm": "confirm", "select": "select", "json": "form"}
#: Why a question is closed that the source left open in a run that has ended.
_CLOSED = "run.ended"
#: How a question is closed that nobody answered.
CANCELLED: Row = {"status": "cancelled", "closed_reason": _CLOSED}


def approval(terms: Terms, row: Row, run: Row) -> Row:
    """A gate. Once it is answered the source does not say any more when it was asked."""
    found = Found(terms, "_smithers_approvals", row, "node_id", adapts=True)
    run_id, node = found.must("run_id", _ID), found.must("node_id", _NODE)
    iteration = found.must("iteration", valid.number)
    status = found.must("status", partial(mapped, _STATUSES))
    asked, answered = found.may("requested_at_ms", moment), found.may("decided_at_ms", moment)
    request, decision = (found.json(name, _GATE.action) for name in ("request_json", "decision_json"))
    is_answered = status in ("approved", "rejected")
    by_policy = found.may("auto_approved", cells.flag) is True
    told = {name: value for name, value in (("request", request), ("decision", decision)) if value is not None}
    made = {
        "id": id_of(run_id, node, iteration),
        "workflow_run_id": run_id,
        "gate": fitting(node, _GATE.gate),
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
    return _closed(terms, {**made, "action": found.kept(told, _GATE.action)}, run)


def request(terms: Terms, row: Row, run: Row) -> Row:
    """A question to a person."""
    found = Found(terms, "_smithers_human_requests", row, "request_id")
    made = {
        "id": found.must("request_id", _ID),
        "run_id": found.must("run_id", _ID),
        "node_id": found.must("node_id", _NODE),
        "iteration": found.must("iteration", valid.number),
        "kind": found.must("kind", partial(mapped, _KINDS)),
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
    return _closed(terms, made, run)


def _summary(request: Any, node: str) -> str:
    """What the request says of itself, else the name of its node."""
    told = [request.get(name) for name in ("summary", "title")] if isinstance(request, dict) else []
    text = next((one for one in told if isinstance(one, str) and one.strip()), node)
    return text.encode()[: _GATE.summary].decode(errors="ignore")


def _closed(terms: Terms, made: Row, run: Row) -> Row:
    """The question, cancelled if its run has ended without an answer: here none is open then."""
    if made["status"] != "pending" or run["status"] not in words.TERMINAL:
        return made
    terms.noticed["question_closed"] += 1
    return {**made, **CANCELLED}
