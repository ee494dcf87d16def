"""A run with rows in every table that can have some of a run."""

from __future__ import annotations

from pydantic import BaseModel
from support.journal.trees import element, text

from lastlight_state import StateStore
from lastlight_state.journal import NewEvent, NewScore, SandboxChanges, ToolOutcome
from lastlight_state.workflows import Gate, NodeRef, Question, Trigger
from lastlight_state.workflows.arguments import ExecutionOptions, RunOptions


class Report(BaseModel):
    """An output."""

    title: str


def whole_run(store: StateStore, key: str, *, end: bool = True) -> None:
    """Make the run ``key``, and let it end. The output ``report`` is defined."""
    w, j, o = store.workflows, store.journal, store.outputs
    node = NodeRef("n")
    w.runs.create("wf", trigger=Trigger("t"), phase="p", options=RunOptions(id=key))
    o.inputs.ensure(key, {"n": 1})
    w.nodes.put(key, node, state="pending")
    w.executions.start("wf:p", run_id=key, node=node, options=ExecutionOptions(id=f"{key}-ex"))
    w.executions.finish(f"{key}-ex", "succeeded")
    w.loops.put(key, "l", iteration=1)
    w.approvals.create(key, Gate("g", "Go?", id=f"{key}-ap"))
    w.approvals.answer(f"{key}-ap", "approved", by="ana")
    w.human_requests.create(key, Question(NodeRef("ask"), "text", "Which?", id=f"{key}-hr"))
    w.human_requests.answer(f"{key}-hr", "this", by="ana")
    j.events.append_many(key, [NewEvent("e", {})])
    j.signals.send(key, "go", {})
    j.frames.append(key, element("step", text("f"), id="s"))
    call = j.tool_calls.create(key, "grep")
    j.tool_calls.finish(key, call.seq, ToolOutcome("succeeded"))
    j.sandboxes.put(key, "sb", SandboxChanges(status="running"))
    j.scores.record(NewScore(key, "n", "scorer", "Scorer", "live", 1.0))
    o.results.put("report", key, "n", Report(title="first"))
    o.results.put("report", key, "n", Report(title="second"))
    if end:
        w.runs.finish(key, "succeeded")
