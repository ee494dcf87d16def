"""Calls in a store that holds another run which is exactly alike: they see and change what they name alone."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from support.each import with_each
from support.rivals import Act
from support.workflows.asking import WHO
from support.workflows.looks import LOOKS
from support.workflows.repeats import REPEATS, Repeat
from support.workflows.steps import PLAN, Raw, started

from lastlight_state.errors import Conflict
from lastlight_state.testing import Database
from lastlight_state.workflows import Claim, NodeRef, PhaseEntry, Trigger
from lastlight_state.workflows.tables import APPROVALS, EXECUTIONS, LOOPS, NODES, REQUESTS, RUNS, TRANSITIONS

NODE = NodeRef("build")
TABLE_NAMES = [table.name for table in (RUNS, TRANSITIONS, NODES, LOOPS, EXECUTIONS, APPROVALS, REQUESTS)]
#: Those that work on whatever run is due.
SWEEPS = {
    "QuestionRepository._expire",
    "Claims.take_next",
    "Claims._give_up",
    "Queue.admit_next",
    "Queue.admit_next of one run",
    "Queue._expire",
}


def _on_workflows(repeat: Repeat) -> Act:
    return lambda store, known: repeat.call(store.workflows, known)


#: What prepares a store, how much time passes then, and a call.
WRITES: dict[str, tuple[Callable[[Any], Any], timedelta, Act]] = {
    **{name: (look.given, look.later, look.call) for name, look in LOOKS.items() if name not in SWEEPS},
    **{name: (one.given, one.later, _on_workflows(one)) for name, one in REPEATS.items()},
    "Claims.transfer": (
        REPEATS["claims.heartbeat"].given,
        timedelta(0),
        lambda s, c: s.workflows.claims.transfer(c, owner="b"),
    ),
    "Claims.take again": (
        REPEATS["claims.heartbeat"].given,
        timedelta(0),
        lambda s, c: s.workflows.claims.take(c.run_id, owner="a"),
    ),
    "Queue.admit": (LOOKS["Queue._expire"].given, timedelta(0), lambda s, r: s.workflows.queue.admit(r)),
    "Runs.append_phase and scratch": (
        LOOKS["Runs.append_phase"].given,
        timedelta(0),
        lambda s, r: s.workflows.runs.append_phase(r, PhaseEntry("build", success=True), scratch={"a": 1}),
    ),
    "Runs.set_trace": (
        LOOKS["Runs.finish"].given,
        timedelta(0),
        lambda s, r: s.workflows.runs.set_trace(r, trace_id="a" * 32, span_id=None),
    ),
    "Runs.request_cancel": (
        LOOKS["Runs.finish"].given,
        timedelta(0),
        lambda s, r: s.workflows.runs.request_cancel(r, by="ana", reason="stop"),
    ),
    "Loops.advance by one": (
        LOOKS["Loops.advance"].given,
        timedelta(0),
        lambda s, r: s.workflows.loops.advance(r, "fix", expected=0),
    ),
    "Nodes.update of a pending one": (
        LOOKS["Nodes.update"].given,
        timedelta(0),
        lambda s, r: s.workflows.nodes.update(r, NODE, state="running", expected="pending"),
    ),
    "Waits.pause alone": (LOOKS["Runs.finish"].given, timedelta(0), lambda s, r: s.workflows.waits.pause(r)),
}


def _rows(raw: Raw) -> list[str]:
    return [repr((table, row)) for table in TABLE_NAMES for row in raw(f"SELECT * FROM {table}")]


@with_each(("given", "later", "call"), WRITES.values(), ids=list(WRITES))
def test_a_call_changes_no_row_of_another_run(
    sqlite_database: Database, given: Callable[[Any], Any], later: timedelta, call: Act
) -> None:
    """workflows W-14."""
    store, raw = sqlite_database.open(), Raw(sqlite_database)
    given(store)
    others = _rows(raw)
    mine = given(store)
    sqlite_database.clock.advance(later)
    with suppress(Conflict):  # some are refused, and change nothing at all
        call(store, mine)
    assert set(others) - set(_rows(raw)) == set()


@dataclass(frozen=True)
class World:
    """A run and what belongs to it: one of everything."""

    run_id: str
    claim: Claim
    execution_id: str
    approval_id: str
    request_id: str

    @classmethod
    def of(cls, store: Any) -> World:
        w, run = store.workflows, started(store, trigger=Trigger(f"t-{len(store.workflows.runs.list().items)}"))
        child = started(store, parent_run_id=run.id)
        claim = w.claims.take(run.id, owner=f"holder of {run.id}")
        execution = w.executions.start("deploy:plan", run_id=run.id, node=NODE, session_id=f"s-{run.id}", claim=claim)
        w.loops.carry(run.id, "fix", execution_id=execution.id, text=f"of {run.id}", claim=claim)
        w.loops.put(run.id, "fix", iteration=3, claim=claim)
        approval = w.approvals.create(run.id, PLAN, claim=claim)
        request = w.human_requests.create(run.id, WHO, claim=claim)
        assert child.parent_run_id == run.id
        return cls(run.id, claim, execution.id, approval.id, request.id)


READS: dict[str, Callable[[Any, World], Any]] = {
    "runs.get": lambda w, it: w.runs.get(it.run_id),
    "runs.get_resume": lambda w, it: w.runs.get_resume(it.run_id),
    "claims.find": lambda w, it: w.claims.find(it.run_id),
    "nodes.get": lambda w, it: w.nodes.get(it.run_id, NODE),
    "nodes.list": lambda w, it: w.nodes.list(it.run_id).items,
    "nodes.counts": lambda w, it: (it.run_id, w.nodes.counts(it.run_id)),
    "loops.find": lambda w, it: w.loops.find(it.run_id, "fix"),
    "loops.list": lambda w, it: w.loops.list(it.run_id).items,
    "loops.find_output": lambda w, it: w.loops.find_output(it.run_id, "fix"),
    "executions.get": lambda w, it: w.executions.get(it.execution_id),
    "executions.find_by_session": lambda w, it: w.executions.find_by_session(f"s-{it.run_id}"),
    "executions.find_output": lambda w, it: w.executions.find_output(it.execution_id),
    "executions.list": lambda w, it: w.executions.list(run_id=it.run_id).items,
    "executions.list of a node": lambda w, it: w.executions.list(run_id=it.run_id, node=NODE).items,
    "approvals.get": lambda w, it: w.approvals.get(it.approval_id),
    "approvals.find": lambda w, it: w.approvals.find(it.run_id, PLAN.gate),
    "approvals.list_for_run": lambda w, it: w.approvals.list_for_run(it.run_id).items,
    "human_requests.get": lambda w, it: w.human_requests.get(it.request_id),
    "human_requests.list_for_run": lambda w, it: w.human_requests.list_for_run(it.run_id).items,
    "human_requests.list_pending": lambda w, it: w.human_requests.list_pending(run_id=it.run_id).items,
    "lookups.list_children": lambda w, it: w.lookups.list_children(it.run_id).items,
    "lookups.list_ancestors": lambda w, it: w.lookups.list_ancestors(it.run_id),
    "lookups.list_transitions": lambda w, it: w.lookups.list_transitions(it.run_id).items,
    "lookups.get_task": lambda w, it: w.lookups.get_task(it.run_id, NODE),
    "usage.for_run": lambda w, it: (it.run_id, w.usage.for_run(it.run_id)),
    "health.get_state": lambda w, it: (it.run_id, w.health.get_state(it.run_id)),
}


def test_a_read_shows_nothing_of_another_run(sqlite_database: Database) -> None:
    """workflows W-14."""
    store = sqlite_database.open()
    first = World.of(store)
    alone = {name: read(store.workflows, first) for name, read in READS.items()}
    second = World.of(store)
    assert {name: read(store.workflows, first) for name, read in READS.items()} == alone
    same = [name for name, read in READS.items() if read(store.workflows, second) == alone[name]]
    assert same == []
