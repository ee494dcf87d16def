"""Awaited calls while all connections are in use, or another transaction has the file: when they end, and how."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest
from support.deadlines import WORK_SECONDS
from support.hostile import calls, methods
from support.hostile_rows import KNOWN, fill

from lastlight_state import AsyncStateStore, BackendUnavailable, Settings, StateStore
from lastlight_state.aio import lanes
from lastlight_state.aio.lanes import Lane
from lastlight_state.aio.outcomes import LOOK, Limit
from lastlight_state.backends.waiting import all_in_use
from lastlight_state.db.units.rehearsal import Reached, RehearsalScope
from lastlight_state.domains import Domains
from lastlight_state.errors import StateError
from lastlight_state.lazy import Part
from lastlight_state.testing import Database
from lastlight_state.workflows import Trigger

SECONDS = 2.0
FULL = Settings(pool_size=2, pool_timeout=SECONDS, queue_timeout=SECONDS, retry_seconds=0.2, busy_timeout=0.1)
TRIGGER = Trigger("t-1", type="api")
#: Many more calls than threads.
MANY = 40


@asynccontextmanager
async def full(store: AsyncStateStore) -> AsyncIterator[None]:
    """All connections of the pool, or the turn to write the file, held by transactions."""
    async with AsyncExitStack() as stack:
        for _ in range(1 if store.sync_store.backend.writers else FULL.pool_size):
            await stack.enter_async_context(_outside(store.transaction()))
        yield


@asynccontextmanager
async def _outside(block: Any) -> AsyncIterator[None]:
    """A block that another task is inside of."""
    entered, leave = asyncio.Event(), asyncio.Event()

    async def hold() -> None:
        async with block:
            entered.set()
            await leave.wait()

    holder = asyncio.create_task(hold())
    await entered.wait()
    yield
    leave.set()
    await holder


async def _timed(call: Callable[[], Awaitable[object]]) -> tuple[str, float]:
    began = time.monotonic()
    try:
        await call()
        outcome = "made"
    except StateError as error:
        outcome = str(error.details.get("reason") or type(error).__name__)
    return outcome, time.monotonic() - began


def _every_kind(store: AsyncStateStore, run_id: str) -> list[Callable[[], Awaitable[object]]]:
    """Awaited calls of each kind: reads, writes, blocks, waits, functions of a transaction."""

    async def transaction() -> None:
        async with store.transaction():
            pass

    async def view() -> None:
        async with store.view():
            pass

    async def execution() -> None:
        async with store.workflows.executions.running("s", run_id=run_id):
            pass

    async def follow() -> None:
        async for _ in store.journal.events.follow(run_id, idle_timeout=0.01):
            pass

    return [
        lambda: store.workflows.runs.get(run_id),
        store.messaging.sessions.list,
        lambda: store.states.put("k", 1),
        lambda: store.workflows.runs.create("w", trigger=TRIGGER, phase="p"),
        lambda: store.journal.events.append(run_id, "tick"),
        lambda: store.journal.signals.try_take(run_id, "go", consumer="c", wait=0.01),
        lambda: store.workflows.claims.wait(timeout=0.01),
        lambda: store.workflows.queue.wait(cap=1, timeout=0.01),
        store.maintenance.stats.collect,
        lambda: store.run(lambda tx: tx.workflows.runs.get(run_id)),
        transaction,
        view,
        execution,
        follow,
    ]


def test_awaited_calls_end_when_their_wait_is_over_however_many_wait(database: Database) -> None:
    """backends B-175: counted from the await, in every lane."""

    async def work(store: AsyncStateStore) -> list[tuple[str, float]]:
        run_id = (await store.workflows.runs.create("w", trigger=TRIGGER, phase="p")).id
        async with full(store):
            kinds = _every_kind(store, run_id)
            return await asyncio.gather(*(_timed(call) for call in [*kinds, *(kinds[i % 5] for i in range(MANY))]))

    with database.open(settings=FULL) as opened:
        found = asyncio.run(work(AsyncStateStore(opened)))
        late = [(outcome, took) for outcome, took in found if took > SECONDS * 1.25 + WORK_SECONDS]
        assert not late
        over = [outcome for outcome, _ in found if outcome in ("pool", "BackendBusy")]
        assert len(over) >= (len(found) * 2 // 5 if opened.backend.writers else len(found) - 2)
        assert {outcome for outcome, _ in found} <= {"made", "pool", "BackendBusy"}


@pytest.mark.slow
def test_a_wrong_argument_is_told_while_all_connections_are_in_use(database: Database) -> None:
    """backends B-176: long before the wait is over, of calls and of blocks."""

    async def work(store: AsyncStateStore) -> tuple[tuple[str, float], ...]:
        run_id = (await store.workflows.runs.create("w", trigger=TRIGGER, phase="p")).id
        async with full(store):
            waiting = [asyncio.create_task(_timed(lambda: store.states.put("k", 1))) for _ in range(MANY)]
            if not store.sync_store.backend.writers:
                waiting += [asyncio.create_task(_timed(lambda: store.workflows.runs.get(run_id))) for _ in range(MANY)]
            await asyncio.sleep(0)
            wrong = await asyncio.gather(
                _timed(lambda: store.journal.events.append(run_id, "")),
                _timed(lambda: store.messaging.messages.append("s", role="nobody", content="x")),  # type: ignore[arg-type]
                _timed(lambda: store.states.put("k", {"x": float("nan")})),
                _timed(lambda: store.workflows.runs.create("w", trigger="t", phase="p")),  # type: ignore[arg-type]
                _timed(store.workflows.executions.running("", run_id=run_id).__aenter__),
            )
            await asyncio.gather(*waiting)
            return wrong

    with database.open(settings=FULL.model_copy(update={"pool_timeout": 8.0, "queue_timeout": 8.0})) as opened:
        found = asyncio.run(work(AsyncStateStore(opened)))
    assert {outcome for outcome, _ in found} == {"InvalidValue"}
    assert max(took for _, took in found) < 4.0


def _domains(store: StateStore) -> list[tuple[str, Callable[..., Any]]]:
    names = {name for name, part in vars(Domains).items() if isinstance(part, Part)}
    return [(path, method) for path, method in methods(store) if path.partition(".")[0] in names]


@pytest.mark.slow
def test_what_a_rehearsal_refuses_the_call_itself_refuses_in_the_same_words(every_backend: StateStore) -> None:
    """backends B-176: every public method of every domain, and nothing is asked or stored."""
    fill(every_backend)
    scope = RehearsalScope(every_backend._scope)
    refused = 0
    for call in calls(iter(_domains(every_backend)), KNOWN, share=0.02, seed=7):
        try:
            told = call.on(Domains(every_backend._context.within(scope)))
        except Reached:
            continue
        if told[0] != "made":
            refused += 1
            assert call.on(every_backend) == told, (call.path, call.attacked, told)
    assert refused > 100


def test_a_call_whose_arguments_can_be_gone_through_once_waits_unjudged(every_backend: StateStore) -> None:
    """backends B-176: what it brings is stored whole."""
    given = ({"type": f"t{i}"} for i in range(3))

    async def work(store: AsyncStateStore) -> None:
        gate = threading.Event()
        held = [store._lanes.writers.run(lambda: gate.wait(30)) for _ in range(store._lanes.writers._most)]
        waiting = asyncio.ensure_future(store._lanes.write(_Consumer(given).call))
        await asyncio.sleep(LOOK * 3)
        gate.set()
        await asyncio.gather(*held)
        assert await waiting == 3

    asyncio.run(work(AsyncStateStore(every_backend)))


class _Consumer:
    """A call that goes through its argument."""

    def __init__(self, given: Any) -> None:
        self._given = given

    def call(self) -> int:
        return len([*self._given])


def test_a_call_that_no_thread_takes_is_refused_at_the_limit_and_never_made() -> None:
    """backends B-175: also where every thread is busy with something that nobody waits for."""
    made: list[int] = []
    gate = threading.Event()

    async def work() -> None:
        lane = Lane("busy", 1, limit=Limit(0.05, all_in_use, lambda _: None))
        held = lane.run(lambda: gate.wait(30))
        with pytest.raises(BackendUnavailable, match="stayed in use") as raised:
            await lane.run(lambda: made.append(1))
        assert raised.value.details["reason"] == "pool"
        ending = lane.finish(lambda: made.append(2))
        gate.set()
        await asyncio.gather(held, ending)
        lane.close()

    asyncio.run(work())
    assert made == [2]


def test_a_cancelled_call_is_not_refused_later() -> None:
    """backends B-175: the task gets its CancelledError, once."""
    gate = threading.Event()

    async def work() -> None:
        lane = Lane("busy", 1, limit=Limit(0.05, all_in_use, lambda _: None))
        held = lane.run(lambda: gate.wait(30))
        waiting = asyncio.ensure_future(lane.run(lambda: None))
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await asyncio.sleep(0.2)
        gate.set()
        await held
        lane.close()

    asyncio.run(work())


def test_a_store_that_is_closed_while_the_pool_is_full_closes_when_the_waits_are_over(database: Database) -> None:
    """backends B-175: one wait, and not one for each call in line."""

    async def work(store: AsyncStateStore) -> float:
        run_id = (await store.workflows.runs.create("w", trigger=TRIGGER, phase="p")).id
        holder = full(store)
        await holder.__aenter__()
        calls = [asyncio.create_task(_timed(lambda: store.journal.events.append(run_id, "t"))) for _ in range(MANY)]
        await asyncio.sleep(0)
        began = time.monotonic()
        assert store._lanes._own is not None
        for lane in store._lanes._own._all_lanes:
            lane.close()
        await asyncio.gather(*calls)
        took = time.monotonic() - began
        await holder.__aexit__(None, None, None)
        return took

    with database.open(settings=FULL) as opened:
        assert asyncio.run(work(AsyncStateStore(opened))) < SECONDS * 1.25 + WORK_SECONDS


def test_file_calls_do_not_wait_for_the_calls_of_the_database(database: Database) -> None:
    """backends B-175: they have threads of their own."""

    async def work(store: AsyncStateStore) -> None:
        async with full(store):
            waiting = [asyncio.create_task(_timed(store.workflows.runs.list)) for _ in range(MANY)]
            await asyncio.sleep(0)
            began = time.monotonic()
            assert (await store.mailbox.list()).items == ()
            assert time.monotonic() - began < SECONDS / 2
            await asyncio.gather(*waiting)

    with database.open(settings=FULL) as opened:
        asyncio.run(work(AsyncStateStore(opened)))


def test_as_many_calls_read_at_a_time_as_the_pool_has_connections(postgres_database: Database) -> None:
    """backends B-177: reads and writes share its threads."""
    size = 7

    async def work(store: AsyncStateStore) -> None:
        meeting = threading.Barrier(size)
        together = [store._lanes.read(lambda: meeting.wait(20)) for _ in range(size - 2)]
        together += [store._lanes.write(lambda: meeting.wait(20)) for _ in range(2)]
        assert sorted(await asyncio.gather(*together)) == [*range(size)]

    with postgres_database.open(settings=Settings(pool_size=size)) as opened:
        asyncio.run(work(AsyncStateStore(opened)))


def test_a_thread_that_nobody_needs_ends_and_the_last_one_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    """backends B-177."""
    monkeypatch.setattr(lanes.WorkQueue.get, "__defaults__", (0.05,))

    async def work() -> None:
        lane = Lane("idle", 8)
        meeting = threading.Barrier(8)
        await asyncio.gather(*(lane.run(lambda: meeting.wait(20)) for _ in range(8)))
        while len(lane._calls.threads) > 1:  # noqa: ASYNC110 - threads tell nobody that they end
            await asyncio.sleep(0.01)
        assert len(lane._calls.threads) == 1
        assert await lane.run(lambda: "served") == "served"
        lane.close()

    asyncio.run(work())
