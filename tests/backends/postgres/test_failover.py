"""A primary that goes away and a standby that takes its place, with real servers and streaming replication."""

from __future__ import annotations

import asyncio
import tempfile
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from sqlalchemy import text
from support.cluster import SYNCHRONOUS, Endpoint, Pair, connected, pair

from lastlight_state import Settings, StateStore
from lastlight_state.aio import AsyncStateStore
from lastlight_state.errors import BackendUnavailable, ReadOnlyTransaction
from lastlight_state.workflows import Trigger

TRIGGER = Trigger(type="cli", id="t")
WRITERS = 4
EVENTS_BEFORE = 40


@pytest.fixture(scope="module")
def servers() -> Iterator[Pair]:
    with pair() as found:
        StateStore.open(found.url, migrate=True).close()
        found.caught_up()
        yield found


@contextmanager
def endpoint(servers: Pair) -> Iterator[Endpoint]:
    """An endpoint that leads to the primary at first."""
    with tempfile.TemporaryDirectory() as folder, closing(Endpoint(Path(folder), servers.primary)) as found:
        yield found


def test_a_store_leaves_a_standby_that_its_endpoint_led_to(servers: Pair) -> None:
    """backends B-110: neither writes nor reads stay there."""
    with endpoint(servers) as way, StateStore.open(way.url) as store:
        run = store.workflows.runs.create("w", trigger=TRIGGER, phase="p")
        way.target = servers.standby
        way.cut()
        for call in (lambda: store.workflows.runs.get(run.id), lambda: store.workflows.overrides.clear("w")):
            with pytest.raises(BackendUnavailable, match="primary is elsewhere") as raised:
                call()
            assert (raised.value.outcome, raised.value.details["reason"]) == ("none", "standby")
        way.target = servers.primary
        store.workflows.overrides.put("w", enabled=True)
        assert store.workflows.runs.get(run.id) == run


def test_a_call_that_met_a_standby_once_is_repeated(servers: Pair) -> None:
    """backends B-110: on a connection to wherever the endpoint leads by then."""
    with endpoint(servers) as way, StateStore.open(way.url, settings=Settings(pool_size=1)) as store:
        store.workflows.runs.list()
        way.target = servers.standby
        way.cut()
        with pytest.raises(BackendUnavailable):
            store.workflows.runs.list()
        # the next connection is the standby's, too, unless the endpoint turns while the call waits to repeat
        turned = threading.Timer(0.02, setattr, (way, "target", servers.primary))
        turned.start()
        assert store.workflows.runs.create("w", trigger=TRIGGER, phase="p").current_phase == "p"
        turned.join()


def test_a_coroutine_leaves_a_standby_as_a_thread_does(servers: Pair) -> None:
    """backends B-110."""

    async def work(way: Endpoint) -> None:
        async with await AsyncStateStore.open(way.url) as store:
            await store.workflows.overrides.put("w", enabled=True)
            way.target = servers.standby
            way.cut()
            with pytest.raises(BackendUnavailable, match="primary is elsewhere"):
                await store.workflows.overrides.clear("w")
            way.target = servers.primary
            assert await store.workflows.overrides.clear("w")

    with endpoint(servers) as way:
        asyncio.run(work(way))


@pytest.mark.slow
def test_a_standby_that_is_promoted_is_used_without_another_connection(servers: Pair) -> None:
    """backends B-110: a server tells its connections what it became. A store that reads is used there before, too."""
    with pair() as own:
        StateStore.open(own.url, migrate=True).close()
        own.caught_up()
        url = own.url.replace("read-write", "any").replace(f"{own.primary.folder}/s,", "").replace("5432,", "")
        with pytest.raises(ReadOnlyTransaction, match="standby"):
            StateStore.open(url)
        with StateStore.open(url, read_only=True) as reader:
            assert len(reader.workflows.runs.list()) == 0
            own.fail_over()
            with StateStore.open(url) as store:
                run = store.workflows.runs.create("w", trigger=TRIGGER, phase="p")
            assert reader.workflows.runs.get(run.id) == run


@pytest.mark.slow
def test_a_promotion_under_writers_loses_and_doubles_nothing_where_commits_wait_for_the_standby() -> None:
    """backends B-110: every acknowledged event is there once, and the numbers have no gap."""
    with pair(*SYNCHRONOUS) as servers, StateStore.open(servers.url, migrate=True) as store:
        runs = [store.workflows.runs.create("w", trigger=TRIGGER, phase="p") for _ in range(WRITERS)]
        acknowledged: list[set[str]] = [set() for _ in runs]
        failed_over = threading.Event()

        def write(place: int) -> None:
            after = 0
            for number in range(100_000):
                if after > EVENTS_BEFORE:
                    return
                key = str(number)
                try:
                    store.journal.events.append(runs[place].id, "e", {"n": number}, event_id=key)
                except BackendUnavailable:
                    continue
                acknowledged[place].add(key)
                after += failed_over.is_set()

        threads = [threading.Thread(target=write, args=(place,)) for place in range(WRITERS)]
        for thread in threads:
            thread.start()
        while min(map(len, acknowledged)) < EVENTS_BEFORE:
            threads[0].join(0.01)
        servers.fail_over()
        failed_over.set()
        for thread in threads:
            thread.join()
        with closing(connected(servers.standby)) as promoted:
            for run, keys in zip(runs, acknowledged, strict=True):
                found = promoted.execute(
                    "SELECT seq, event_id FROM run_events WHERE run_id = %s ORDER BY seq", (run.id,)
                ).fetchall()
                assert [seq for seq, _ in found] == list(range(len(found)))
                stored = [event_id for _, event_id in found if event_id is not None]
                assert len(set(stored)) == len(stored)
                assert keys <= set(stored)


@pytest.mark.slow
def test_one_transaction_may_wait_for_the_standby_where_others_do_not() -> None:
    """backends B-111: by the setting of Postgres, for this transaction alone."""
    with (
        pair("synchronous_standby_names=*", "synchronous_commit=local") as servers,
        StateStore.open(servers.url, migrate=True) as store,
        closing(connected(servers.standby)) as standby,
    ):
        with store.transaction() as tx:
            tx.connection.execute(text("SET LOCAL synchronous_commit TO remote_apply"))
            run = tx.workflows.runs.create("w", trigger=TRIGGER, phase="p")
        assert standby.execute("SELECT id FROM workflow_runs").fetchall() == [(run.id,)]
