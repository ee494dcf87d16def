"""A block that drives a run: renewed while it runs, fenced by its claim, given back at its end."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from support.workflows.steps import PLAN, TRIGGER, Raw, started

from lastlight_state import AsyncStateStore, StateStore
from lastlight_state.errors import ClaimLost, MisuseError, NestedTransaction
from lastlight_state.testing import FrozenClock
from lastlight_state.workflows import Claim, NodePut, NodeRef, PhaseEntry, Usage

SECOND = timedelta(seconds=1)


class Broken(Exception):
    """What an engine raises."""


def driver(store: Any, **given: Any) -> Claim:
    """The claim of a new run."""
    claim: Claim = store.workflows.claims.take(started(store, **given).id, owner="worker-1", lease=SECOND)
    return claim


def until(happened: Callable[[], bool]) -> None:
    """Wait for what a thread of the library is about to do."""
    given_up = time.monotonic() + 60
    while not happened():
        assert time.monotonic() < given_up
        time.sleep(0.01)


def renewals() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("lastlight-run")]


def test_engine_writes_of_the_block_present_its_claim(store: StateStore) -> None:
    """workflows W-39: none needs ``claim=``."""
    claim = driver(store)
    with store.workflows.claims.driving(claim) as driven:
        workflows = driven.workflows
        workflows.runs.append_phase(claim.run_id, PhaseEntry("plan", True))
        workflows.nodes.put_many(claim.run_id, [NodePut(NodeRef("a"), state="running")])
        workflows.loops.advance(run_id=claim.run_id, loop_id="fix", expected=0)
        execution = workflows.executions.start("deploy:plan", run_id=claim.run_id)
        workflows.executions.save_output(execution.id, "text")
        workflows.executions.finish(execution.id, "succeeded")
        with pytest.raises(ClaimLost):
            store.workflows.runs.append_phase(claim.run_id, PhaseEntry("plan", True))
    assert execution.claim_epoch == claim.epoch
    assert store.workflows.runs.get(claim.run_id).phase_count == 1


def test_a_claim_that_is_given_wins_and_other_runs_are_left_out(store: StateStore) -> None:
    """workflows W-39."""
    claim, free = driver(store), started(store)
    stale = claim.model_copy(update={"epoch": claim.epoch + 7})
    with store.workflows.claims.driving(claim) as driven:
        with pytest.raises(ClaimLost):
            driven.workflows.runs.append_phase(claim.run_id, PhaseEntry("plan", True), claim=stale)
        driven.workflows.runs.append_phase(free.id, PhaseEntry("plan", True))
        chat = driven.workflows.executions.start("chat", trigger=TRIGGER)
    assert chat.run_id is None


def test_a_transaction_with_a_claim_presents_it_too(store: StateStore) -> None:
    """workflows W-39: the transaction that confirms the claim writes with it."""
    claim = driver(store)
    with store.transaction(claim=claim) as tx:
        tx.workflows.runs.append_phase(claim.run_id, PhaseEntry("plan", True))
    store.workflows.claims.release(claim)
    with pytest.raises(ClaimLost), store.transaction(claim=claim) as tx:
        tx.workflows.runs.append_phase(claim.run_id, PhaseEntry("plan", True))


def test_the_lease_is_renewed_while_the_block_runs(store: StateStore, frozen_clock: FrozenClock) -> None:
    """workflows W-39: and somebody who asks to cancel is heard."""
    claim = driver(store)
    with store.workflows.claims.driving(claim) as driven:
        frozen_clock.advance(timedelta(minutes=10))
        until(lambda: driven.claim.lease_expires_at == frozen_clock.now() + SECOND)
        assert store.workflows.claims.take_next(owner="worker-2") == ()
        assert not driven.cancel_requested
        assert repr(driven) == f"DrivenRun({driven.claim!r}, held)"
        store.workflows.runs.request_cancel(claim.run_id, by="ana", reason="enough")
        until(lambda: driven.cancel_requested)
    assert not driven.lost
    assert not renewals()


def test_leaving_the_block_gives_the_run_back(store: StateStore, frozen_clock: FrozenClock) -> None:
    """workflows W-39, W-46: no restart is counted, and it may be put off."""
    claim = driver(store)
    with store.workflows.claims.driving(claim) as driven:
        driven.retry_after = timedelta(minutes=1)
    assert store.workflows.claims.find(claim.run_id) is None
    assert store.workflows.claims.take_next(owner="worker-2") == ()
    frozen_clock.advance(timedelta(minutes=1))
    [taken] = store.workflows.claims.take_next(owner="worker-2")
    assert (taken.run_id, taken.restart_count, driven.lost) == (claim.run_id, 0, False)


@pytest.mark.parametrize(
    ("leave", "status"),
    [
        (lambda w, run_id: w.runs.finish(run_id, "succeeded"), "succeeded"),
        (lambda w, run_id: w.waits.pause(run_id), "paused"),
        (lambda w, run_id: w.approvals.pause(run_id, PLAN), "paused"),
        (lambda w, run_id: w.queue.requeue(run_id, reason="later"), "queued"),
    ],
)
def test_a_run_that_the_block_has_ended_is_left_as_it_is(
    store: StateStore, leave: Callable[[Any, str], object], status: str, frozen_clock: FrozenClock
) -> None:
    """workflows W-39, W-48: whatever renewals meet."""
    claim = driver(store)
    with store.workflows.claims.driving(claim) as driven:
        leave(driven.workflows, claim.run_id)
        until(lambda: not renewals())
        with pytest.raises(ClaimLost):
            driven.workflows.runs.append_phase(claim.run_id, PhaseEntry("late", True))
    assert not driven.lost
    assert store.workflows.runs.get(claim.run_id).status == status


def test_a_run_that_was_paused_answered_and_taken_meanwhile_is_left_to_its_holder(store: StateStore) -> None:
    """workflows W-39."""
    claim = driver(store)
    with store.workflows.claims.driving(claim) as driven:
        approval = driven.workflows.approvals.pause(claim.run_id, PLAN)
        store.workflows.approvals.answer(approval.id, "approved", by="ana")
        taken = store.workflows.claims.take(claim.run_id, owner="worker-2")
    assert not driven.lost
    store.workflows.claims.heartbeat(taken)


@pytest.mark.logs("is no longer renewed")
def test_no_write_is_accepted_after_another_took_the_run(store: StateStore, raw: Raw) -> None:
    """workflows W-39, case 1: the block learns it, and its end changes nothing."""
    claim = driver(store)
    with store.workflows.claims.driving(claim) as driven:
        theirs = raw.hold(claim.run_id, "worker-2")
        with pytest.raises(ClaimLost):
            driven.workflows.runs.append_phase(claim.run_id, PhaseEntry("plan", True))
        with pytest.raises(ClaimLost):
            driven.workflows.executions.start("deploy:plan", run_id=claim.run_id)
        until(lambda: driven.lost)
    holder = store.workflows.claims.find(claim.run_id)
    assert holder is not None
    assert (holder.owner, holder.epoch) == ("worker-2", theirs.epoch)
    assert raw("SELECT phase_count FROM workflow_runs") == [(0,)]
    assert raw("SELECT count(*) FROM executions") == [(0,)]
    with pytest.raises(ClaimLost), store.workflows.claims.driving(claim):
        pytest.fail("the block of a lost claim must not begin")
    assert not renewals()


def test_a_claim_that_was_lost_between_two_renewals_is_found_at_the_end(store: StateStore, raw: Raw) -> None:
    """workflows W-39."""
    claim = store.workflows.claims.take(started(store).id, owner="worker-1", lease=timedelta(hours=1))
    with store.workflows.claims.driving(claim) as driven:
        store.workflows.runs.cancel(claim.run_id, by="ana", reason="enough")
    assert driven.lost
    assert repr(driven).endswith(", lost)")


def test_a_run_that_another_took_is_lost_whatever_was_done_before(
    store: StateStore, raw: Raw, frozen_clock: FrozenClock
) -> None:
    """workflows W-39: neither its own wake-up nor what the holder of another run did is an end of this one."""
    ended, run = driver(store), started(store)
    store.workflows.runs.finish(ended.run_id, "succeeded", claim=ended)
    store.workflows.waits.pause(run.id, until=frozen_clock.now())
    claim = store.workflows.claims.take(run.id, owner="worker-1", lease=timedelta(hours=1))
    assert claim.epoch == ended.epoch
    with store.workflows.claims.driving(claim) as driven:
        raw.hold(run.id, "worker-2")
    assert driven.lost


def test_a_block_that_raises_leaves_the_claim_to_run_out(store: StateStore, frozen_clock: FrozenClock) -> None:
    """workflows W-39, W-42: a run that fails on every worker meets its limit."""
    claim, raised = driver(store), Broken("no route to host")

    def work() -> None:
        with store.workflows.claims.driving(claim):
            raise raised

    with pytest.raises(Broken) as caught:
        work()
    assert caught.value is raised
    assert store.workflows.claims.find(claim.run_id) is not None
    frozen_clock.advance(SECOND * 2)
    [taken] = store.workflows.claims.take_next(owner="worker-2")
    assert taken.restart_count == 1


def test_an_interrupted_block_gives_the_run_back(store: StateStore, raw: Raw) -> None:
    """workflows W-39: an orderly shutdown costs no restart; a database that breaks hides no interruption."""
    claim, broken = driver(store), driver(store)

    def work(run: Claim, then: Callable[[], object]) -> None:
        with store.workflows.claims.driving(run):
            then()
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        work(claim, lambda: None)
    assert store.workflows.claims.find(claim.run_id) is None
    with pytest.raises(KeyboardInterrupt) as caught:
        work(broken, lambda: raw("ALTER TABLE workflow_runs RENAME TO lost_runs"))
    raw("ALTER TABLE lost_runs RENAME TO workflow_runs")
    [note] = caught.value.__notes__
    assert note.startswith(f"run {broken.run_id!r} could not be released: BackendError")


def test_no_block_within_a_transaction(every_backend: StateStore) -> None:
    """workflows W-39: its lease could be renewed by nobody."""
    claim = driver(every_backend)
    with every_backend.transaction() as tx, pytest.raises(MisuseError):
        tx.workflows.claims.driving(claim)
    with (
        every_backend.transaction(),
        pytest.raises(NestedTransaction),
        every_backend.workflows.claims.driving(claim),
    ):
        pytest.fail("the block must not begin")


def test_a_task_that_is_cancelled_gives_the_run_back(async_state_store: AsyncStateStore) -> None:
    """workflows W-39: its execution is interrupted first, and what it used is kept."""

    async def work() -> Any:
        workflows, begun = async_state_store.workflows, asyncio.Event()
        run = await workflows.runs.create("deploy", trigger=TRIGGER, phase="plan")
        claim = await workflows.claims.take(run.id, owner="worker-1")

        async def job() -> None:
            async with (
                workflows.claims.driving(claim) as driven,
                driven.workflows.executions.running("deploy:plan", run_id=run.id, session_id="s") as execution,
            ):
                execution.usage = Usage(turns=3)
                begun.set()
                await asyncio.Event().wait()

        task = asyncio.create_task(job())
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        [execution] = await workflows.executions.list(run_id=run.id)
        return await workflows.claims.find(run.id), execution

    holder, execution = asyncio.run(work())
    assert (holder, execution.outcome, execution.turns) == (None, "interrupted", 3)
    assert not renewals()
