"""Keys that no database could hold: every look-up refuses them, on both databases alike."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from support.each import with_each

from lastlight_state.errors import InvalidValue
from lastlight_state.store import StateStore
from lastlight_state.workflows import (
    Failure,
    Gate,
    NodeRef,
    PhaseEntry,
    Question,
    RunFilter,
    RunOptions,
    Trigger,
    Usage,
)

LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)
TRIGGER, GATE, NODE = Trigger("t"), Gate("g", "s"), NodeRef("n")

ASKED: dict[str, Callable[[Any, str], Any]] = {
    "runs.get": lambda w, bad: w.runs.get(bad),
    "runs.finish": lambda w, bad: w.runs.finish(bad, "failed"),
    "runs.cancel": lambda w, bad: w.runs.cancel(bad, by="a", reason="r"),
    "runs.request_cancel": lambda w, bad: w.runs.request_cancel(bad, by="a", reason="r"),
    "runs.restart": lambda w, bad: w.runs.restart(bad, by="a", reason="r"),
    "runs.allow_restarts": lambda w, bad: w.runs.allow_restarts(bad, 3, by="a", reason="r"),
    "runs.append_phase": lambda w, bad: w.runs.append_phase(bad, PhaseEntry("p", True)),
    "runs.merge_scratch": lambda w, bad: w.runs.merge_scratch(bad, {"a": 1}),
    "runs.set_trace": lambda w, bad: w.runs.set_trace(bad, trace_id="t", span_id=None),
    "runs.create parent": lambda w, bad: w.runs.create(
        "w", trigger=TRIGGER, phase="p", options=RunOptions(parent_run_id=bad)
    ),
    "executions.start": lambda w, bad: w.executions.start("a:b", run_id=bad),
    "executions.skip": lambda w, bad: w.executions.skip("a:b", run_id=bad, reason="r"),
    "executions.get": lambda w, bad: w.executions.get(bad),
    "executions.update": lambda w, bad: w.executions.update(bad),
    "executions.update usage": lambda w, bad: w.executions.update(bad, usage=Usage(turns=1)),
    "executions.finish": lambda w, bad: w.executions.finish(bad, "failed"),
    "executions.overrule": lambda w, bad: w.executions.overrule(bad, failure=Failure("x")),
    "executions.interrupt": lambda w, bad: w.executions.interrupt(bad, reason="r"),
    "executions.phase_state run": lambda w, bad: w.executions.phase_state("a", run_id=bad),
    "executions.phase_state skill": lambda w, bad: w.executions.phase_state(bad, trigger_id="t"),
    "executions.phase_state trigger": lambda w, bad: w.executions.phase_state("a", trigger_id=bad),
    "executions.find_by_session": lambda w, bad: w.executions.find_by_session(bad),
    "executions.find_output": lambda w, bad: w.executions.find_output(bad),
    "executions.save_output": lambda w, bad: w.executions.save_output(bad, "t"),
    "executions.save_output loop": lambda w, bad: w.executions.save_output(bad, "t", loop="l"),
    "executions.list": lambda w, bad: w.executions.list(run_id=bad),
    "overrides.is_enabled": lambda w, bad: w.overrides.is_enabled(bad),
    "overrides.find": lambda w, bad: w.overrides.find(bad),
    "overrides.clear": lambda w, bad: w.overrides.clear(bad),
    "approvals.get": lambda w, bad: w.approvals.get(bad),
    "approvals.create": lambda w, bad: w.approvals.create(bad, GATE),
    "approvals.pause": lambda w, bad: w.approvals.pause(bad, GATE),
    "approvals.answer": lambda w, bad: w.approvals.answer(bad, "approved", by="a"),
    "approvals.consume": lambda w, bad: w.approvals.consume(bad, action=1, execution_id="e"),
    "approvals.cancel": lambda w, bad: w.approvals.cancel(bad, by="a", reason="r"),
    "approvals.list_for_run": lambda w, bad: w.approvals.list_for_run(bad),
    "approvals.list_pending": lambda w, bad: w.approvals.list_pending(run_id=bad),
    "approvals.list": lambda w, bad: w.approvals.list(trigger_id=bad),
    "approvals.list_history": lambda w, bad: w.approvals.list_history(bad),
    "human_requests.get": lambda w, bad: w.human_requests.get(bad),
    "human_requests.find": lambda w, bad: w.human_requests.find(bad),
    "human_requests.create": lambda w, bad: w.human_requests.create(bad, Question(NODE, "text", "p")),
    "human_requests.answer": lambda w, bad: w.human_requests.answer(bad, "x", by="a"),
    "human_requests.cancel": lambda w, bad: w.human_requests.cancel(bad, by="a", reason="r"),
    "human_requests.reopen": lambda w, bad: w.human_requests.reopen(bad, reason="r"),
    "human_requests.list_for_run": lambda w, bad: w.human_requests.list_for_run(bad),
    "claims.find": lambda w, bad: w.claims.find(bad),
    "claims.take": lambda w, bad: w.claims.take(bad, owner="o"),
    "claims.try_take": lambda w, bad: w.claims.try_take(bad, owner="o"),
    "queue.admit": lambda w, bad: w.queue.admit(bad),
    "queue.requeue": lambda w, bad: w.queue.requeue(bad, reason="r"),
    "waits.pause": lambda w, bad: w.waits.pause(bad),
    "waits.resume": lambda w, bad: w.waits.resume(bad, by="a", reason="r"),
    "waits.list_waiting": lambda w, bad: w.waits.list_waiting(bad),
    "nodes.get": lambda w, bad: w.nodes.get(bad, NODE),
    "nodes.find": lambda w, bad: w.nodes.find(bad, NODE),
    "nodes.list": lambda w, bad: w.nodes.list(bad),
    "nodes.counts": lambda w, bad: w.nodes.counts(bad),
    "nodes.put": lambda w, bad: w.nodes.put(bad, NODE),
    "loops.find": lambda w, bad: w.loops.find(bad, "l"),
    "loops.find loop": lambda w, bad: w.loops.find("r", bad),
    "loops.list": lambda w, bad: w.loops.list(bad),
    "loops.put": lambda w, bad: w.loops.put(bad, "l", iteration=1),
    "loops.advance": lambda w, bad: w.loops.advance(bad, "l", expected=0),
    "loops.find_output": lambda w, bad: w.loops.find_output(bad, "l"),
    "usage.for_run": lambda w, bad: w.usage.for_run(bad),
    "usage.failure_streak": lambda w, bad: w.usage.failure_streak(bad),
    "usage.daily": lambda w, bad: w.usage.daily(1, workflow=bad),
    "lookups.find_for_trigger": lambda w, bad: w.lookups.find_for_trigger(bad),
    "lookups.list_children": lambda w, bad: w.lookups.list_children(bad),
    "lookups.list_ancestors": lambda w, bad: w.lookups.list_ancestors(bad),
    "lookups.list_transitions": lambda w, bad: w.lookups.list_transitions(bad),
    "lookups.get_task": lambda w, bad: w.lookups.get_task(bad, NODE),
    "runs.get_resume": lambda w, bad: w.runs.get_resume(bad),
    "lookups.search_errors": lambda w, bad: w.lookups.search_errors(bad, since=LONG_AGO),
    "lookups.activity": lambda w, bad: w.lookups.activity(bad, "r", since=LONG_AGO),
    "lookups.latest_by_workflow": lambda w, bad: w.lookups.latest_by_workflow("t", [bad]),
    "lookups.count": lambda w, bad: w.lookups.count(RunFilter(trigger_id=bad)),
    "lookups.get_task node": lambda w, bad: w.lookups.get_task("r", NodeRef(bad)),
    "health.get_state": lambda w, bad: w.health.get_state(bad),
}


@with_each("bad", ["a\0b", "a\ud83d"], ids=["nul", "surrogate"])
def test_a_key_that_cannot_be_is_refused_alike(every_backend: StateStore, bad: str) -> None:
    """workflows W-4, W-13, case 64."""
    taken = []
    for name, ask in ASKED.items():
        try:
            ask(every_backend.workflows, bad)
        except InvalidValue:
            continue
        except Exception as error:  # noqa: BLE001 - named below
            taken.append(f"{name}: {error!r}")
        else:
            taken.append(name)
    assert not taken


def test_a_run_that_is_not_named_is_not_every_run(every_backend: StateStore) -> None:
    """workflows W-13, W-20: None filters nothing, but a list that is of one run needs to know which."""
    workflows = every_backend.workflows
    lists: list[Callable[[Any], Any]] = [
        workflows.nodes.list,
        workflows.loops.list,
        workflows.approvals.list_for_run,
        workflows.human_requests.list_for_run,
        workflows.lookups.list_children,
        workflows.lookups.list_transitions,
    ]
    for each in lists:
        with pytest.raises(InvalidValue):
            each(None)


def test_a_timeline_of_a_key_that_cannot_be_is_refused(every_backend: StateStore) -> None:
    """maintenance: the timeline of a run."""
    with pytest.raises(InvalidValue):
        every_backend.maintenance.timeline.list("a\0b")
