"""Whatever cuts a unit off, its connection comes back clean or not at all, and its place in the line is free."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from contextlib import suppress
from itertools import product
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.pool import StaticPool
from support.callers import engine_on
from support.faults.interrupts import Interrupted, cut_off_after
from support.garbage import collect

from lastlight_state import Settings, StateStore
from lastlight_state.backends.base import Backend, Checkout, Mode
from lastlight_state.backends.fair_lock import Turn
from lastlight_state.errors import NestedTransaction, StateError
from lastlight_state.testing import Database

#: One connection, and nobody waits long for it.
IMPATIENT = Settings(pool_size=1, pool_timeout=0.05, queue_timeout=0.05, busy_timeout=0.05)


@pytest.fixture(params=["own", "engine"])
def backend(request: pytest.FixtureRequest, fresh_database: Database) -> Iterator[Backend]:
    """Give the backend of a store, over connections of its own and over a caller's."""
    if request.param == "own":
        yield fresh_database.open(settings=IMPATIENT).backend
        return
    engine = engine_on(fresh_database, pool_size=1, max_overflow=0, pool_timeout=0.05)
    yield fresh_database.open(engine=engine, settings=IMPATIENT).backend
    fresh_database.close()
    engine.dispose()


@pytest.fixture(params=["own", "engine"])
def in_memory(request: pytest.FixtureRequest) -> Iterator[Backend]:
    """Give the backend of a store in memory, where everybody shares one connection."""
    if request.param == "own":
        with StateStore.open("sqlite:///:memory:", settings=IMPATIENT) as store:
            yield store.backend
        return
    options: dict[str, Any] = {"poolclass": StaticPool, "connect_args": {"check_same_thread": False}}
    engine = sa.create_engine("sqlite://", **options)
    with StateStore.open(engine=engine, settings=IMPATIENT, migrate=True) as store:
        yield store.backend
    engine.dispose()


def works(backend: Backend, mode: Mode = Mode.WRITE) -> None:
    """Check that a unit gets a connection that is in no transaction but its own."""
    checkout = backend.acquire(mode)
    try:
        assert checkout.driver.execute("SELECT 1").fetchone()[0] == 1
    finally:
        backend.rollback(checkout)
        backend.release(checkout)


def test_a_connection_that_is_still_in_a_transaction_is_not_lent_again(backend: Backend) -> None:
    """backends B-87: whoever gave it back without an end of the transaction."""
    checkout = backend.acquire(Mode.WRITE)
    backend.release(checkout)
    again = backend.acquire(Mode.READ)
    try:
        driver = again.driver
        assert not (driver.in_transaction if backend.dialect.name == "sqlite" else driver.pgconn.transaction_status)
    finally:
        backend.release(again)


def test_a_transaction_that_a_signal_cut_off_as_it_began_is_not_left_open(backend: Backend) -> None:
    """backends B-87: what the exception interrupted may have succeeded before."""
    within = "_acquire_checkout" if backend.dialect.name == "sqlite" else "acquire"
    for mode in (Mode.WRITE, Mode.SNAPSHOT) * 2:
        with cut_off_after("execute", within=within), pytest.raises(Interrupted):
            backend.acquire(mode)
        works(backend, mode)


def test_a_unit_that_was_cut_off_makes_room_for_the_next(backend: Backend) -> None:
    """backends B-87: on the only connection that there is."""
    for mode in Mode:
        checkout = backend.acquire(mode)
        driver = checkout.driver
        backend.recover(checkout)
        with pytest.raises(backend.driver_errors, match="closed"):
            driver.execute("SELECT 1")
        works(backend)


def test_a_place_in_a_files_line_is_free_again_when_no_connection_was_lent(
    sqlite_database: Database, in_memory: Backend
) -> None:
    """backends B-87, B-6."""
    backends = (sqlite_database.open(settings=IMPATIENT).backend, in_memory)
    for backend, mode, called in product(backends, (Mode.READ, Mode.ONE), ("enter", "_lend_writer")):
        with cut_off_after(called, within="writer"), suppress(Interrupted):
            backend.release(backend.acquire(mode))
        works(backend)


def test_readers_of_one_moment_are_not_kept_in_memory(sqlite_database: Database) -> None:
    """backends B-45: each of them opened a connection, which stays open."""
    backend = sqlite_database.open().backend
    checkouts = [backend.acquire(Mode.READ) for _ in range(5)]
    gone = [weakref.ref(checkout) for checkout in checkouts]
    while checkouts:
        backend.release(checkouts.pop())
    collect()
    assert [one() for one in gone] == [None] * 5


def test_a_unit_that_is_over_is_not_kept_in_memory(backend: Backend) -> None:
    """backends B-45."""
    gone = {}
    for mode in Mode:
        checkout = backend.acquire(mode)
        backend.rollback(checkout)
        backend.release(checkout)
        gone[mode] = weakref.ref(checkout)
        del checkout
    collect()
    assert {mode: one() for mode, one in gone.items()} == dict.fromkeys(Mode)


def test_what_a_unit_left_open_that_is_over_is_closed_by_the_next(fresh_database: Database) -> None:
    """backends B-87: a reader would keep an old state alive for as long as the store is open."""
    for mode in (Mode.READ, Mode.SNAPSHOT):
        backend = fresh_database.open().backend
        gone = backend.acquire(mode)
        gone.handle = weakref.ref(Turn())  # of a statement that is over
        works(backend, mode)
        with pytest.raises(backend.driver_errors, match="closed"):
            gone.driver.execute("SELECT 1")


def test_a_unit_that_the_garbage_collector_ends_touches_its_connection_no_more(backend: Backend) -> None:
    """backends B-87: another thread may be undoing what it left, and two on one connection can end the process."""

    def left_behind(mode: Mode) -> Iterator[None]:
        with Checkout(mode, backend):
            yield

    for mode in Mode:
        rolled_back: list[Checkout] = []
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(backend, "rollback", rolled_back.append)
            with_itself: list[Any] = [left_behind(mode)]
            with_itself.append(with_itself)
            next(with_itself[0])
            del with_itself
            collect()
        assert (mode, rolled_back) == (mode, [])
        works(backend)


def test_a_unit_in_memory_that_a_signal_cut_off_as_it_began_is_not_left_open(in_memory: Backend) -> None:
    """backends B-87, B-6."""
    with cut_off_after("execute", within="_acquire_checkout"), pytest.raises(Interrupted):
        in_memory.acquire(Mode.WRITE)
    works(in_memory)


def test_a_place_in_the_pool_is_free_again_when_no_connection_was_lent(postgres_database: Database) -> None:
    """backends B-32, B-87."""
    for called in ("_enter", "_idle"):
        backend = postgres_database.open(settings=IMPATIENT).backend
        with cut_off_after(called, within="take"), pytest.raises(Interrupted):
            backend.acquire(Mode.READ)
        works(backend)


def test_a_unit_in_memory_that_was_cut_off_is_undone_before_the_next(in_memory: Backend) -> None:
    """backends B-87, B-6: by the call itself where it can, else by the one that comes."""
    works(in_memory)
    for is_broken in (False, True):
        checkout = in_memory.acquire(Mode.WRITE)
        checkout.driver.execute("CREATE TABLE theirs (number INTEGER)")
        if is_broken:
            checkout.broken = True
            in_memory.release(checkout)
        else:
            in_memory.recover(checkout)
        works(in_memory)
        assert in_memory.peek("SELECT * FROM theirs") is None, is_broken


def test_whoever_comes_after_the_end_is_not_kept_waiting(fresh_database: Database) -> None:
    """backends B-6: the one who closed it has left the line."""
    in_memory = StateStore.open("sqlite:///:memory:", settings=IMPATIENT).backend
    in_memory.close()
    for mode in (Mode.WRITE, Mode.SNAPSHOT):
        with pytest.raises(StateError, match="closed") as refusal:
            in_memory.acquire(mode)
        assert not isinstance(refusal.value, NestedTransaction)
        backend = fresh_database.open(settings=IMPATIENT).backend
        works(backend, mode)
        backend.close()
        works(backend, mode)


class _Closing(dict[Any, Any]):
    """Who has which connection. The store is closed in the moment before one comes back."""

    def __init__(self, backend: Backend, lent: dict[Any, Any]) -> None:
        super().__init__(lent)
        self._backend: Backend | None = backend

    def pop(self, *given: Any) -> Any:
        backend, self._backend = self._backend, None
        if backend is not None:
            backend.close()
        return super().pop(*given)


def test_a_connection_that_comes_back_while_the_store_is_closed_is_closed_too(fresh_database: Database) -> None:
    """backends B-32: nobody else would ever close it."""
    backend: Any = fresh_database.open().backend
    connections = backend._pool if fresh_database.name == "postgresql" else backend._connections
    checkout = backend.acquire(Mode.READ)
    connections._lent = _Closing(backend, connections._lent)
    backend.release(checkout)
    with pytest.raises(backend.driver_errors, match="closed"):
        checkout.driver.execute("SELECT 1")


def test_a_connection_that_broke_is_not_kept_in_memory(postgres_database: Database) -> None:
    """backends B-45: a store that runs for months meets many of them."""
    backend = postgres_database.open().backend
    for mode in (Mode.READ, Mode.WRITE):
        checkout = backend.acquire(mode)
        checkout.broken = True
        backend.rollback(checkout)
        backend.release(checkout)
        gone = weakref.ref(checkout.driver)
        del checkout
        collect()
        assert gone() is None
