"""What a call of this domain decides although something changed between its look and its write."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from functools import partial

import pytest
from support.between import before
from support.workflows.asking import WHO
from support.workflows.claim_steps import LEASE, MILLI, abandoned
from support.workflows.steps import Raw, started, wait_until_blocked

from lastlight_state import StateStore
from lastlight_state.errors import Conflict, LostRace
from lastlight_state.testing import Database, FrozenClock, racing
from lastlight_state.workflows import Gate, NodeRef, RunOptions, Trigger
from lastlight_state.workflows.questions.question_rows import QuestionRows


@pytest.fixture
def other(database: Database) -> StateStore:
    """Another process's store on the same database."""
    return database.open()


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1) as pool:
        yield pool


def test_a_run_renewed_after_the_sweep_looked_is_not_given_up(
    store: StateStore, other: StateStore, frozen_clock: FrozenClock
) -> None:
    """workflows W-47, case 12."""
    claim = abandoned(store, frozen_clock, max_restarts=0)
    with racing(store) as race:
        race.before_unit(2, lambda: other.workflows.claims.heartbeat(claim))
        assert store.workflows.claims.give_up() == ()
    assert race.left == 0
    assert store.workflows.runs.get(claim.run_id).status == "running"


def test_a_run_renewed_while_it_was_taken_over_stays_its_holders(
    store: StateStore, other: StateStore, frozen_clock: FrozenClock
) -> None:
    """workflows W-41, W-43: a sweep looks first, and takes only what still may be taken."""
    claim = abandoned(store, frozen_clock)
    with racing(store) as race:
        race.before_unit(1, lambda: other.workflows.claims.heartbeat(claim))
        assert store.workflows.claims.take_next(owner="b") == ()
    assert race.left == 0


def test_a_child_made_while_its_tree_is_cancelled_is_cancelled(
    postgres_database: Database,
) -> None:
    """workflows W-28, W-29: the descendants are looked for again after the last lock."""
    store, other = postgres_database.open(), postgres_database.open()
    parent = started(store)
    with racing(store) as race:
        race.before(2, lambda: started(other, parent_run_id=parent.id))
        store.workflows.runs.cancel(parent.id, by="ana", reason="enough", scope="tree")
    assert race.left == 0
    [child] = store.workflows.lookups.list_children(parent.id)
    assert child.status == "cancelled"


def test_a_child_waits_for_a_cancel_of_its_parent_and_is_refused(
    postgres_database: Database, pool: ThreadPoolExecutor
) -> None:
    """workflows W-28: Runs.create locks the parent's row before it looks at it."""
    store, other = postgres_database.open(), postgres_database.open()
    parent = started(store)
    with other.transaction() as tx:
        tx.workflows.runs.cancel(parent.id, by="ana", reason="enough")
        making = pool.submit(partial(started, store, parent_run_id=parent.id))
        wait_until_blocked(Raw(postgres_database))
    with pytest.raises(Conflict) as refusal:
        making.result(30)
    assert refusal.value.code == "parent_cancelled"


@pytest.mark.parametrize("write", ["loop", "node"])
def test_what_hangs_on_a_run_waits_for_the_runs_end_and_is_refused(
    postgres_database: Database, pool: ThreadPoolExecutor, write: str
) -> None:
    """workflows W-14: the run's row is locked in the statement that writes, so it cannot end in between."""
    store, other = postgres_database.open(), postgres_database.open()
    run, build = started(store), NodeRef("build")
    store.workflows.nodes.put(run.id, build)
    calls: dict[str, Callable[[], object]] = {
        "loop": partial(store.workflows.loops.advance, run.id, "review", expected=0),
        "node": partial(store.workflows.nodes.update, run.id, build, state="running", expected="pending"),
    }
    with other.transaction() as tx:
        tx.workflows.runs.finish(run.id, "succeeded")
        writing = pool.submit(calls[write])
        wait_until_blocked(Raw(postgres_database))
    with pytest.raises(Conflict) as refusal:
        writing.result(30)
    assert refusal.value.code == "run_status"
    assert store.workflows.loops.find(run.id, "review") is None


@pytest.mark.parametrize("kind", ["gate", "request"])
def test_a_question_that_another_program_has_closed_meanwhile_is_not_answered(
    postgres_database: Database, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """workflows W-83, W-91: one that takes no lock on the run."""
    store, raw = postgres_database.open(), Raw(postgres_database)
    gates, requests, run_id = store.workflows.approvals, store.workflows.human_requests, started(store).id
    if kind == "gate":
        table, gate = "workflow_approvals", gates.create(run_id, Gate("plan", "Go?"))
        answer: Callable[[], object] = partial(gates.answer, gate.id, "approved", by="ana")
    else:
        table, request = "human_requests", requests.create(run_id, WHO)
        answer = partial(requests.answer, request.id, "me", by="ana")
    before(monkeypatch, QuestionRows, "close", lambda: raw(f"UPDATE {table} SET status = 'cancelled'"))
    with pytest.raises(LostRace):
        answer()
    assert raw(f"SELECT status FROM {table}") == [("cancelled",)]


def test_a_holder_may_take_its_own_run_again_at_the_very_end_of_its_lease(
    store: StateStore, frozen_clock: FrozenClock
) -> None:
    """workflows W-41: the lease still runs at its last millisecond, and so nothing is counted."""
    claims = store.workflows.claims
    first = claims.take(started(store).id, owner="a")
    frozen_clock.set(first.lease_expires_at)
    again = claims.take(first.run_id, owner="a")
    assert (again.epoch, again.restart_count) == (first.epoch + 1, 0)
    assert store.workflows.runs.get(first.run_id).restart_count == 0


def test_a_new_run_is_in_its_grace_to_the_last_millisecond_and_then_offered(
    store: StateStore, frozen_clock: FrozenClock
) -> None:
    """workflows W-40: never of two kinds, nor of none."""
    claims = store.workflows.claims
    run = started(store)
    frozen_clock.advance(timedelta(seconds=30))
    assert [item.run_id for item in claims.list_claimable()] == []
    assert claims.take(run.id, owner="a").restart_count == 0
    late = store.workflows.runs.create("deploy", trigger=Trigger("t-2"), phase="plan", options=RunOptions())
    frozen_clock.advance(LEASE + MILLI)
    assert late.id in [item.run_id for item in claims.list_claimable()]
    assert claims.take(late.id, owner="b").restart_count == 0
