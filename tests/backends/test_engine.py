"""A caller's ``engine=``: used, never disposed, its connections given back as they came."""

import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.pool import QueuePool, StaticPool
from support import between
from support.undone import undone
from support.workflows.steps import Raw

from lastlight_state import StateStore, Transaction
from lastlight_state.backends.base import Checkout, Mode
from lastlight_state.backends.sqlite import connections
from lastlight_state.db.news import watch
from lastlight_state.errors import BackendError, BackendUnavailable, Conflict, StoreClosed
from lastlight_state.testing import Database
from lastlight_state.workflows import Trigger

TRIGGER = Trigger(type="cli", id="t")

Make = Callable[..., sa.Engine]


@pytest.fixture
def make_engine(database: Database) -> Iterator[Make]:
    """Makes engines on the test's database, as a caller would."""
    url = database.url if database.name == "postgresql" else f"sqlite:///{database.url}"
    made: list[sa.Engine] = []

    def make(**options: Any) -> sa.Engine:
        made.append(sa.create_engine(url, **options))
        return made[-1]

    yield make
    database.close()
    for engine in made:
        engine.dispose()


@contextmanager
def borrowed(engine: sa.Engine) -> Iterator[Any]:
    """A driver connection of the engine's."""
    fairy = engine.raw_connection()
    try:
        yield fairy.dbapi_connection
    finally:
        fairy.close()


def habits(driver: Any) -> dict[str, Any]:
    """What a caller may have set on a connection, and relies on."""
    names = ("isolation_level", "autocommit", "row_factory", "read_only", "in_transaction")
    found = {name: getattr(driver, name) for name in names if hasattr(driver, name)}
    if hasattr(driver, "adapters"):
        found["json"] = [driver.adapters.get_loader(3802, form) for form in (0, 1)]
    return found


def test_everything_works_over_a_callers_engine(make_engine: Make, database: Database) -> None:
    """backends B-10."""
    with database.open(engine=make_engine()) as store:
        run = store.workflows.runs.create("w", trigger=TRIGGER, phase="p")
        with store.transaction() as tx:
            tx.workflows.runs.merge_scratch(run.id, {"n": 1})
        with store.view() as view:
            assert view.workflows.runs.get(run.id).scratch == {"n": 1}
        assert [one.id for one in store.workflows.runs.list()] == [run.id]


def test_the_engine_is_not_disposed_with_the_store(make_engine: Make, database: Database) -> None:
    """backends B-10: used and never disposed."""
    engine = make_engine(pool_size=1, max_overflow=0)
    with borrowed(engine) as driver:
        first = driver
    database.open(engine=engine).close()
    with borrowed(engine) as driver:
        assert driver is first
        assert driver.execute("SELECT 1").fetchone() == (1,)


def test_what_the_stores_own_thread_looks_with_is_back_when_the_store_is_closed(
    make_engine: Make, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """backends B-10: what came back to an engine that its owner has disposed would stay open, and nobody's."""
    monkeypatch.setattr(watch, "LAST_LOOK_SECONDS", 60)
    engine = make_engine()
    store = database.open(engine=engine)
    looks, go_on = threading.Event(), threading.Event()

    def held(*_: object) -> None:
        if threading.current_thread().name == "lastlight-watch":
            looks.set()
            assert go_on.wait(30)

    def wait() -> None:
        with pytest.raises(StoreClosed):
            store.workflows.claims.wait(timeout=60, poll_interval=0.01)
        go_on.set()  # while the store waits for the look

    sa.event.listen(engine, "checkout", held)
    waiting = threading.Thread(target=wait)
    waiting.start()
    try:
        assert looks.wait(30)
        store.close()
        assert isinstance(engine.pool, QueuePool)
        assert engine.pool.checkedout() == 0
    finally:
        go_on.set()
        waiting.join()


@pytest.mark.parametrize("isolation_level", [None, "AUTOCOMMIT", "SERIALIZABLE"])
def test_a_connection_goes_back_as_it_came(make_engine: Make, database: Database, isolation_level: str | None) -> None:
    """backends B-10: the driver's own transactions too."""
    engine = make_engine(
        pool_size=1, max_overflow=0, **({"isolation_level": isolation_level} if isolation_level else {})
    )
    with borrowed(engine) as driver:
        before = habits(driver)
    with database.open(engine=engine) as store:
        run = store.workflows.runs.create("w", trigger=TRIGGER, phase="p")
        store.workflows.runs.get(run.id)
        with store.view() as view:
            view.workflows.runs.list()
        undone(store, lambda tx: tx.workflows.runs.merge_scratch(run.id, {"n": 1}))
    with borrowed(engine) as driver:
        assert habits(driver) == before


def test_a_connection_goes_back_as_it_came_from_a_transaction_that_was_joined(
    make_engine: Make, database: Database
) -> None:
    """backends B-43: ``connection``."""
    engine = make_engine(pool_size=1, max_overflow=0)
    sa.event.listen(engine, "connect", _with_pragmas(engine))
    with borrowed(engine) as driver:
        before = habits(driver)
    with database.open(engine=engine) as store:
        with engine.begin() as connection, store.transaction(connection=connection) as tx:
            tx.workflows.runs.create("w", trigger=TRIGGER, phase="p")
        with borrowed(engine) as driver:
            assert habits(driver) == before


def test_every_setting_of_a_callers_session_is_back_after_a_unit_and_a_joined_block(
    postgres_database: Database,
) -> None:
    """backends B-113."""
    engine = sa.create_engine(postgres_database.url, pool_size=1, max_overflow=0)

    def connected(driver: Any, record: Any) -> None:
        driver.execute("SET statement_timeout = 1234; SET lock_timeout = 55")
        driver.execute("SELECT set_config('search_path', quote_ident(current_schema()) || ', pg_catalog', false)")
        driver.execute("SET timezone = 'Asia/Tokyo'; SET default_transaction_isolation = 'serializable'")
        driver.commit()

    def settings() -> dict[str, str]:
        with borrowed(engine) as driver:
            return dict(
                driver.execute("SELECT name, setting FROM pg_settings WHERE name NOT LIKE 'plpgsql.%'").fetchall()
            )

    sa.event.listen(engine, "connect", connected)
    before = settings()
    with postgres_database.open(engine=engine) as store:
        store.workflows.runs.create("w", trigger=TRIGGER, phase="p")
        undone(store, lambda tx: tx.workflows.runs.list())
        with engine.begin() as connection, store.transaction(connection=connection) as tx:
            tx.workflows.runs.create("w", trigger=TRIGGER, phase="p")
    assert settings() == before
    engine.dispose()


def test_a_statement_that_was_cut_off_does_not_keep_the_caller_from_committing(
    make_engine: Make, database: Database
) -> None:
    """backends B-43: SQLite commits nothing while rows of a write are not read."""
    engine = make_engine()
    sa.event.listen(engine, "connect", _with_pragmas(engine))
    with database.open(engine=engine) as store:
        with engine.begin() as connection:
            checkout = Checkout(Mode.WRITE, store.backend)
            store.backend.join(connection, checkout)
            checkout.execute(
                "INSERT INTO workflow_overrides (name, enabled, updated_at) "
                "VALUES ('a', TRUE, '2026-01-01T00:00:00.000Z'), ('b', TRUE, '2026-01-01T00:00:00.000Z') RETURNING 1"
            )
            store.backend.leave(checkout)
        assert len(store.workflows.overrides.list().items) == 2


def _with_pragmas(engine: sa.Engine) -> Callable[[Any, Any], None]:
    def connected(driver: Any, record: Any) -> None:
        if engine.dialect.name == "sqlite":
            driver.execute("PRAGMA foreign_keys = ON")
            driver.execute("PRAGMA recursive_triggers = ON")

    return connected


def test_numbers_come_back_equal_however_the_engine_reads_json(make_engine: Make, database: Database) -> None:
    """house H-32: the standard library makes integers of large floats."""
    numbers = {"numbers": [1e300, -1.7976931348623157e308, 1.2345678901234568e18, 2**64 - 1, 1e22]}
    engine = make_engine()
    with database.open(engine=engine) as store:
        run = store.workflows.runs.create("w", trigger=TRIGGER, phase="p", context=numbers)
        assert store.workflows.runs.get(run.id).context == numbers
        sa.event.listen(engine, "checkout", lambda driver, *_: _with_pragmas(engine)(driver, None))
        with engine.begin() as connection, store.transaction(connection=connection) as tx:
            assert tx.workflows.runs.get(run.id).context == numbers


def test_an_engine_without_pragmas_gets_them_so_that_the_guards_hold(make_engine: Make, database: Database) -> None:
    """backends B-26: given a caller's engine that sets no pragma, when raw SQL adds a message to an unknown session."""
    orphan = sa.text(
        "INSERT INTO messaging_messages (session_id, role, content, timestamp) VALUES ('none', 'user', 'x', :at)"
    )
    with (
        database.open(engine=make_engine()) as store,
        pytest.raises(sa.exc.IntegrityError),
        store.transaction() as tx,
    ):
        tx.connection.execute(orphan, {"at": "2026-02-03T00:00:00.000Z"})


def test_a_pool_that_stays_in_use_is_named(make_engine: Make, database: Database) -> None:
    """backends B-32: timeouts that name themselves."""
    engine = make_engine(pool_size=1, max_overflow=0, pool_timeout=0.05)
    store = database.open(engine=engine)
    with borrowed(engine):
        for use in (store.workflows.runs.list, lambda: store.run(lambda tx: tx.workflows)):
            with pytest.raises(BackendUnavailable, match="pool stayed in use") as raised:
                use()
            assert raised.value.details["reason"] == "pool"


def test_an_engine_that_cannot_connect_is_unavailable_by_its_drivers_error(
    database: Database, make_engine: Make
) -> None:
    """house H-51: ``__cause__`` is the driver's error, with no password in any text."""
    url = make_engine().url.set(database="/no/such/place/lastlight.db", password="a-secret", username="ana")
    if database.name == "sqlite":
        url = sa.URL.create("sqlite", database="/no/such/place/lastlight.db")
    engine = sa.create_engine(url)
    with pytest.raises(BackendUnavailable) as raised:
        StateStore.open(engine=engine, migrate=False)
    driver = engine.dialect.import_dbapi()
    assert isinstance(raised.value.__cause__, driver.Error)
    assert "secret" not in f"{raised.value!r} {raised.value.__cause__!r}"
    engine.dispose()


def test_an_engine_on_a_file_that_is_no_database_is_unavailable(state_dir: Path) -> None:
    """house H-51."""
    (state_dir / "notes.txt").write_text("no database, but long enough to have a header of one hundred bytes " * 3)
    engine = sa.create_engine(f"sqlite:///{state_dir}/notes.txt")
    with pytest.raises(BackendUnavailable) as raised:
        StateStore.open(engine=engine)
    assert isinstance(raised.value.__cause__, sqlite3.Error)
    assert raised.value.details["reason"] == "not_a_database"
    engine.dispose()


def test_a_unit_that_failed_leaves_the_engines_connection_clean(make_engine: Make, database: Database) -> None:
    """backends B-40: the next caller must find the connection clean."""
    engine = make_engine(pool_size=1, max_overflow=0)
    with database.open(engine=engine) as store:
        run = store.workflows.runs.create("w", trigger=TRIGGER, phase="p")
        for _ in range(3):
            undone(store, lambda tx: tx.workflows.runs.create("w", trigger=TRIGGER, phase="p"))
            with pytest.raises(Conflict):
                store.workflows.runs.restart(run.id, by="ana", reason="no")
        assert len(store.workflows.runs.list()) == 1
    with engine.begin() as connection:
        assert connection.execute(sa.text("SELECT count(*) FROM workflow_runs")).scalar() == 1


def test_an_engine_in_memory_whose_threads_share_a_connection_keeps_units_apart() -> None:
    """backends B-10: readers wait for the writer, because its changes would be theirs to see."""
    engine = sa.create_engine("sqlite://", poolclass=StaticPool, connect_args={"check_same_thread": False})
    with StateStore.open(engine=engine) as store:
        run = store.workflows.runs.create("w", trigger=TRIGGER, phase="p")
        with store.view() as view:
            assert view.workflows.runs.get(run.id) == run
        seen: list[int] = []
        reader = threading.Thread(target=lambda: seen.append(len(store.workflows.runs.list())))

        def work(tx: Transaction) -> None:
            tx.workflows.runs.create("w", trigger=TRIGGER, phase="p")
            reader.start()

        undone(store, work)
        reader.join()
        assert seen == [1]
    engine.dispose()


def unconnected(make_engine: Make, error: Exception) -> sa.Engine:
    """An engine whose connections cannot be made."""

    def fail() -> None:
        raise error

    return make_engine(creator=fail)


@pytest.mark.parametrize("wrapped", [False, True])
def test_what_the_driver_says_is_the_cause_whoever_wraps_it(
    make_engine: Make, database: Database, wrapped: bool
) -> None:
    """house H-51: ``__cause__`` is the driver's error."""
    said: Any = make_engine().dialect.import_dbapi().OperationalError("no connection")
    engine = unconnected(make_engine, sa.exc.OperationalError("connect", {}, said) if wrapped else said)
    with pytest.raises(BackendError) as raised:
        StateStore.open(engine=engine, migrate=False)
    assert raised.value.__cause__ is said


def test_a_mistake_of_who_makes_connections_is_raised_as_it_is(make_engine: Make, database: Database) -> None:
    """house H-51: whoever reads of it must find its own kind and place."""
    with pytest.raises(ZeroDivisionError):
        StateStore.open(engine=unconnected(make_engine, ZeroDivisionError("a mistake")), migrate=False)


@pytest.mark.parametrize("mode", [Mode.READ, Mode.WRITE])
def test_a_connection_that_broke_is_closed_and_not_given_back(
    make_engine: Make, database: Database, mode: Mode
) -> None:
    """backends B-45, B-87."""
    engine = make_engine(pool_size=1, max_overflow=0)
    with database.open(engine=engine) as store:
        checkout = store.backend.acquire(mode)
        driver = checkout.driver
        checkout.broken = True
        store.backend.rollback(checkout)
        store.backend.release(checkout)
        with pytest.raises(store.backend.driver_errors, match="closed"):
            driver.execute("SELECT 1")
        with borrowed(engine) as other:
            assert other is not driver
        assert store.workflows.runs.list().items == ()


@pytest.mark.parametrize("mode", [Mode.READ, Mode.WRITE])
def test_a_connection_that_was_half_set_up_is_closed_and_not_given_back(
    sqlite_database: Database, monkeypatch: pytest.MonkeyPatch, mode: Mode
) -> None:
    """backends B-87: and its place in the engine's pool is free."""
    engine = sa.create_engine(f"sqlite:///{sqlite_database.url}", pool_size=1, max_overflow=0, pool_timeout=0)
    with sqlite_database.open(engine=engine) as store:
        with borrowed(engine) as driver:
            pass
        between.before(monkeypatch, connections, "set_up", _interrupt)
        with pytest.raises(KeyboardInterrupt):
            store.backend.acquire(mode)
        with pytest.raises(sqlite3.ProgrammingError, match="closed"):
            driver.execute("SELECT 1")
        assert store.workflows.runs.list().items == ()
    engine.dispose()


def _interrupt() -> None:
    raise KeyboardInterrupt


def test_a_connection_that_died_in_the_engines_pool_is_replaced(postgres_database: Database) -> None:
    """backends B-32: before it is used, so that no unit fails."""
    engine = sa.create_engine(postgres_database.url, pool_size=1, max_overflow=0)
    with borrowed(engine) as driver:
        pid = driver.info.backend_pid
    assert Raw(postgres_database)(f"SELECT pg_terminate_backend({pid}, 5000)")
    with postgres_database.open(engine=engine) as store:
        assert store.workflows.runs.list().items == ()
        assert store.metrics.retries == 0
    engine.dispose()


@pytest.mark.parametrize("is_own", [True, False])
def test_what_a_connection_is_doing_that_is_given_back_is_cancelled_before_it_is_closed(
    postgres_database: Database, is_own: bool
) -> None:
    """backends B-87: the server does not go on with a statement that nobody waits for."""
    engine = sa.create_engine(postgres_database.url)
    with postgres_database.open(engine=None if is_own else engine) as store:
        checkout = store.backend.acquire(Mode.READ)
        pid = checkout.driver.info.backend_pid
        raw = Raw(postgres_database)
        asleep = f"SELECT 1 FROM pg_stat_activity WHERE pid = {pid} AND query LIKE '%pg_sleep%'"
        checkout.driver.pgconn.send_query(b"SELECT pg_sleep(600)")
        deadline = time.monotonic() + 30
        while not raw(f"{asleep} AND state = 'active'"):
            assert time.monotonic() < deadline
        store.backend.release(checkout)
        while raw(f"{asleep} AND state = 'active'"):
            assert time.monotonic() < deadline
    engine.dispose()
