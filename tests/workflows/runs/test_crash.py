"""A process that is killed leaves each change of a run whole or not begun."""

from __future__ import annotations

import inspect
import random
from dataclasses import dataclass
from typing import Any

import pytest
from support.workflows.crew import Crew
from support.workflows.steps import Raw, paused, started

from lastlight_state import StateStore
from lastlight_state.testing import Database
from lastlight_state.workflows import Failure, Gate, PhaseEntry


def make(store: StateStore, change: str, run_id: str, gate_id: str) -> None:
    """Make a change of a run; runs in the processes that are killed, too."""
    runs, approvals = store.workflows.runs, store.workflows.approvals
    marker, scratch = PhaseEntry("build", True), {"built": True}
    if change == "pause":
        approvals.pause(run_id, Gate("plan", "Go?", id=gate_id), marker=marker, scratch=scratch)
    elif change == "approve":
        approvals.answer(gate_id, "approved", by="ana", scratch=scratch)
    elif change == "reject":
        approvals.answer(gate_id, "rejected", by="ana", scratch=scratch)
    elif change == "finish":
        runs.finish(run_id, "succeeded", marker=marker, scratch=scratch)
    elif change == "restart":
        runs.restart(run_id, by="ana", reason="again")


FORK = """
import os, signal, time, traceback
from lastlight_state import StateStore
from lastlight_state.workflows import Gate, PhaseEntry, Trigger

def in_a_child(act):
    child = os.fork()
    if child:
        return child
    try:
        act()
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)

""" + inspect.getsource(make)
KILLED_AT_A_STATEMENT = (
    FORK
    + """
class Dying:
    '''A driver connection whose process is killed right after the statement of a certain number.'''
    def __init__(self, driver):
        self._driver = driver
    def execute(self, *statement):
        global left
        done = self._driver.execute(*statement)
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return done
    def __getattr__(self, name):
        return getattr(self._driver, name)

def act():
    store = StateStore.open(url, migrate=False)
    acquire = store.backend.acquire
    def acquire_dying(mode, checkout=None):
        checkout = acquire(mode, checkout)
        checkout.driver = Dying(checkout.driver)
        checkout.execute = checkout.driver.execute
        return checkout
    store.backend.acquire = acquire_dying
    make(store, *change)

url, change, left = arguments
ready()
_, status = os.waitpid(in_a_child(act), 0)
result = "killed" if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
"""
)
KILLED_AT_A_MOMENT = (
    FORK
    + """
def act():
    store = StateStore.open(url, migrate=False)
    runs, approvals = store.workflows.runs, store.workflows.approvals
    while True:
        run = runs.create("deploy", trigger=Trigger("t-1"), phase="plan")
        for change in ("pause", "approve"):
            make(store, change, run.id, f"gate-{run.id}")
            os.write(told, f"{change} {run.id}\\n".encode())
        runs.finish(run.id, "failed")
        make(store, "restart", run.id, "")
        make(store, "finish", run.id, "")
        os.write(told, f"finish {run.id}\\n".encode())

url, seconds = arguments
heard, told = os.pipe()
ready()
child = in_a_child(act)
os.close(told)
with os.fdopen(heard) as lines:
    first = lines.readline()
    time.sleep(seconds)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    result = [line.split() for line in (first + lines.read()).splitlines()]
"""
)


@dataclass(frozen=True)
class Change:
    """A change that is killed: its name, the run, the gate, and how both look before and after."""

    name: str
    run_id: str
    gate_id: str
    before: tuple[Any, ...]
    after: tuple[Any, ...]

    @property
    def call(self) -> tuple[str, str, str]:
        return self.name, self.run_id, self.gate_id


def begun(store: StateStore, raw: Raw, name: str, gate_id: str) -> Change:
    """A run on which the change is about to be made. A look is: run, phases, scratch, transitions, gate, execution."""
    running = ("running", 0, None, 1, None, None)
    waiting = ("paused", 0, None, 2, "pending", None)
    built = {"built": True}
    if name == "pause":
        after = ("paused", 1, built, 2, "pending", None)
        return Change(name, started(store).id, gate_id, running, after)
    if name == "restart":
        run_id = started(store).id
        store.workflows.runs.finish(run_id, "failed", failure=Failure("boom"))
        return Change(name, run_id, gate_id, ("failed", 0, None, 2, None, None), ("running", 0, None, 3, None, None))
    if name == "finish":
        run_id = started(store).id
        raw.execution(run_id, f"e-{gate_id}")
        return Change(name, run_id, gate_id, running, ("succeeded", 1, built, 2, None, "interrupted"))
    run_id = paused(store, Gate("plan", "Go?", id=gate_id)).run_id
    raw.execution(run_id, f"e-{gate_id}")
    if name == "approve":
        return Change(name, run_id, gate_id, waiting, ("running", 0, built, 3, "approved", None))
    return Change(name, run_id, gate_id, waiting, ("failed", 0, built, 3, "rejected", "interrupted"))


def look(store: StateStore, raw: Raw, change: Change) -> tuple[Any, ...]:
    run = store.workflows.runs.get(change.run_id)
    gates = [gate.status for gate in store.workflows.approvals.list_for_run(run.id)]
    executions = [outcome for (outcome,) in raw("SELECT outcome FROM executions WHERE workflow_run_id = ?", run.id)]
    gate, execution = next(iter(gates), None), next(iter(executions), None)
    return (run.status, run.phase_count, run.scratch, len(raw.transitions(run.id)), gate, execution)


@pytest.mark.parametrize("name", ["pause", "approve", "reject", "finish", "restart"])
def test_a_change_that_is_killed_at_any_statement_is_whole_or_not_begun(
    fresh_database: Database, crew: Crew, name: str
) -> None:
    """workflows case 54: killed after every statement in turn, the commit included; called again, it is completed."""
    store, raw = fresh_database.open(), Raw(fresh_database)
    outcome: Any = "killed"
    looks: list[str] = []
    while outcome == "killed":
        change = begun(store, raw, name, f"gate-{len(looks)}")
        [outcome] = crew.race(KILLED_AT_A_STATEMENT, [fresh_database.url, change.call, len(looks) + 1])
        found = look(store, raw, change)
        assert found in (change.before, change.after)
        looks.append("after" if found == change.after else "before")
        raw.check_history(change.run_id)
        if found == change.before or name != "restart":  # which is the one that is not repeat-safe
            make(store, *change.call)
        assert look(store, raw, change) == change.after
    assert outcome == 0
    assert looks == ["before"] * (len(looks) - 2) + ["after", "after"]  # killed right after the commit, and not at all


@pytest.mark.parametrize("rounds", [2, pytest.param(100, marks=pytest.mark.soak)])
def test_a_process_killed_at_any_moment_leaves_what_it_was_told(
    fresh_database: Database, crew: Crew, rounds: int
) -> None:
    """workflows case 54: every change that returned is there, and nothing is between two states."""
    store, raw = fresh_database.open(), Raw(fresh_database)
    moments = random.Random(54)
    for _ in range(rounds):
        [told] = crew.race(KILLED_AT_A_MOMENT, [fresh_database.url, moments.uniform(0, 0.2)])
        for change, run_id in told:
            gate = store.workflows.approvals.get(f"gate-{run_id}")
            assert gate.status == "approved" or change == "pause"
            assert change != "finish" or store.workflows.runs.get(run_id).status == "succeeded"
        with raw.moment():  # a server may be about to commit what its killed client sent last
            for run_id, status in raw("SELECT id, status FROM workflow_runs"):
                gates = raw("SELECT status FROM workflow_approvals WHERE workflow_run_id = ?", run_id)
                assert (status == "paused") == (gates == [("pending",)])
                raw.check_history(run_id)
