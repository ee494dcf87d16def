"""Argument groups of another class are refused by name, as every other value that does not fit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from support.each import with_each
from support.workflows.steps import started

from lastlight_state import InvalidValue, StateStore
from lastlight_state.workflows import (
    Failure,
    Gate,
    NodePut,
    NodeRef,
    PhaseEntry,
    Question,
    RunFilter,
    RunOptions,
    Trigger,
)

Call = Callable[[Any, str, Any], Any]

CALLS: dict[str, Call] = {
    "trigger": lambda w, _, x: w.runs.create("w", trigger=x, phase="p"),
    "options": lambda w, _, x: w.runs.create("w", trigger=Trigger("t"), phase="p", options=x),
    "provenance": lambda w, _, x: w.runs.create("w", trigger=Trigger("t"), phase="p", options=RunOptions(provenance=x)),
    "entry": lambda w, run, x: w.runs.append_phase(run, x),
    "entry (marker)": lambda w, run, x: w.runs.finish(run, "succeeded", marker=x),
    "failure": lambda w, run, x: w.runs.finish(run, "failed", failure=x),
    "claim": lambda w, run, x: w.runs.append_phase(run, PhaseEntry("p", success=True), claim=x),
    "claim (of an execution)": lambda w, run, x: w.executions.start("s", run_id=run, claim=x),
    "claim (to renew)": lambda w, _, x: w.claims.heartbeat(x),
    "node": lambda w, run, x: w.executions.start("s", run_id=run, node=x),
    "options (of an execution)": lambda w, run, x: w.executions.start("s", run_id=run, options=x),
    "trigger (of an execution)": lambda w, _, x: w.executions.start("s", trigger=x),
    "usage": lambda w, run, x: w.executions.finish(w.executions.start("s", run_id=run).id, "succeeded", usage=x),
    "failure (of an execution)": lambda w, run, x: w.executions.overrule(
        w.executions.start("s", run_id=run).id, failure=x
    ),
    "nodes": lambda w, run, x: w.nodes.put_many(run, [x]),
    "node (of a put)": lambda w, run, x: w.nodes.put_many(run, [NodePut(x)]),
    "wait": lambda w, run, x: w.nodes.put(run, NodeRef("n"), state="waiting_timer", wait=x),
    "gate": lambda w, run, x: w.approvals.create(run, x),
    "gate.node": lambda w, run, x: w.approvals.create(run, Gate("g", "?", node=x)),
    "question": lambda w, run, x: w.human_requests.create(run, x),
    "question.node": lambda w, run, x: w.human_requests.create(run, Question(x, "text", "?")),
    "filter": lambda w, _, x: w.lookups.count(x),
}


@with_each("given", ["text", Failure("of another class")], ids=["text", "another"])
@with_each("where", CALLS)
def test_what_is_no_such_group_is_refused(where: str, given: Any, state_store: StateStore) -> None:
    """workflows W-7, W-119: as a value that does not fit, and nothing is written."""
    if isinstance(given, Failure) and where.startswith("failure"):
        given = RunFilter()
    run = started(state_store)
    before = state_store.workflows.runs.get(run.id)
    with pytest.raises(InvalidValue, match=where.partition(" ")[0]):
        CALLS[where](state_store.workflows, run.id, given)
    assert state_store.workflows.runs.get(run.id) == before
