"""A block around a fire's work: renewed while it runs, ended with it."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from support.workflows.steps import Raw, started

from lastlight_state import AsyncStateStore, StateStore
from lastlight_state.errors import ClaimLost, InvalidValue, LostRace, MisuseError, NestedTransaction
from lastlight_state.schedules import FireClaim, FireOutcome
from lastlight_state.testing import FrozenClock

SECOND = timedelta(seconds=1)


class Broken(Exception):
    """What a job raises."""


def begun(store: Any) -> FireClaim:
    claim: FireClaim = store.schedules.fires.create("tidy", owner="worker-1")
    return claim


def until(happened: Callable[[], bool]) -> None:
    """Wait for what a thread of the library is about to do."""
    given_up = time.monotonic() + 60
    while not happened():
        assert time.monotonic() < given_up
        time.sleep(0.01)


def renewals() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("lastlight-fire")]


def test_a_block_that_says_nothing_ends_ok_and_one_that_does_as_it_says(store: StateStore) -> None:
    """schedules F-10."""
    fires = store.schedules.fires
    silent, telling = begun(store), begun(store)
    with fires.running(silent):
        pass
    with fires.running(telling) as fire:
        fire.outcome = FireOutcome("partial", dispatched=2, failures=1)
    ended = fires.get(silent.fire_id)
    assert (ended.status, ended.dispatched) == ("ok", None)
    ended = fires.get(telling.fire_id)
    assert (ended.status, ended.dispatched, ended.failures) == ("partial", 2, 1)
    assert not renewals()


def test_a_block_that_raises_fails_the_fire_and_raises_the_same(store: StateStore) -> None:
    """schedules F-10."""
    claim, raised = begun(store), Broken("no route to host")

    def job() -> None:
        with store.schedules.fires.running(claim) as fire:
            fire.outcome = FireOutcome(dispatched=1)
            raise raised

    with pytest.raises(Broken) as caught:
        job()
    assert caught.value is raised
    assert not hasattr(raised, "__notes__")
    ended = store.schedules.fires.get(claim.fire_id)
    assert (ended.status, ended.error) == ("failed", {"type": "Broken", "message": "no route to host"})
    assert not renewals()


def test_a_database_that_breaks_hides_no_error_of_the_job(store: StateStore, raw: Raw) -> None:
    """schedules F-10."""
    claim, raised = begun(store), Broken("no route to host")

    def job() -> None:
        with store.schedules.fires.running(claim):
            raw("ALTER TABLE cron_fires RENAME TO lost_fires")
            raise raised

    with pytest.raises(Broken) as caught:
        job()
    raw("ALTER TABLE lost_fires RENAME TO cron_fires")
    assert caught.value is raised
    [note] = raised.__notes__
    assert note.startswith(f"fire {claim.fire_id!r} could not be finished: BackendError")
    assert store.schedules.fires.get(claim.fire_id).status == "running"


def test_an_exception_of_a_megabyte_is_clipped_and_stored(store: StateStore) -> None:
    """schedules F-6."""
    claim = begun(store)
    with pytest.raises(Broken), store.schedules.fires.running(claim):
        raise Broken("\N{GRINNING FACE}" * 250_000)
    message = store.schedules.fires.get(claim.fire_id).error["message"]
    assert len(message) == 4_000
    assert message.endswith(" …[cut]")


def test_the_lease_is_renewed_while_the_block_runs(store: StateStore, frozen_clock: FrozenClock) -> None:
    """schedules F-10."""
    fires, claim = store.schedules.fires, begun(store)
    with fires.running(claim, lease=SECOND) as fire:
        assert fire.claim.lease_expires_at == claim.lease_expires_at  # a lease never gets shorter
        frozen_clock.advance(timedelta(minutes=10))
        until(lambda: fire.claim.lease_expires_at == frozen_clock.now() + SECOND)
        assert fires.take_stale(owner="worker-2") == ()
    assert fires.get(claim.fire_id).status == "ok"


def test_a_renewal_that_the_database_fails_is_tried_again(
    state_store: StateStore, frozen_clock: FrozenClock, caplog: pytest.LogCaptureFixture
) -> None:
    """schedules F-10."""
    claim, raw = begun(state_store), sqlite3.connect(state_store.settings.state_dir / "lastlight.db")
    with state_store.schedules.fires.running(claim, lease=SECOND) as fire:
        raw.execute("ALTER TABLE cron_fires RENAME TO lost_fires")
        until(lambda: "could not be renewed" in caplog.text)
        raw.execute("ALTER TABLE lost_fires RENAME TO cron_fires")
        frozen_clock.advance(timedelta(minutes=10))
        until(lambda: fire.claim.lease_expires_at == frozen_clock.now() + SECOND)
        assert not fire.lost
    raw.close()
    assert state_store.schedules.fires.get(claim.fire_id).status == "ok"


@pytest.mark.logs("is no longer renewed")
def test_a_claim_that_is_lost_surfaces_and_ends_nothing(store: StateStore) -> None:
    """schedules F-10: never a second ok."""
    fires, claim = store.schedules.fires, begun(store)
    taken: list[FireClaim] = []

    def is_taken() -> bool:
        fires.release(claim)
        taken.extend(fires.take_stale(owner="worker-2"))
        return bool(taken)  # unless it was renewed between the two

    def job() -> None:
        with fires.running(claim, lease=SECOND) as fire:
            until(is_taken)
            until(lambda: fire.lost)

    with pytest.raises(ClaimLost):
        job()
    assert fires.get(claim.fire_id).owner == "worker-2"
    with pytest.raises(ClaimLost), fires.running(claim):
        pytest.fail("the block of a lost claim must not begin")
    assert fires.finish(taken[0], FireOutcome()).status == "ok"
    assert not renewals()


def test_a_block_may_end_its_fire_in_a_transaction_with_what_it_starts(store: StateStore) -> None:
    """schedules C-23, F-10."""
    claim = begun(store)
    with store.schedules.fires.running(claim) as fire, store.transaction() as tx:
        run = started(tx)
        tx.schedules.fires.finish(fire.claim, FireOutcome(dispatched=1))
    assert store.workflows.runs.get(run.id).status == "running"
    assert store.schedules.fires.get(claim.fire_id).dispatched == 1


def test_a_block_that_goes_on_after_the_end_of_its_fire_has_lost_nothing(
    store: StateStore, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """schedules C-23, F-10: the renewals end, and say nothing."""
    monkeypatch.setattr("lastlight_state.db.news.renewals.RENEWALS", 100)
    claim = begun(store)
    with store.schedules.fires.running(claim, lease=SECOND) as fire:
        store.schedules.fires.finish(fire.claim, FireOutcome(dispatched=1))
        until(lambda: not renewals())
        assert not fire.lost
    assert caplog.text == ""


def test_a_block_that_ends_its_fire_twice_is_told(store: StateStore) -> None:
    """schedules F-4, F-10."""
    claim = begun(store)

    def job() -> None:
        with store.schedules.fires.running(claim) as fire:
            store.schedules.fires.finish(fire.claim, FireOutcome(dispatched=1))
            fire.outcome = FireOutcome(dispatched=2)

    with pytest.raises(LostRace):
        job()


def test_an_outcome_that_cannot_be_stored_is_refused_where_it_is_set(state_store: StateStore) -> None:
    """schedules F-6, F-10."""
    claim = begun(state_store)
    with pytest.raises(InvalidValue), state_store.schedules.fires.running(claim) as fire:
        fire.outcome = FireOutcome("failed")
    assert state_store.schedules.fires.get(claim.fire_id).error["type"] == "InvalidValue"


def test_no_block_within_a_transaction(every_backend: StateStore) -> None:
    """schedules F-10: its lease could be renewed by nobody."""
    claim = begun(every_backend)
    with every_backend.transaction() as tx, pytest.raises(MisuseError):
        tx.schedules.fires.running(claim)
    with (
        every_backend.transaction(),
        pytest.raises(NestedTransaction),
        every_backend.schedules.fires.running(claim),
    ):
        pytest.fail("the block must not begin")


def test_no_block_within_a_transaction_of_the_same_task(async_state_store: AsyncStateStore) -> None:
    """schedules F-10."""

    async def work() -> None:
        claim = await async_state_store.schedules.fires.create("tidy", owner="worker-1")
        async with async_state_store.transaction():
            with pytest.raises(NestedTransaction):
                async with async_state_store.schedules.fires.running(claim):
                    pytest.fail("the block must not begin")

    asyncio.run(work())


def test_a_task_that_is_cancelled_in_its_block_leaves_a_failed_fire(async_state_store: AsyncStateStore) -> None:
    """schedules F-10."""

    async def work() -> Any:
        fires = async_state_store.schedules.fires
        claim = await fires.create("tidy", owner="worker-1")
        begun_work = asyncio.Event()

        async def job() -> None:
            async with fires.running(claim):
                begun_work.set()
                await asyncio.Event().wait()

        task = asyncio.create_task(job())
        await begun_work.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return await fires.get(claim.fire_id)

    fire = asyncio.run(work())
    assert (fire.status, fire.error["type"]) == ("failed", "CancelledError")
    assert not renewals()
