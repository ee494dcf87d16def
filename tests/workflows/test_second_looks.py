"""Calls whose first try changed nothing, or that wait for somebody: what they do is decided by what is there then."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from support.rivals import Wait, after_waiting
from support.workflows.asking import asked
from support.workflows.claim_steps import abandoned
from support.workflows.steps import Raw, paused, started

from lastlight_state import StateStore
from lastlight_state.errors import AlreadyAnswered, ClaimLost, Conflict, LostRace
from lastlight_state.testing import Database, FrozenClock, racing
from lastlight_state.workflows import Claim, Gate, NodeRef, Trigger

NODE = NodeRef("build")
OVERDUE = timedelta(minutes=1)


@pytest.fixture
def other(database: Database) -> StateStore:
    """Another process's store on the same database."""
    return database.open()


@pytest.fixture
def held(every_backend: StateStore) -> Claim:
    """A run that a worker holds, with a node."""
    run = started(every_backend)
    every_backend.workflows.nodes.put(run.id, NODE)
    return every_backend.workflows.claims.take(run.id, owner="a")


WRITES: dict[str, Callable[[StateStore, str], object]] = {
    "Executions._insert_into_run": lambda s, r: s.workflows.executions.start("deploy:plan", run_id=r),
    "Nodes.put_many": lambda s, r: s.workflows.nodes.put(r, NODE, label="built"),
    "Nodes.update": lambda s, r: s.workflows.nodes.update(r, NODE, state="running", expected="pending"),
    "Loops.put": lambda s, r: s.workflows.loops.put(r, "fix", iteration=3),
    "Loops.advance": lambda s, r: s.workflows.loops.advance(r, "fix", expected=0),
    "Loops.finish": lambda s, r: s.workflows.loops.finish(r, "fix"),
}


@pytest.mark.parametrize("write", WRITES.values(), ids=list(WRITES))
def test_a_run_released_after_the_first_try_may_be_written(
    every_backend: StateStore, other: StateStore, held: Claim, write: Callable[[StateStore, str], object]
) -> None:
    """workflows W-14: the fence is looked at again under the run's lock, and then decides."""
    with racing(every_backend) as race:
        race.before_unit(2, lambda: other.workflows.claims.release(held))
        write(every_backend, held.run_id)
    assert race.left == 0


def test_an_execution_whose_run_was_released_after_the_first_try_is_changed(
    every_backend: StateStore, other: StateStore, held: Claim
) -> None:
    """workflows W-14: Executions._change."""
    executions = every_backend.workflows.executions
    execution = executions.start("deploy:plan", run_id=held.run_id, claim=held)
    with racing(every_backend) as race:
        race.before_unit(2, lambda: other.workflows.claims.release(held))
        assert executions.update(execution.id, checkpoint=[1]).checkpoint == [1]
    assert race.left == 0


def test_an_attempt_whose_run_is_released_before_the_lock_is_counted(postgres_database: Database) -> None:
    """workflows W-14: changes.insert_attempt. (Postgres, where others may write)"""
    store, other = postgres_database.open(), postgres_database.open()
    run = started(store)
    store.workflows.nodes.put(run.id, NODE)
    held = store.workflows.claims.take(run.id, owner="a")
    with racing(store) as race:
        race.before(2, lambda: other.workflows.claims.release(held))
        execution = store.workflows.executions.start("deploy:plan", run_id=run.id, node=NODE)
    assert (race.left, execution.attempt) == (0, 1)


def test_a_run_renewed_after_the_first_try_is_not_taken(
    every_backend: StateStore, other: StateStore, frozen_clock: FrozenClock
) -> None:
    """workflows W-41: Claims.take."""
    claim = abandoned(every_backend, frozen_clock)
    with racing(every_backend) as race:
        race.before_unit(2, lambda: other.workflows.claims.heartbeat(claim))
        with pytest.raises(LostRace):
            every_backend.workflows.claims.take(claim.run_id, owner="b")
    assert race.left == 0


def test_a_run_renewed_after_it_was_chosen_is_not_taken(shared_postgres: Database, frozen_clock: FrozenClock) -> None:
    """workflows W-43: Claims.take_next looks without a lock, and again with it. (Postgres, where others may write)"""
    store, other = shared_postgres.open(), shared_postgres.open()
    claim = abandoned(store, frozen_clock)
    with racing(store) as race:
        race.before(2, lambda: other.workflows.claims.heartbeat(claim))
        assert store.workflows.claims.take_next(owner="b") == ()
    assert race.left == 0


def test_a_run_that_changes_hands_during_a_transfer_is_not_handed_over(
    every_backend: StateStore, other: StateStore, frozen_clock: FrozenClock, raw: Raw
) -> None:
    """workflows W-121: Claims.transfer. Whoever was first has it, and the loser is told how the run stands then."""
    claims, held = every_backend.workflows.claims, abandoned(every_backend, frozen_clock)
    taken: list[Claim] = []
    with racing(every_backend) as race:
        race.before_unit(1, lambda: taken.append(other.workflows.claims.take(held.run_id, owner="b")))
        race.before_unit(2, lambda: other.workflows.claims.release(taken[0]))
        with pytest.raises(ClaimLost):
            claims.transfer(held, owner="c")
    assert race.left == 0
    told = raw("SELECT reason FROM run_transitions WHERE run_id = ? ORDER BY seq", held.run_id)
    assert told == [("run.created",), ("claim.taken_over",), ("claim.released",)]
    raw.check_history(held.run_id)


def test_a_run_made_after_the_first_look_for_its_key_is_found(every_backend: StateStore, other: StateStore) -> None:
    """workflows W-23: Runs.ensure."""

    def ensure(store: StateStore) -> Any:
        return store.workflows.runs.ensure("k", "review", trigger=Trigger("t-1"), phase="plan")

    made: list[Any] = []
    with racing(every_backend) as race:
        race.before_unit(2, lambda: made.append(ensure(other)))
        found = ensure(every_backend)
    assert race.left == 0
    assert (found.created, found.run.id) == (False, made[0].run.id)


def test_a_request_answered_while_an_answer_was_checked_stays_answered(
    every_backend: StateStore, other: StateStore
) -> None:
    """workflows W-83: HumanRequests.answer."""
    request = asked(every_backend)
    requests = every_backend.workflows.human_requests
    with racing(every_backend) as race:
        race.before_unit(2, lambda: other.workflows.human_requests.answer(request.id, "ben"))
        with pytest.raises(AlreadyAnswered):
            requests.answer(request.id, "ana")
    assert race.left == 0
    assert requests.get(request.id).response == "ben"


def test_a_gate_prolonged_by_another_program_after_the_sweep_looked_has_not_expired(
    every_backend: StateStore, frozen_clock: FrozenClock, raw: Raw
) -> None:
    """workflows W-87: QuestionRepository._expire."""
    gate = paused(every_backend, Gate("late", "Go on?", expires_at=frozen_clock.now() + OVERDUE))
    frozen_clock.advance(OVERDUE * 2)
    later = frozen_clock.now() + OVERDUE
    with racing(every_backend) as race:
        race.before_unit(2, lambda: raw("UPDATE workflow_approvals SET expires_at = ?", later))
        assert every_backend.workflows.approvals.expire_due() == ()
    assert race.left == 0
    assert every_backend.workflows.approvals.get(gate.id).status == "pending"


def test_a_gate_cancelled_after_the_sweep_looked_has_not_expired(
    every_backend: StateStore, other: StateStore, frozen_clock: FrozenClock
) -> None:
    """workflows W-87: QuestionRepository._expire."""
    gate = paused(every_backend, Gate("late", "Go on?", expires_at=frozen_clock.now() + OVERDUE))
    frozen_clock.advance(OVERDUE * 2)
    with racing(every_backend) as race:
        race.before_unit(2, lambda: other.workflows.approvals.cancel(gate.id, by="ben", reason="enough"))
        assert every_backend.workflows.approvals.expire_due() == ()
    assert race.left == 0
    assert every_backend.workflows.approvals.get(gate.id).status == "cancelled"
    assert every_backend.workflows.runs.get(gate.run_id).status == "running"


@pytest.mark.parametrize("meanwhile", ["requeue", "admit"])
def test_a_queued_run_that_moved_after_the_sweep_looked_stays(
    every_backend: StateStore, other: StateStore, frozen_clock: FrozenClock, meanwhile: str
) -> None:
    """workflows W-38: Queue._expire."""
    run = started(every_backend, status="queued")
    frozen_clock.advance(timedelta(hours=2))
    queue = other.workflows.queue
    move = {"requeue": lambda: queue.requeue(run.id, reason="again"), "admit": lambda: queue.admit(run.id)}[meanwhile]
    with racing(every_backend) as race:
        race.before_unit(2, move)
        assert every_backend.workflows.queue.expire(timedelta(hours=1), reason="too old") == ()
    assert race.left == 0
    assert every_backend.workflows.runs.get(run.id).status != "cancelled"


def test_a_run_that_may_restart_again_since_the_sweep_looked_is_not_given_up(
    every_backend: StateStore, other: StateStore, frozen_clock: FrozenClock
) -> None:
    """workflows W-47: Claims._give_up."""
    spent = abandoned(every_backend, frozen_clock, max_restarts=0)
    with racing(every_backend) as race:
        race.before_unit(2, lambda: other.workflows.runs.allow_restarts(spent.run_id, 1, by="ana", reason="more"))
        assert every_backend.workflows.claims.give_up() == ()
    assert race.left == 0
    assert every_backend.workflows.runs.get(spent.run_id).status == "running"


def _held_run(store: Any) -> Claim:
    claim: Claim = store.workflows.claims.take(started(store).id, owner="a")
    return claim


def _of_run(store: Any) -> tuple[str, str]:
    run_id = started(store).id
    return run_id, store.workflows.executions.start("deploy:plan", run_id=run_id).id


WAITS = {
    "Queue.admit": Wait(
        lambda s: started(s, status="queued").id,
        lambda t, _: t.workflows.queue.admit_next(cap=1, owner="b"),
        lambda s, r: s.workflows.queue.admit(r),
    ),
    "Claims.take": Wait(
        lambda s: started(s).id,
        lambda t, r: t.workflows.claims.take(r, owner="b"),
        lambda s, r: s.workflows.claims.take(r, owner="a"),
    ),
    "Claims._change_claim": Wait(
        _held_run,
        lambda t, c: t.workflows.claims.transfer(c, owner="b"),
        lambda s, c: s.workflows.claims.heartbeat(c),
    ),
    "Claims.transfer": Wait(
        _held_run,
        lambda t, c: t.workflows.claims.transfer(c, owner="b"),
        lambda s, c: s.workflows.claims.transfer(c, owner="c"),
    ),
    "Loops.put": Wait(
        lambda s: started(s).id,
        lambda t, r: t.workflows.runs.finish(r, "succeeded"),
        lambda s, r: s.workflows.loops.put(r, "fix", iteration=3),
    ),
    "Loops.finish": Wait(
        lambda s: started(s).id,
        lambda t, r: t.workflows.runs.finish(r, "succeeded"),
        lambda s, r: s.workflows.loops.finish(r, "fix"),
    ),
    "Nodes.put_many": Wait(
        lambda s: started(s).id,
        lambda t, r: t.workflows.runs.finish(r, "succeeded"),
        lambda s, r: s.workflows.nodes.put(r, NODE),
    ),
    "Executions._insert_into_run": Wait(
        lambda s: started(s).id,
        lambda t, r: t.workflows.runs.finish(r, "succeeded"),
        lambda s, r: s.workflows.executions.start("deploy:plan", run_id=r),
    ),
    "Executions._insert_into_run of a node": Wait(
        lambda s: started(s).id,
        lambda t, r: t.workflows.runs.finish(r, "succeeded"),
        lambda s, r: s.workflows.executions.start("deploy:plan", run_id=r, node=NODE),
    ),
    "Executions._change": Wait(
        _of_run,
        lambda t, e: t.workflows.claims.take(e[0], owner="b"),
        lambda s, e: s.workflows.executions.update(e[1], checkpoint=[1]),
    ),
}


@pytest.mark.parametrize("wait", WAITS.values(), ids=list(WAITS))
def test_who_waited_for_a_change_is_refused_because_of_it(shared_postgres: Database, wait: Wait) -> None:
    """workflows W-10, W-14: one statement looks and writes, and locks the run's row for that."""
    assert isinstance(after_waiting(shared_postgres, wait), LostRace | ClaimLost | Conflict)


def test_many_claims_are_renewed_but_for_one_that_was_lost_meanwhile(shared_postgres: Database) -> None:
    """workflows W-44: Claims.heartbeat_many."""

    def given(store: Any) -> tuple[Claim, Claim]:
        return _held_run(store), _held_run(store)

    wait = Wait(
        given,
        lambda t, c: t.workflows.claims.transfer(c[0], owner="b"),
        lambda s, c: s.workflows.claims.heartbeat_many(c),
    )
    renewed = after_waiting(shared_postgres, wait)
    assert sorted(type(outcome).__name__ for outcome in renewed.values()) == ["Claim", "ClaimLost"]
