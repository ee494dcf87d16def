"""Driving a run by the store: events and transactions of any domain under the claim."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest
from support.workflows.steps import TRIGGER, Raw, started
from workflows.claims.test_driving import driver, renewals, until

from lastlight_state import AsyncStateStore, StateStore
from lastlight_state.errors import ClaimLost, MisuseError, NestedTransaction
from lastlight_state.journal import NewEvent
from lastlight_state.messaging import ConversationKey
from lastlight_state.workflows import Claim, PhaseEntry

CHAT = ConversationKey("slack", channel_id="C1", user_id="ana")


def types(store: StateStore, run_id: str) -> list[str]:
    return [event.type for event in store.journal.events.list(run_id)]


def test_the_journal_of_the_block_presents_its_claim(store: StateStore) -> None:
    """workflows W-210: each way to write, and the block is that of ``claims.driving`` otherwise."""
    claim = driver(store)
    with store.driving(claim) as driven:
        events, signals = driven.journal.events, driven.journal.signals
        assert events.append(claim.run_id, "planned", {"files": 3}).seq == 0
        events.append_many(claim.run_id, [NewEvent("read"), NewEvent("written", event_id="w")])
        store.journal.signals.send(claim.run_id, "go")
        assert signals.try_take(claim.run_id, "go", consumer="phase", wait=5) is not None
        driven.workflows.runs.append_phase(claim.run_id, PhaseEntry("plan", True))
        assert [event.seq for event in events.follow(claim.run_id, idle_timeout=0)] == [0, 1, 2]
    assert types(store, claim.run_id) == ["planned", "read", "written"]
    assert store.workflows.claims.find(claim.run_id) is None
    assert not renewals()


@pytest.mark.logs("is no longer renewed")
def test_no_event_is_stored_after_another_took_the_run(store: StateStore, raw: Raw) -> None:
    """workflows W-210: nor a signal taken, nor a transaction begun, and reads go on."""
    claim = driver(store)
    with store.driving(claim) as driven:
        driven.journal.events.append(claim.run_id, "mine")
        store.journal.signals.send(claim.run_id, "go")
        raw.hold(claim.run_id, "worker-2")
        with pytest.raises(ClaimLost):
            driven.journal.events.append(claim.run_id, "late")
        with pytest.raises(ClaimLost):
            driven.journal.signals.try_take(claim.run_id, "go", consumer="phase")
        with pytest.raises(ClaimLost), driven.transaction():
            pytest.fail("the block must not begin")
        assert driven.journal.events.latest_seq(claim.run_id) == 0
        until(lambda: driven.lost)
        store.journal.events.append(claim.run_id, "theirs")
    assert types(store, claim.run_id) == ["mine", "theirs"]
    assert store.journal.signals.find_taken(claim.run_id, "phase") is None


def test_a_transaction_of_the_block_is_all_or_nothing(store: StateStore) -> None:
    """workflows W-211: over domains, and its engine writes present the claim."""
    claim = driver(store)

    def work(driven: Any, *, fails: bool) -> None:
        with driven.transaction(label="phase") as tx:
            session = tx.messaging.sessions.resume(CHAT).session
            tx.messaging.messages.append(session.id, role="assistant", content="Planned.")
            tx.journal.events.append(claim.run_id, "planned")
            tx.workflows.runs.append_phase(claim.run_id, PhaseEntry("plan", True))
            if fails:
                raise ArithmeticError

    with store.driving(claim) as driven:
        with pytest.raises(ArithmeticError):
            work(driven, fails=True)
        assert types(store, claim.run_id) == []
        work(driven, fails=False)
    assert types(store, claim.run_id) == ["planned"]
    assert store.workflows.runs.get(claim.run_id).phase_count == 1
    assert [session.message_count for session in store.messaging.sessions.list()] == [1]


def test_waits_of_the_block_share_the_watch_of_the_store(every_backend: StateStore) -> None:
    """workflows W-210: blocks that come and go leave nothing in a store that stays."""
    for _ in range(3):
        claim = driver(every_backend)
        with every_backend.driving(claim) as driven:
            assert driven.journal.signals.try_take(claim.run_id, "go", consumer="phase", wait=0.01) is None
    assert len(every_backend._scope.before_close) == 1


def test_queued_writers_are_made_on_the_store(store: StateStore) -> None:
    """workflows W-210: one outlives the block, and the claim would be over."""
    with store.driving(driver(store)) as driven, pytest.raises(MisuseError, match="make it on the store"):
        driven.journal.writer()


def test_no_block_of_the_store_within_a_transaction(every_backend: StateStore) -> None:
    """workflows W-39, W-210."""
    claim = driver(every_backend)
    with every_backend.transaction(), pytest.raises(NestedTransaction), every_backend.driving(claim):
        pytest.fail("the block must not begin")


def test_coroutines_drive_by_the_store(async_state_store: AsyncStateStore) -> None:
    """workflows W-210, W-211: the same, and a task that is cancelled gives the run back."""
    store = async_state_store

    async def claimed() -> Claim:
        run = await store.workflows.runs.create("deploy", trigger=TRIGGER, phase="plan")
        return await store.workflows.claims.take(run.id, owner="worker-1", lease=timedelta(minutes=1))

    async def story() -> None:
        claim, begun = await claimed(), asyncio.Event()
        async with store.driving(claim) as driven:
            await driven.journal.events.append(claim.run_id, "planned")
            async with driven.transaction() as tx:
                await tx.journal.events.append(claim.run_id, "shipped")
                await tx.workflows.runs.append_phase(claim.run_id, PhaseEntry("ship", True))
            await store.workflows.runs.cancel(claim.run_id, by="ana", reason="enough")
            with pytest.raises(ClaimLost):
                await driven.journal.events.append(claim.run_id, "late")
            with pytest.raises(ClaimLost):
                async with driven.transaction():
                    pytest.fail("the block must not begin")
        seen = await store.journal.events.list(claim.run_id)
        assert [event.type for event in seen] == ["planned", "shipped"]

        other = await claimed()

        async def job() -> None:
            async with store.driving(other):
                begun.set()
                await asyncio.Event().wait()

        task = asyncio.create_task(job())
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await store.workflows.claims.find(other.run_id) is None

    asyncio.run(story())
    assert not renewals()


def test_a_run_without_a_claim_is_driven_by_nobody(store: StateStore) -> None:
    """workflows W-210: the claim is checked before the block."""
    run = started(store)
    claim = store.workflows.claims.take(run.id, owner="worker-1")
    store.workflows.claims.release(claim)
    with pytest.raises(ClaimLost), store.driving(claim):
        pytest.fail("the block must not begin")
