"""Claims against writes: who lost a run writes nothing, and who confirmed a claim keeps it until the commit."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from typing import Any

import pytest
import sqlalchemy as sa
from support.preloaded import Program
from support.workflows.claim_steps import LEASE, MILLI
from support.workflows.steps import PLAN, Raw, started, undone, wait_until_blocked

from lastlight_state import StateStore
from lastlight_state.errors import ClaimLost, LostRace
from lastlight_state.testing import Database, FrozenClock
from lastlight_state.workflows import Claim, PhaseEntry, Trigger
from lastlight_state.workflows.tables import APPROVALS

STOPPED = """
import sys
from datetime import timedelta
from lastlight_state import StateStore
from lastlight_state.errors import ClaimLost
from lastlight_state.workflows import Failure, Gate, PhaseEntry, Usage

url, run_id = sys.argv[1:]
store = StateStore.open(url, migrate=False)
flows = store.workflows
claim = flows.claims.take(run_id, owner="A", lease=timedelta(milliseconds=200))
begun = flows.executions.start("deploy:plan", run_id=run_id, claim=claim)
print(begun.id, flush=True)
sys.stdin.readline()
writes = {
    "append": lambda: flows.runs.append_phase(run_id, PhaseEntry("late", True), scratch={"late": 1}, claim=claim),
    "merge": lambda: flows.runs.merge_scratch(run_id, {"late": 1}, claim=claim),
    "start": lambda: flows.executions.start("deploy:late", run_id=run_id, claim=claim),
    "end": lambda: flows.executions.finish(begun.id, "failed", failure=Failure("late"), claim=claim),
    "gate": lambda: flows.approvals.pause(run_id, Gate("late", "Go?"), claim=claim),
    "pause": lambda: flows.waits.pause(run_id, claim=claim),
    "requeue": lambda: flows.queue.requeue(run_id, reason="late", claim=claim),
    "finish": lambda: flows.runs.finish(run_id, "failed", claim=claim),
    "heartbeat": lambda: flows.claims.heartbeat(claim),
    "release": lambda: flows.claims.release(claim),
}
for name, write in writes.items():
    try:
        write()
        print(name, "wrote", flush=True)
    except ClaimLost as lost:
        print(name, "lost", lost.held_by, flush=True)
"""
WRITES = 10


def everything(raw: Raw) -> list[list[tuple[Any, ...]]]:
    tables = ("workflow_runs", "executions", "workflow_approvals", "run_transitions")
    return [raw(f"SELECT * FROM {table} ORDER BY 1, 2") for table in tables]


def test_a_process_that_was_stopped_past_its_lease_and_continued_writes_nothing(fresh_database: Database) -> None:
    """workflows W-14, case 1: SIGSTOP, a takeover, SIGCONT."""
    store, raw = StateStore.open(fresh_database.url, migrate=False), Raw(fresh_database)
    run = store.workflows.runs.create("deploy", trigger=Trigger("t-1"), phase="plan")
    worker = Program(
        [sys.executable, "-c", STOPPED, fresh_database.url, run.id],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert worker.stdin is not None
    assert worker.stdout is not None
    try:
        worker.stdout.readline()
        os.kill(worker.pid, signal.SIGSTOP)
        claim = None
        while claim is None:  # the lease is over when its time has come, and not before
            claim = store.workflows.claims.try_take(run.id, owner="B")
        before = everything(raw)
        os.kill(worker.pid, signal.SIGCONT)
        told, _ = worker.communicate("go on\n", timeout=60)
    finally:
        worker.kill()
        worker.wait()
    assert [line.split(None, 1)[1] for line in told.splitlines()] == ["lost B"] * WRITES
    assert everything(raw) == before
    assert store.workflows.runs.append_phase(run.id, PhaseEntry("plan", True), claim=claim).phase_count == 1
    store.close()


def test_a_transaction_with_a_claim_writes_for_the_holder_alone(store: StateStore, frozen_clock: FrozenClock) -> None:
    """workflows W-16."""
    run = started(store)
    old = store.workflows.claims.take(run.id, owner="a")
    with store.transaction(claim=old) as tx:
        tx.workflows.overrides.put("deploy", enabled=False, by="a")
    frozen_clock.advance(LEASE + MILLI)
    new = store.workflows.claims.take(run.id, owner="b")
    with pytest.raises(ClaimLost), store.transaction(claim=old):
        pytest.fail("the block was entered")
    with store.transaction(claim=new) as tx:
        assert not tx.workflows.overrides.is_enabled("deploy")
        tx.workflows.overrides.clear("deploy")
    assert store.workflows.overrides.is_enabled("deploy")


def test_repeatable_work_can_begin_with_a_claim(store: StateStore) -> None:
    """workflows W-16."""
    claim = store.workflows.claims.take(started(store).id, owner="a")
    assert store.run(lambda tx: tx.workflows.runs.get(claim.run_id).id, claim=claim) == claim.run_id
    lost = store.workflows.claims.transfer(claim, owner="b")
    assert store.run(lambda _: 1, claim=lost) == 1
    with pytest.raises(ClaimLost):
        store.run(lambda _: 1, claim=claim)


@pytest.mark.parametrize("ending", ["renews", "finishes"])
def test_a_confirmed_claim_keeps_the_run_until_the_commit(
    database: Database, every_backend: StateStore, raw: Raw, ending: str
) -> None:
    """workflows W-16: the other supervisor waits and loses."""
    claims, run = every_backend.workflows.claims, started(every_backend)
    claim = claims.take(run.id, owner="a")
    database.clock.advance(LEASE + MILLI)
    with ThreadPoolExecutor(1) as pool:
        with every_backend.transaction(claim=claim) as tx:
            taking = pool.submit(claims.try_take, run.id, owner="b")
            next_one = [] if raw.name == "sqlite" else claims_of_another_store(database)
            if ending == "renews":
                tx.workflows.claims.heartbeat(claim)
            else:
                tx.workflows.runs.finish(run.id, "succeeded", claim=claim)
            assert not taking.done()
        assert taking.result(timeout=30) is None
    assert next_one == []
    assert raw("SELECT count(*) FROM run_transitions WHERE reason = 'claim.taken_over'") == [(0,)]
    raw.check_history(run.id)


def claims_of_another_store(database: Database) -> list[Claim]:
    """What another supervisor finds to take meanwhile: it passes over what is locked."""
    with ThreadPoolExecutor(1) as pool:
        return list(pool.submit(database.open().workflows.claims.take_next, owner="c").result(timeout=30))


def test_a_confirmation_after_a_takeover_is_lost(database: Database, every_backend: StateStore, raw: Raw) -> None:
    """workflows W-16: the first lost before, though the takeover was not yet committed when it asked."""
    claims, run = every_backend.workflows.claims, started(every_backend)
    claim = claims.take(run.id, owner="a")
    database.clock.advance(LEASE + MILLI)

    def confirmed() -> str:
        try:
            with every_backend.transaction(claim=claim) as tx:
                tx.workflows.runs.merge_scratch(run.id, {"late": 1}, claim=claim)
        except ClaimLost as lost:
            return f"lost to {lost.held_by}"
        return "wrote"

    with ThreadPoolExecutor(1) as pool:
        with every_backend.transaction() as tx:
            taken = tx.workflows.claims.take(run.id, owner="b")
            writing = pool.submit(confirmed)
        assert writing.result(timeout=30) == "lost to b"
    assert every_backend.workflows.runs.get(run.id).scratch is None
    assert claims.heartbeat(taken).owner == "b"


def test_a_take_of_a_run_that_another_takes_in_a_transaction_waits_and_loses(
    database: Database, every_backend: StateStore
) -> None:
    """workflows W-41: or wins, when the other is rolled back."""
    runs = [started(every_backend) for _ in range(2)]
    database.clock.advance(LEASE + MILLI)

    def taken(run_id: str) -> str:
        try:
            return every_backend.workflows.claims.take(run_id, owner="b").owner
        except LostRace as lost:
            return f"lost to {lost.details['held_by']}"

    outcomes = []
    endings: list[Callable[[StateStore], AbstractContextManager[Any]]] = [StateStore.transaction, undone]
    with ThreadPoolExecutor(1) as pool:
        for run, ending in zip(runs, endings, strict=True):
            with ending(every_backend) as tx:
                tx.workflows.claims.take(run.id, owner="a")
                waiting = pool.submit(taken, run.id)
            outcomes.append(waiting.result(timeout=30))
    assert outcomes == ["lost to a", "b"]


def test_a_take_that_waits_sees_the_question_that_came_meanwhile(
    database: Database, every_backend: StateStore, raw: Raw
) -> None:
    """workflows W-10, W-41: a due run is not woken over a question that its statement could not see."""
    now = database.clock.now()
    run = every_backend.workflows.waits.pause(started(every_backend).id, until=now)
    with ThreadPoolExecutor(1) as pool:
        with every_backend.transaction() as tx:
            tx.workflows.waits.resume(run.id, by="ana", reason="one more thing")
            gate = tx.workflows.approvals.create(run.id, PLAN)
            tx.connection.execute(sa.update(APPROVALS).where(APPROVALS.c.id == gate.id).values(blocks_run=True))
            tx.workflows.waits.pause(run.id, until=now)
            taking = pool.submit(every_backend.workflows.claims.try_take, run.id, owner="b")
            wait_until_blocked(raw)
        assert taking.result(timeout=30) is None
    assert every_backend.workflows.runs.get(run.id).status == "paused"
    raw("UPDATE workflow_approvals SET status = 'approved'")
    assert every_backend.workflows.claims.take(run.id, owner="b").restart_count == 0


def test_a_claim_that_travelled_as_json_writes(store: StateStore) -> None:
    """workflows W-45: what a supervisor gives to the process that it spawned."""
    claim = store.workflows.claims.take(started(store).id, owner="supervisor")
    sent = json.dumps(store.workflows.claims.transfer(claim, owner="child").model_dump(mode="json"))
    arrived = Claim.model_validate_json(sent)
    assert store.workflows.runs.append_phase(claim.run_id, PhaseEntry("x", True), claim=arrived).phase_count == 1
