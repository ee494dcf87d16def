"""Reads on a replica: a real standby that follows a primary, and whose replay can be paused."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from sqlalchemy import create_engine
from support.cluster import Pair, connected, pair
from support.each import with_each

from lastlight_state import Settings, StateStore
from lastlight_state.aio import AsyncStateStore
from lastlight_state.backends.base import Mode
from lastlight_state.backends.postgres.replica import Required, _before_header
from lastlight_state.errors import BackendUnavailable, InvalidValue, MisuseError, ReadOnlyTransaction
from lastlight_state.testing import Database
from lastlight_state.workflows import PhaseEntry, Trigger

TRIGGER = Trigger("t", type="cli")
IMPATIENT = Settings(pool_timeout=0.3)


@pytest.fixture(scope="module")
def servers() -> Iterator[Pair]:
    with pair("synchronous_commit=on") as found:  # else the log is sent a fifth of a second later
        StateStore.open(found.primary.url, migrate=True).close()
        found.caught_up()
        yield found


@contextmanager
def paused(servers: Pair) -> Iterator[None]:
    """Let the standby take in what the primary says, and show none of it."""
    with closing(connected(servers.standby)) as standby:
        standby.execute("SELECT pg_wal_replay_pause()")
        try:
            yield
        finally:
            standby.execute("SELECT pg_wal_replay_resume()")


def opened(servers: Pair, **more: Any) -> StateStore:
    settings = IMPATIENT.model_copy(update=more)
    return StateStore.open(servers.primary.url, replica=servers.standby.url, settings=settings)


def made(store: StateStore) -> str:
    return store.workflows.runs.create("w", trigger=TRIGGER, phase="p").id


def test_a_replica_shows_what_this_store_has_committed(servers: Pair) -> None:
    """cluster CL-10: each time, with calls, transactions, and transactions of the caller's own."""
    engine = create_engine(servers.primary.url)
    with opened(servers, pool_timeout=20) as store:
        for _ in range(50):
            run_id = made(store)
            assert store.replica.workflows.runs.get(run_id).id == run_id
        with store.transaction() as tx:
            run_id = tx.workflows.runs.create("w", trigger=TRIGGER, phase="p").id
        assert store.replica.workflows.runs.get(run_id).id == run_id
        with engine.begin() as connection, store.transaction(connection=connection) as tx:
            run_id = tx.workflows.runs.create("w", trigger=TRIGGER, phase="p").id
        assert store.replica.workflows.runs.get(run_id).id == run_id
    engine.dispose()


def test_a_replica_that_is_behind_is_an_error_and_the_primary_answers(servers: Pair) -> None:
    """cluster CL-10: within ``pool_timeout``; afterwards it serves again."""
    with opened(servers) as store:
        before = made(store)
        assert store.replica.workflows.runs.get(before).id == before
        with paused(servers):
            run_id = made(store)
            with pytest.raises(BackendUnavailable, match="too far behind") as raised:
                store.replica.workflows.runs.get(run_id)
            assert (raised.value.outcome, raised.value.details["reason"]) == ("none", "replica_behind")
            assert store.workflows.runs.get(run_id).id == run_id
        assert store.replica.workflows.runs.get(run_id).id == run_id


def test_what_others_wrote_is_shown_within_the_bound(servers: Pair) -> None:
    """cluster CL-11: without one, a reader sees what the replica has."""
    with opened(servers, max_staleness=0.2) as bounded, opened(servers) as free, opened(servers) as other:
        made(other)
        for store in (bounded, free):
            assert len(store.replica.workflows.runs.list(limit=1)) == 1
        with paused(servers):
            made(other)
            assert len(free.replica.workflows.runs.list(limit=1)) == 1
            time.sleep(0.2)
            with pytest.raises(BackendUnavailable, match="too far behind"):
                bounded.replica.workflows.runs.list()
        bounded.replica.workflows.runs.list()


def test_the_primary_is_asked_seldom_and_the_replica_once(servers: Pair) -> None:
    """cluster CL-12: a read costs one statement, unless something was written or the bound may be passed."""
    with opened(servers, max_staleness=60, pool_size=1, pool_timeout=20) as store:
        run_id = made(store)
        store.replica.workflows.runs.get(run_id)
        asked: list[str] = []
        required: Required = store.replica.backend.required  # type: ignore[attr-defined]
        for kind, backend in (("primary", store.backend), ("replica", store.replica.backend)):
            checkout = backend.acquire(Mode.READ)
            checkout.driver.execute = _counted(checkout.driver.execute, kind, asked)
            backend.release(checkout)
        for _ in range(10):
            store.replica.workflows.runs.get(run_id)
        assert asked == ["replica"] * 10
        made(store)
        store.replica.workflows.runs.get(run_id)
        assert asked[10:12] == ["primary", "primary"]
        assert set(asked[12:]) == {"replica"}
        assert required.position() > 0


def test_nothing_that_decides_reads_on_the_replica(servers: Pair) -> None:
    """cluster CL-13: a store with a replica works as one without, while that shows nothing new; it refuses writes."""
    with opened(servers) as store:
        with paused(servers):
            run_id = made(store)
            claim = store.workflows.claims.take(run_id, owner="w")
            store.workflows.runs.append_phase(run_id, PhaseEntry("q", True), claim=claim)
            store.journal.events.append(run_id, "e", {})
            store.workflows.runs.finish(run_id, "succeeded", claim=claim)
            assert store.workflows.runs.get(run_id).status == "succeeded"
        with pytest.raises(ReadOnlyTransaction):
            made(store.replica)
        with pytest.raises(ReadOnlyTransaction), store.replica.transaction():
            pass


def test_reports_views_followers_and_checks_run_on_a_replica(servers: Pair) -> None:
    """cluster CL-14."""
    with opened(servers, pool_timeout=20) as store:
        run_id = made(store)
        seen: list[int] = []

        def follow() -> None:
            following = store.replica.journal.events.follow(run_id, until_end=True, idle_timeout=20)
            seen.extend(event.seq for event in following)

        follower = Thread(target=follow)
        follower.start()
        for number in range(20):
            store.journal.events.append(run_id, "e", {"n": number})
        store.workflows.runs.finish(run_id, "succeeded")
        follower.join()
        stored = [event.seq for event in store.journal.events.list(run_id)]
        assert seen == stored
        with store.replica.view() as view:
            assert view.workflows.runs.get(run_id).status == "succeeded"
        assert store.replica.maintenance.stats.collect().tables
        assert store.replica.maintenance.doctor.examine() is not None
        assert store.replica.workflows.lookups.repos() is not None


@pytest.mark.slow
def test_a_replica_that_is_promoted_shows_what_it_wrote_itself() -> None:
    """cluster CL-15: and of a primary whose log is shorter, its own is required."""
    with pair("synchronous_commit=on") as own:
        url = own.url
        StateStore.open(url, migrate=True).close()
        own.caught_up()
        with StateStore.open(url, replica=own.standby.url, settings=Settings(pool_timeout=20)) as store:
            run_id = made(store)
            assert store.replica.workflows.runs.get(run_id).id == run_id
            own.caught_up()
            own.fail_over()
            for _ in range(200):
                try:
                    second = made(store)
                    break
                except BackendUnavailable:
                    continue
            assert store.replica.workflows.runs.get(second).id == second


def test_coroutines_read_on_the_replica(servers: Pair) -> None:
    """cluster CL-10: and what they wrote; it is closed with its store."""

    async def work() -> None:
        opening = AsyncStateStore.open(
            servers.primary.url, replica=servers.standby.url, settings=Settings(pool_timeout=20)
        )
        async with await opening as store:
            run = await store.workflows.runs.create("w", trigger=TRIGGER, phase="p")
            assert (await store.replica.workflows.runs.get(run.id)).id == run.id
            assert store.replica is store.replica
            async with store.replica.view() as view:
                assert (await view.workflows.runs.get(run.id)).id == run.id
            beside = store.replica
        with pytest.raises(MisuseError):
            await beside.workflows.runs.get(run.id)

    asyncio.run(work())


def test_a_store_without_a_replica_reads_its_own_database(database: Database) -> None:
    """cluster CL-16: so that code is the same everywhere."""
    with database.open() as store:
        run_id = made(store)
        reader = store.replica
        assert reader.workflows.runs.get(run_id).id == run_id
        assert reader is store.replica
        assert reader.replica is reader
        with pytest.raises(ReadOnlyTransaction):
            made(reader)
    with pytest.raises(MisuseError):
        reader.workflows.runs.get(run_id)


def test_a_replica_is_for_postgres_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """cluster CL-16: said of all stores of a process, it does not concern those on SQLite."""
    with pytest.raises(InvalidValue, match="replica"):
        StateStore.open(tmp_path / "a.db", replica="postgresql://nowhere/x")
    assert list(tmp_path.iterdir()) == []
    monkeypatch.setenv("LASTLIGHT_STATE_REPLICA", "postgresql://nowhere/x")
    with StateStore.open(tmp_path / "a.db") as store:
        assert len(store.replica.workflows.runs.list()) == 0
    with StateStore.open("sqlite:///:memory:") as store, pytest.raises(MisuseError, match="memory"):
        _ = store.replica


@with_each(
    ("position", "end"),
    [(8192 * 3 + 24, 8192 * 3), (2**24 + 40, 2**24), (8192 * 3 + 32, 8192 * 3 + 32), (8192 + 40, 8192 + 40)],
)
def test_a_position_after_the_header_of_a_page_is_the_end_of_the_page_before(position: int, end: int) -> None:
    """cluster CL-10: the place where the last record ended, which is all that a replica can show."""
    assert _before_header(position, 8192, 2**24) == end


def _counted(run: Callable[..., Any], kind: str, asked: list[str]) -> Callable[..., Any]:
    def execute(*args: Any) -> Any:
        asked.append(kind)
        return run(*args)

    return execute
