"""Waiting for work: for runs that may be taken, and for a place in the queue."""

from __future__ import annotations

import asyncio
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from support.sent import recorded
from support.workflows.claim_steps import LEASE, MILLI, abandoned, offered, sleeping
from support.workflows.crew import Crew
from support.workflows.steps import Raw, paused, started

from lastlight_state import AsyncStateStore, StateStore
from lastlight_state.db.news import watch
from lastlight_state.errors import InvalidValue, MisuseError, StoreClosed
from lastlight_state.testing import Database, FrozenClock

#: Generous, for a slow machine.
LONG = 30


def is_there(store: Any, **given: Any) -> bool:
    """Whether there is a run to take at this moment."""
    found: bool = store.workflows.claims.wait(timeout=0, **given)
    return found


def has_room(store: Any, cap: int = 9, **given: Any) -> bool:
    """Whether there is a run to admit at this moment."""
    found: bool = store.workflows.queue.wait(cap=cap, timeout=0, **given)
    return found


def test_waiting_finds_what_a_take_would_find(store: StateStore, frozen_clock: FrozenClock) -> None:
    """workflows W-129: offered and abandoned runs and those that come due, and none at its restart limit."""
    claims = store.workflows.claims
    abandoned(store, frozen_clock, max_restarts=0)
    assert not is_there(store)
    claims.take(started(store).id, owner="a")
    frozen_clock.advance(LEASE)
    assert not is_there(store)
    frozen_clock.advance(MILLI)
    assert is_there(store)
    assert claims.take_next(owner="b", limit=5)
    assert not is_there(store)
    sleeping(store, frozen_clock.now() + LEASE)
    assert not is_there(store)
    frozen_clock.advance(LEASE)
    assert is_there(store)
    assert len(claims.take_next(owner="b", limit=5)) == 1
    assert not is_there(store)
    offered(store)
    assert is_there(store)
    assert is_there(store, workflow_names=["other", "deploy"])
    assert not is_there(store, workflow_names=["other"])
    assert not is_there(store, workflow_names=[])


def test_waiting_finds_what_the_queue_would_admit(store: StateStore, frozen_clock: FrozenClock) -> None:
    """workflows W-129: within both caps, when it is due, while its workflow is on; or what may be taken, if asked."""
    flows = store.workflows
    held = abandoned(store, frozen_clock)
    assert (has_room(store), has_room(store, claimable=True)) == (False, True)
    started(store, status="queued", not_before=frozen_clock.now() + LEASE)
    assert not has_room(store)
    frozen_clock.advance(LEASE)
    assert has_room(store)
    assert (has_room(store, cap=1), has_room(store, cap=2)) == (False, True)
    assert (has_room(store, workflow_caps={"deploy": 1}), has_room(store, workflow_caps={"deploy": 2})) == (False, True)
    assert not has_room(store, workflow_names=["other"])
    assert not has_room(store, workflow_names=[], claimable=True)
    started(store, status="queued", workflow_name="other")
    assert has_room(store, workflow_caps={"deploy": 1})
    flows.overrides.put("other", enabled=False, by="ana", reason="later")
    assert not has_room(store, workflow_caps={"deploy": 1})
    flows.runs.cancel(held.run_id, by="ana", reason="in the way")
    assert has_room(store, cap=1)


@pytest.mark.logs("passed over a row that cannot be read")
def test_waiting_passes_over_what_nobody_takes_because_it_cannot_be_read(sqlite_database: Database) -> None:
    """workflows W-129, SQLite: else a worker that waits and takes would go round without a rest."""
    store, raw = sqlite_database.open(), Raw(sqlite_database)
    claims, queue = store.workflows.claims, store.workflows.queue
    damaged = [offered(store).id, started(store, status="queued").id]
    for run_id in damaged:
        with raw.without_guard("workflow_runs_times_set"):
            raw("UPDATE workflow_runs SET cancel_requested_at = 'soon' WHERE id = ?", run_id)
    assert (is_there(store), has_room(store)) == (False, False)
    assert (claims.take_next(owner="a"), queue.admit_next(cap=9, owner="a")) == ((), ())
    offered(store)
    started(store, status="queued")
    assert (is_there(store), has_room(store)) == (True, True)


def test_who_waits_is_woken_by_a_commit_and_by_the_time(
    store: StateStore, database: Database, frozen_clock: FrozenClock
) -> None:
    """workflows W-129: of another store."""
    other = database.open()
    assert not store.workflows.claims.wait(timeout=0.03, poll_interval=0.01)
    queueing = threading.Timer(0.05, lambda: started(other, status="queued"))
    queueing.start()
    assert store.workflows.queue.wait(cap=1, timeout=LONG)
    assert other.workflows.queue.admit_next(cap=1, owner="a")
    passing = threading.Timer(0.05, lambda: frozen_clock.advance(LEASE + MILLI))
    passing.start()
    assert store.workflows.claims.wait(timeout=LONG)
    assert not store.workflows.queue.wait(cap=1, timeout=0)
    for each in (queueing, passing):
        each.join()


def test_who_looks_seldom_holds_nobody_up_who_looks_often(every_backend: StateStore, database: Database) -> None:
    """workflows W-129: and hears what the other finds."""
    claims, began = every_backend.workflows.claims, time.monotonic()
    with ThreadPoolExecutor(2) as pool:
        patient = pool.submit(claims.wait, timeout=LONG, poll_interval=LONG)
        often = pool.submit(claims.wait, workflow_names=["other"], timeout=LONG, poll_interval=0.01)
        offered(other := database.open())
        assert patient.result()
        elsewhere = paused(other, workflow_name="other")
        other.workflows.approvals.answer(elsewhere.id, "approved", by="ana")
        assert often.result()
    assert time.monotonic() - began < LONG


def test_many_tasks_wait_for_work_without_a_thread_each(every_backend: StateStore) -> None:
    """workflows W-129: one look finds it for all of them; a task that is cancelled waits no more."""

    async def work() -> None:
        store = AsyncStateStore(every_backend)
        before = threading.active_count()
        waits = [asyncio.create_task(store.workflows.queue.wait(cap=1, timeout=LONG)) for _ in range(12)]
        given_up = asyncio.create_task(store.workflows.claims.wait(timeout=LONG))
        await asyncio.sleep(0.05)
        assert threading.active_count() <= before + every_backend.settings.pool_size + 1
        given_up.cancel()
        started(every_backend, status="queued")
        assert await asyncio.gather(*waits) == [True] * 12
        assert given_up.cancelled()

    asyncio.run(work())


def test_waiting_is_refused_in_a_transaction_and_ends_with_the_store(database: Database) -> None:
    """workflows W-129: and without a sensible time."""
    store = database.open()
    for wait in (store.workflows.claims.wait, lambda **given: store.workflows.queue.wait(cap=1, **given)):
        for bad in ({"timeout": -1}, {"timeout": "1"}, {"timeout": 1, "poll_interval": 86_401}):
            with pytest.raises(InvalidValue):
                wait(**bad)
    with pytest.raises(InvalidValue):
        store.workflows.queue.wait(cap=1, timeout=0, claimable=1)  # type: ignore[arg-type]
    with store.transaction() as tx, pytest.raises(MisuseError):
        tx.workflows.claims.wait(timeout=0)
    closing = threading.Timer(0.05, store.close)
    closing.start()
    with pytest.raises(StoreClosed):
        store.workflows.claims.wait(timeout=LONG)
    closing.join()


def test_a_task_that_waits_ends_with_the_store(database: Database) -> None:
    """workflows W-129."""

    async def work() -> None:
        store = await AsyncStateStore.open(database.url, migrate=False)
        waiting = asyncio.create_task(store.workflows.queue.wait(cap=1, timeout=LONG))
        await asyncio.sleep(0.05)
        async with store.transaction() as tx:
            with pytest.raises(MisuseError):
                await tx.workflows.claims.wait(timeout=1)
        await store.close()
        with pytest.raises(StoreClosed):
            await waiting

    asyncio.run(work())


@pytest.mark.parametrize("way", ["a call", "a transaction"])
def test_a_store_that_has_slowed_down_hears_at_once_what_it_committed_itself(
    store: StateStore, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    """workflows W-129: others it hears within a second, because an idle fleet must not keep the server busy."""
    monkeypatch.setattr(watch, "QUIET", 0.001)
    monkeypatch.setattr(watch, "SLOWEST", float(LONG))
    began = time.monotonic()
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(store.workflows.claims.wait, timeout=LONG)
        time.sleep(0.1)  # until it rests
        if way == "a call":
            offered(store)
        else:
            with store.transaction() as tx:
                offered(tx)
        assert waiting.result()
    assert time.monotonic() - began < LONG / 2


def test_many_who_wait_for_the_same_look_once(database: Database) -> None:
    """workflows W-129: what is sent while nothing happens does not grow with those who wait, nor without a limit."""
    seconds, interval = 0.3, 0.03
    with recorded(database) as (store, sent):
        for _ in range(2):
            sent.clear()  # of the store that opens
            assert not store.workflows.queue.wait(cap=1, timeout=0, claimable=True)
        at_once = len(sent)
        sent.clear()
        waiting = [
            threading.Thread(
                target=store.workflows.queue.wait,
                kwargs={"cap": 1, "timeout": seconds, "claimable": True, "poll_interval": interval},
            )
            for _ in range(20)
        ]
        began = time.monotonic()
        for each in waiting:
            each.start()
        for each in waiting:
            each.join()
        looks = (time.monotonic() - began) / interval
    assert at_once == 3
    assert len(sent) <= at_once * (len(waiting) + looks + 1)


#: One process queues runs and notes when; the other waits for them.
ROUNDS = """
import time
from datetime import timedelta
from lastlight_state import StateStore
from lastlight_state.workflows import RunOptions, Trigger

role, url, rounds = arguments
with StateStore.open(url, migrate=False) as store:
    flows = store.workflows
    result = {}
    ready()
    for number in range(rounds):
        if role == "worker":
            assert flows.queue.wait(cap=1, timeout=30)
            [claim] = flows.queue.admit_next(cap=1, owner="worker")
            result[claim.run_id] = time.monotonic()
            flows.runs.finish(claim.run_id, "succeeded", claim=claim)
        else:
            time.sleep(0.05)  # until the worker waits
            begun = time.monotonic()
            options = RunOptions(status="queued")
            run = flows.runs.create("deploy", trigger=Trigger("t"), phase="plan", options=options)
            result[run.id] = begun
            end = begun + 30
            while flows.runs.get(run.id).status != "succeeded" and time.monotonic() < end:
                time.sleep(0.002)
"""


def test_a_queued_run_starts_in_another_process_within_50_ms(fresh_database: Database, crew: Crew) -> None:
    """workflows W-129: the quickest of ten, because a machine may be busy."""
    queued, admitted = crew.race(ROUNDS, ["queue", fresh_database.url, 10], ["worker", fresh_database.url, 10])
    assert queued.keys() == admitted.keys()
    assert min(admitted[run_id] - begun for run_id, begun in queued.items()) < 0.05
