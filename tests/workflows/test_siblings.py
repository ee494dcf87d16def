"""Calls on a run that has several of everything: they see and change what they name, and nothing beside it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest
from support.workflows.steps import Raw, started

from lastlight_state.testing import Database
from lastlight_state.workflows import Failure, Gate, NodeRef, Question
from lastlight_state.workflows.tables import APPROVALS, EXECUTIONS, LOOPS, NODES, REQUESTS

NODE = NodeRef("build")


def places(node_id: str) -> tuple[NodeRef, ...]:
    """The node that the calls name, another iteration of it, and another node."""
    return NodeRef(node_id), NodeRef(node_id, 1), NodeRef(f"{node_id}-2")


KEYS = {
    EXECUTIONS.name: "id",
    NODES.name: "node_id || iteration",
    LOOPS.name: "loop_id",
    APPROVALS.name: "id",
    REQUESTS.name: "id",
}


@dataclass(frozen=True)
class Crowd:
    """A run with three of everything."""

    run_id: str
    executions: tuple[str, ...]
    gates: tuple[str, ...]
    requests: tuple[str, ...]

    @classmethod
    def of(cls, store: Any) -> Crowd:
        w, run_id, now = store.workflows, started(store).id, store._context.clock.now()
        due = [now + timedelta(minutes=minutes) for minutes in (1, 10, 10)]
        for node_id in ("build", "gate", "who"):
            for place in places(node_id):
                w.nodes.put(run_id, place, label=f"{place.node_id} {place.iteration}")
        executions = [
            w.executions.start(f"deploy:{place.node_id}", run_id=run_id, node=place, session_id=f"s-{n}").id
            for n, place in enumerate(places("build"))
        ]
        for loop_id in ("fix", "retry", "review"):
            w.loops.put(run_id, loop_id, iteration=3)
        gates = [
            w.approvals.create(run_id, Gate("go", "Go?", node=place, expires_at=at, on_reject="resume")).id
            for place, at in zip(places("gate"), due, strict=True)
        ]
        requests = [
            w.human_requests.create(run_id, Question(place, "text", "Who?", expires_at=at)).id
            for place, at in zip(places("who"), due, strict=True)
        ]
        return cls(run_id, tuple(executions), tuple(gates), tuple(requests))


EXECUTION, BUILD, FIX = "executions 0", "run_nodes build0", "run_loops fix"
GATE, GATE_NODE = "workflow_approvals 0", "run_nodes gate0"
REQUEST, REQUEST_NODE = "human_requests 0", "run_nodes who0"

#: A call, and the rows of the run that it changes.
CALLS: dict[str, tuple[Callable[[Any, Crowd], Any], set[str]]] = {
    "nodes.update": (lambda w, c: w.nodes.update(c.run_id, NODE, state="failed", expected="running"), {BUILD}),
    "nodes.put": (lambda w, c: w.nodes.put(c.run_id, NODE, label="built"), {BUILD}),
    "loops.put": (lambda w, c: w.loops.put(c.run_id, "fix", iteration=5), {FIX}),
    "loops.advance": (lambda w, c: w.loops.advance(c.run_id, "fix", expected=3), {FIX}),
    "loops.finish": (lambda w, c: w.loops.finish(c.run_id, "fix"), {FIX}),
    "executions.update": (lambda w, c: w.executions.update(c.executions[0], checkpoint=[1]), {EXECUTION}),
    "executions.finish": (lambda w, c: w.executions.finish(c.executions[0], "succeeded"), {EXECUTION}),
    "executions.finish of a node": (
        lambda w, c: w.executions.finish(c.executions[0], "failed", failure=Failure("x"), node_state="failed"),
        {EXECUTION, BUILD},
    ),
    "executions.finish_phase": (lambda w, c: w.executions.finish_phase(c.executions[0]), {EXECUTION}),
    "executions.save_output": (lambda w, c: w.executions.save_output(c.executions[0], "text"), {EXECUTION}),
    "executions.interrupt of a skill": (
        lambda w, c: w.executions.interrupt(c.run_id, reason="again", skill="deploy:build-2"),
        {"executions 2"},
    ),
    "approvals.answer": (lambda w, c: w.approvals.answer(c.gates[0], "approved", by="ana"), {GATE, GATE_NODE}),
    "approvals.cancel": (lambda w, c: w.approvals.cancel(c.gates[0], by="ana", reason="enough"), {GATE, GATE_NODE}),
    "human_requests.answer": (lambda w, c: w.human_requests.answer(c.requests[0], "ana"), {REQUEST, REQUEST_NODE}),
    "human_requests.cancel": (
        lambda w, c: w.human_requests.cancel(c.requests[0], by="ana", reason="enough"),
        {REQUEST, REQUEST_NODE},
    ),
}
SWEEPS: dict[str, tuple[Callable[[Any, Crowd], Any], set[str]]] = {
    "approvals.expire_due": (lambda w, _: w.approvals.expire_due(), {GATE, GATE_NODE}),
    "human_requests.expire_due": (lambda w, _: w.human_requests.expire_due(), {REQUEST, REQUEST_NODE}),
}
CASES = [(*case, timedelta(seconds=1)) for case in CALLS.values()] + [
    (*case, timedelta(minutes=2)) for case in SWEEPS.values()
]


def _rows(raw: Raw, crowd: Crowd) -> dict[str, object]:
    places = {name: n for ids in (crowd.executions, crowd.gates, crowd.requests) for n, name in enumerate(ids)}
    return {
        f"{table} {places.get(key, key)}": row
        for table, named in KEYS.items()
        for key, *row in raw(f"SELECT {named}, * FROM {table}")
    }


@pytest.mark.parametrize(("call", "changed", "later"), CASES, ids=[*CALLS, *SWEEPS])
def test_a_call_changes_only_the_rows_that_it_names(
    sqlite_database: Database, call: Callable[[Any, Crowd], Any], changed: set[str], later: timedelta
) -> None:
    """workflows W-14."""
    store, raw = sqlite_database.open(), Raw(sqlite_database)
    crowd = Crowd.of(store)
    before = _rows(raw, crowd)
    sqlite_database.clock.advance(later)
    call(store.workflows, crowd)
    after = _rows(raw, crowd)
    assert {name for name in after if after[name] != before.get(name)} == changed


def _ids(found: Any) -> list[str]:
    return [one.id for one in found]


#: What a call shows of the run.
READS: dict[str, tuple[Callable[[Any, Crowd], Any], Callable[[Crowd], Any]]] = {
    "nodes.get": (lambda w, c: w.nodes.get(c.run_id, NODE).label, lambda _: "build 0"),
    "nodes.list of one node": (
        lambda w, c: [node.label for node in w.nodes.list(c.run_id, node_id="build")],
        lambda _: ["build 0", "build 1"],
    ),
    "the states of nodes, each of its last iteration": (
        lambda w, c: w.runs.get(c.run_id).node_statuses,
        lambda _: {
            "build": "running",
            "build-2": "running",
            "gate": "waiting_approval",
            "gate-2": "waiting_approval",
            "who": "waiting_person",
            "who-2": "waiting_person",
        },
    ),
    "executions.list of a node": (
        lambda w, c: _ids(w.executions.list(run_id=c.run_id, node=NODE)),
        lambda c: [c.executions[0]],
    ),
    "executions.find_by_session": (
        lambda w, _: w.executions.find_by_session("s-0").id,
        lambda c: c.executions[0],
    ),
    "executions.phase_state": (
        lambda w, c: w.executions.phase_state("deploy:other", run_id=c.run_id),
        lambda _: "run",
    ),
    "approvals.find of a node": (
        lambda w, c: [w.approvals.find(c.run_id, "go", node=place).id for place in places("gate")],
        lambda c: list(c.gates),
    ),
    "approvals.find": (lambda w, c: w.approvals.find(c.run_id, "other"), lambda _: None),
    "approvals.list_pending": (
        lambda w, _: {gate.id: gate.label for gate in w.approvals.list_pending()},
        lambda c: dict(zip(c.gates, ("gate 0", "gate 1", "gate-2 0"), strict=True)),
    ),
    "human_requests.list_pending": (
        lambda w, _: {request.id: request.label for request in w.human_requests.list_pending()},
        lambda c: dict(zip(c.requests, ("who 0", "who 1", "who-2 0"), strict=True)),
    ),
    "lookups.get_task": (
        lambda w, c: _ids(w.lookups.get_task(c.run_id, NODE).attempts),
        lambda c: [c.executions[0]],
    ),
    "lookups.get_task of a gate": (
        lambda w, c: _ids(w.lookups.get_task(c.run_id, NodeRef("gate")).waits),
        lambda c: [c.gates[0]],
    ),
    "lookups.get_task of a question": (
        lambda w, c: _ids(w.lookups.get_task(c.run_id, NodeRef("who")).waits),
        lambda c: [c.requests[0]],
    ),
    "the last iteration of a task": (
        lambda w, c: [w.lookups.get_task(c.run_id, NodeRef(name)).latest_iteration for name in ("build", "build-2")],
        lambda _: [1, 0],
    ),
    "loops.find": (lambda w, c: w.loops.find(c.run_id, "retry").loop_id, lambda _: "retry"),
}


def test_a_read_shows_only_what_it_names(sqlite_database: Database) -> None:
    """workflows W-14."""
    store = sqlite_database.open()
    crowd = Crowd.of(store)
    store.workflows.nodes.update(crowd.run_id, NODE, state="failed", expected="running")
    shown = {name: read(store.workflows, crowd) for name, (read, _) in READS.items()}
    assert shown == {name: expected(crowd) for name, (_, expected) in READS.items()}
