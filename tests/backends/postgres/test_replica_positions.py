"""What a replica must show: positions in the primary's log, with writers that never pause and answers that fail."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from threading import Event, Thread, Timer
from typing import Any

import pytest
from sqlalchemy import create_engine
from support.cluster import Pair, connected, pair, until

from lastlight_state import Settings, StateStore, Transaction
from lastlight_state.aio import AsyncStateStore
from lastlight_state.backends.base import LOST, Checkout, Mode
from lastlight_state.backends.postgres import PostgresBackend
from lastlight_state.backends.postgres.replica import Required
from lastlight_state.errors import BackendUnavailable, InvalidValue, MisuseError, NestedTransaction
from lastlight_state.workflows import Trigger

TRIGGER = Trigger("t", type="cli")


@pytest.fixture(scope="module")
def servers() -> Iterator[Pair]:
    with pair("synchronous_commit=on") as found:
        StateStore.open(found.primary.url, migrate=True).close()
        found.caught_up()
        yield found


@contextmanager
def delayed(servers: Pair, milliseconds: int) -> Iterator[None]:
    """Let the standby show each commit so much later."""
    with closing(connected(servers.standby)) as standby:
        standby.execute(f"ALTER SYSTEM SET recovery_min_apply_delay = {milliseconds}")
        standby.execute("SELECT pg_reload_conf()")
        try:
            yield
        finally:
            standby.execute("ALTER SYSTEM RESET recovery_min_apply_delay")
            standby.execute("SELECT pg_reload_conf()")


@contextmanager
def paused_for(servers: Pair, seconds: float) -> Iterator[None]:
    """Let the standby show nothing new for so long."""
    with closing(connected(servers.standby)) as standby:
        standby.execute("SELECT pg_wal_replay_pause()")
        until(lambda: standby.execute("SELECT pg_get_wal_replay_pause_state()").fetchone() == ("paused",))
        resuming = Timer(seconds, standby.execute, ("SELECT pg_wal_replay_resume()",))
        resuming.start()
        try:
            yield
        finally:
            resuming.join()


@contextmanager
def writing(store: StateStore) -> Iterator[None]:
    """Write all the time."""
    over = Event()

    def write() -> None:
        while not over.is_set():
            made(store)

    writer = Thread(target=write)
    writer.start()
    try:
        yield
    finally:
        over.set()
        writer.join()


def opened(servers: Pair) -> StateStore:
    return StateStore.open(servers.primary.url, replica=servers.standby.url)


def made(store: StateStore | Transaction) -> str:
    return store.workflows.runs.create("w", trigger=TRIGGER, phase="p").id


def made_in_a_block(store: StateStore) -> str:
    with store.transaction() as tx:
        return made(tx)


def newest(store: StateStore) -> str:
    return store.workflows.runs.list(limit=1).items[0].id


@pytest.mark.parametrize("max_staleness", [None, 0.01])
def test_a_reader_waits_for_no_write_that_came_after_its_call(servers: Pair, max_staleness: float | None) -> None:
    """cluster CL-10, CL-11: however much is written, a replica that is a little behind serves."""
    patient = Settings(pool_timeout=5, max_staleness=max_staleness)
    with (
        delayed(servers, 200),
        StateStore.open(servers.primary.url, replica=servers.standby.url, settings=patient) as store,
        writing(store),
    ):
        for _ in range(3):
            run_id = made(store)
            began = time.monotonic()
            assert store.replica.workflows.runs.get(run_id).id == run_id
            assert time.monotonic() - began < 3


def test_a_reader_does_not_wait_for_a_transaction_that_is_open(servers: Pair) -> None:
    """cluster CL-10: whose last bytes the primary holds back until somebody commits, or 15 seconds are over."""
    with opened(servers) as store, StateStore.open(servers.primary.url) as other:
        store.replica.workflows.runs.list()
        with other.transaction() as tx:
            made(tx)
            required: Any = store.replica.backend
            required.required.wrote()
            began = time.monotonic()
            store.replica.workflows.runs.list()
            assert time.monotonic() - began < 5


def test_a_reader_that_gave_up_requires_no_more_than_before(servers: Pair) -> None:
    """cluster CL-10: else a replica that stays as far behind as it is would never be read again."""
    with StateStore.open(servers.primary.url) as other, required(servers) as found:
        position = found.position()
        made(other)
        found.doubt()
        assert found.position() == position
        found.wrote()
        assert found.position() > position


class Failing(PostgresBackend):
    """A primary that cannot be reached just when the store commits something by another connection."""

    failing: Required | None = None

    def acquire(self, mode: Mode, checkout: Checkout | None = None) -> Checkout:
        if self.failing is not None:
            self.failing.wrote()
            raise BackendUnavailable("away")
        return super().acquire(mode, checkout)


def test_a_write_during_a_question_that_fails_is_required(servers: Pair) -> None:
    """cluster CL-10."""
    with StateStore.open(servers.primary.url) as other, required(servers, max_staleness=2) as found:
        primary: Any = found._primary
        found.position()
        time.sleep(1.1)  # more than half of the bound, so that the primary is asked, and less than all of it
        primary.failing = found
        before = found.position()
        made(other)
        primary.failing = None
        assert found.position() > before


def test_answers_that_are_kept_are_few(servers: Pair) -> None:
    """cluster CL-11: a bound of an hour and a store that writes and reads all the time need no more memory."""
    with required(servers, max_staleness=3_600) as found:
        for _ in range(100):
            found.wrote()
            found.position()
        assert len(found._told) < 20


def test_a_transaction_that_joined_before_the_replica_was_opened_is_shown(servers: Pair) -> None:
    """cluster CL-10: after the caller's commit, to what runs after it, too."""
    engine = create_engine(servers.primary.url)
    shown: list[str] = []
    with opened(servers) as store:
        with engine.connect() as connection, connection.begin() as caller:
            with store.transaction(connection=connection) as tx:
                run_id = made(tx)
                tx.after_commit(lambda: shown.append(store.replica.workflows.runs.get(run_id).id))
            assert store.replica.workflows.runs.list() is not None
            with paused_for(servers, 0.5):
                caller.commit()
        assert shown == [run_id]
    engine.dispose()


@pytest.mark.parametrize("grouped", [False, True])
def test_a_write_whose_outcome_is_unknown_is_shown_if_it_was_stored(servers: Pair, *, grouped: bool) -> None:
    """cluster CL-10: as what the store knows to be committed."""
    with opened(servers) as store:
        before = made(store)
        assert newest(store.replica) == before
        with paused_for(servers, 0.5):
            with losing_answers(store, grouped=grouped), pytest.raises(BackendUnavailable) as raised:
                made_in_a_block(store) if grouped else made(store)
            assert raised.value.outcome == "unknown"
            assert newest(store.replica) == newest(store) != before


@contextmanager
def losing_answers(store: StateStore, *, grouped: bool) -> Iterator[None]:
    """Lose what the server says of a commit, or of a statement that is one."""
    backend: Any = store.backend
    commit, fetch_rows = backend.commit, backend.fetch_rows

    def commit_unheard(checkout: Checkout) -> None:
        commit(checkout)
        error = BackendUnavailable("lost")
        error.outcome = "unknown"
        raise error

    def fetch_unheard(cursor: Any) -> None:
        fetch_rows(cursor)
        raise BackendUnavailable("lost", reason=LOST)

    backend.commit = commit_unheard
    if not grouped:
        backend.fetch_rows = fetch_unheard
    try:
        yield
    finally:
        backend.__dict__.pop("fetch_rows", None)
        del backend.commit


def test_a_server_that_does_not_follow_is_refused(servers: Pair) -> None:
    """cluster CL-10: another one, or another database of the same, however much they have written."""
    with closing(connected(servers.primary)) as primary:
        primary.execute("CREATE DATABASE another")
    servers.caught_up()
    same_server = servers.standby.url.replace("/postgres?", "/another?")
    with pair() as strangers:
        for replica in (strangers.primary.url, same_server):
            with StateStore.open(servers.primary.url, replica=replica) as store:
                made(store)
                with pytest.raises(InvalidValue, match="another database"):
                    store.replica.workflows.runs.list()


def test_a_store_is_closed_with_its_replica_or_not_at_all(servers: Pair) -> None:
    """cluster CL-10: not inside a view of the replica, whose thread could never end it."""
    with opened(servers) as store:
        with store.replica.view() as view:
            with pytest.raises(NestedTransaction):
                store.close()
            assert view.workflows.runs.list() is not None
        made(store)
        store.close()
        with pytest.raises(MisuseError):
            store.replica.workflows.runs.list()


def test_an_async_store_is_closed_with_its_replica_or_not_at_all(servers: Pair) -> None:
    """cluster CL-10: as the sync one."""

    async def work() -> None:
        async with await AsyncStateStore.open(servers.primary.url, replica=servers.standby.url) as store:
            async with store.replica.view():
                with pytest.raises(NestedTransaction):
                    await store.close()
            await store.workflows.overrides.put("w", enabled=True)
        assert not store.sync_store._scope.is_open

    asyncio.run(work())


@contextmanager
def required(servers: Pair, max_staleness: float | None = None) -> Iterator[Required]:
    with StateStore.open(servers.primary.url) as store:
        backend: Any = store.backend
        with closing(Failing(backend._engine.url, backend.options)) as primary:
            yield Required(primary, max_staleness)
