"""Stores of tenants that are closed while others work, and tenants that are closed while stores are opened."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.tenants import make_tenants

from lastlight_state import AsyncStateStore, AsyncTenants, Settings, StateStore, Tenants
from lastlight_state.aio.tenants import THREADS
from lastlight_state.errors import StoreClosed
from lastlight_state.testing import ThrowawayPostgres
from lastlight_state.workflows import RunOptions, Trigger

TRIGGER = Trigger(type="cli", id="t")
NAMES = [f"t{number}" for number in range(6)]
POOL = 3


@pytest.fixture(scope="module")
def several(lastlight_postgres_server: ThrowawayPostgres) -> Iterator[str]:
    with lastlight_postgres_server.database() as url:
        make_tenants(url, NAMES)
        yield url


def create(store: AsyncStateStore, run_id: str) -> Any:
    return store.workflows.runs.create("w", trigger=TRIGGER, phase="p", options=RunOptions(id=run_id))


def test_calls_under_way_are_made_before_a_store_of_tasks_is_closed(several: str, tmp_path: Path) -> None:
    """tenants TN-4: as those of a store with threads of its own; later ones are refused."""

    async def act() -> None:
        async with await AsyncTenants.open(several, state_dir=tmp_path, settings=Settings(pool_size=POOL)) as tenants:
            store, other = await tenants.store(NAMES[0]), await tenants.store(NAMES[1])
            calls = [asyncio.ensure_future(create(store, f"w-{number}")) for number in range(60)]
            calls += [asyncio.ensure_future(store.workflows.runs.list()) for _ in range(60)]
            await asyncio.sleep(0)
            closing = asyncio.ensure_future(store.close())
            await asyncio.sleep(0)
            with pytest.raises(StoreClosed):
                await create(store, "late")
            await closing
            await asyncio.gather(*calls)
            await create(other, "still")
            again = await tenants.store(NAMES[0])
            assert len((await again.workflows.runs.list(limit=500)).items) == 60

    asyncio.run(act())


def test_replicas_and_openings_of_tasks_have_no_threads_of_their_own(several: str, tmp_path: Path) -> None:
    """tenants TN-4."""
    before = threading.active_count()
    most = 0

    async def act() -> None:
        nonlocal most
        async with await AsyncTenants.open(several, state_dir=tmp_path, settings=Settings(pool_size=POOL)) as tenants:

            async def use(name: str) -> None:
                nonlocal most
                store = await tenants.store(name)
                await store.replica.workflows.runs.list()
                most = max(most, threading.active_count() - before)

            await asyncio.gather(*(use(name) for name in NAMES * 20))

    asyncio.run(act())
    assert most <= POOL + THREADS


def test_a_store_that_is_opened_while_the_tenants_are_closed_is_closed_too(
    several: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """tenants TN-1."""
    tenants = Tenants.open(several, state_dir=tmp_path)
    made: list[StateStore] = []
    opens = StateStore._on

    def closes_meanwhile(*args: Any) -> StateStore:
        made.append(opens(*args))
        tenants.close()
        return made[0]

    monkeypatch.setattr(StateStore, "_on", closes_meanwhile)
    with pytest.raises(StoreClosed):
        tenants.store(NAMES[0])
    with pytest.raises(StoreClosed):
        made[0].workflows.runs.list()
