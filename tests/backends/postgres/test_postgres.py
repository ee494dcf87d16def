"""What is true of Postgres alone: the pool, schemas, timeouts, connections that die."""

import asyncio
import logging
import select
import subprocess
import sys
import threading
import traceback
import uuid
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import quote

import psycopg
import pytest
from psycopg.pq import DiagnosticField
from sqlalchemy import make_url
from support.busy import Naps
from support.old_server import old_server

from lastlight_state import AsyncStateStore, Settings, StateStore
from lastlight_state.backends import open_backend
from lastlight_state.backends.base import Mode, Options
from lastlight_state.backends.fair_lock import Turn
from lastlight_state.backends.postgres import connections, pool
from lastlight_state.conversations import NewMessage
from lastlight_state.db.units.unit import Unit
from lastlight_state.errors import BackendBusy, BackendUnavailable, Conflict, InvalidValue, NotSupported
from lastlight_state.testing import Database, ThrowawayPostgres
from lastlight_state.testing.postgres import connect
from lastlight_state.workflows import PhaseEntry, Trigger

TRIGGER = Trigger(type="cli", id="t")
PASSWORD = "a!b@c$d%e*_,/:;=?@[]"
ENCODED = quote(PASSWORD, safe="")


def create(on: Any, name: str = "w") -> str:
    made: str = on.workflows.runs.create(name, trigger=TRIGGER, phase="p").id
    return made


def asked(store: StateStore, sql: str, mode: Mode = Mode.READ) -> Any:
    """The answer of a connection that a unit of this mode gets."""
    checkout = store.backend.acquire(mode)
    try:
        return checkout.driver.execute(sql).fetchone()[0]
    finally:
        store.backend.rollback(checkout)
        store.backend.release(checkout)


def kill(database: Database, pid: int) -> None:
    assert database.raw().execute("SELECT pg_terminate_backend(%s::int, 5000)", (pid,)).fetchone() == (True,)


# ---- Sessions --------------------------------------------------------------------------------------------------------


def test_the_server_knows_who_is_connected(postgres_database: Database) -> None:
    """backends B-30: ``application_name``."""
    assert asked(postgres_database.open(), "SELECT current_setting('application_name')") == "lastlight-state"


def test_writing_units_say_their_isolation_whatever_the_servers_default_is(postgres_database: Database) -> None:
    """backends B-30: isolation stated."""
    name = make_url(postgres_database.url).database
    postgres_database.raw().execute(f"ALTER DATABASE \"{name}\" SET default_transaction_isolation = 'serializable'")
    store = postgres_database.open()
    isolation = "SELECT current_setting('transaction_isolation')"
    assert asked(store, isolation, Mode.WRITE) == "read committed"
    assert asked(store, isolation, Mode.SNAPSHOT) == "repeatable read"


def test_the_zone_of_the_server_changes_no_time(postgres_database: Database) -> None:
    """house H-30: aware UTC."""
    store = postgres_database.open()
    run = store.workflows.runs.get(create(store))
    assert run.started_at == postgres_database.clock.now()
    assert run.started_at.utcoffset() == postgres_database.clock.now().utcoffset()


def test_a_pooler_gets_no_prepared_statements_and_no_startup_options(postgres_database: Database) -> None:
    """backends B-31: ``pooler="transaction"``."""
    settings = Settings(pooler="transaction")
    store = postgres_database.open(settings=settings)
    for _ in range(10):
        create(store)
    checkout = store.backend.acquire(Mode.READ)
    assert checkout.driver.prepare_threshold is None
    assert checkout.driver.execute("SELECT count(*) FROM pg_prepared_statements").fetchone() == (0,)
    store.backend.release(checkout)


def test_otherwise_a_statement_is_prepared_when_it_has_been_used_often(postgres_database: Database) -> None:
    store = postgres_database.open(settings=Settings(pool_size=1))
    for _ in range(10):
        create(store)
    assert asked(store, "SELECT count(*) FROM pg_prepared_statements") > 0


def test_what_the_url_says_to_the_server_is_said_too(postgres_database: Database) -> None:
    """backends B-30: beside our own settings."""
    said = {"options": "-c geqo=off", "application_name": "worker-7"}
    url = make_url(postgres_database.url).update_query_dict(said).render_as_string(hide_password=False)
    with StateStore.open(url, settings=Settings(statement_timeout=7, lock_timeout=2.5)) as store:
        settings = "SELECT concat_ws(' ', current_setting({}), current_setting({}), current_setting({}), {})"
        asked_for = settings.format(
            "'geqo'", "'statement_timeout'", "'application_name'", "current_setting('lock_timeout')"
        )
        assert asked(store, asked_for) == "off 7s worker-7 2500ms"


# ---- The pool --------------------------------------------------------------------------------------------------------


def test_one_unit_after_the_other_uses_one_connection(postgres_database: Database) -> None:
    """backends B-32: LIFO."""
    store = postgres_database.open()
    assert len({asked(store, "SELECT pg_backend_pid()") for _ in range(5)}) == 1


def test_a_connection_that_is_old_is_replaced(postgres_database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """backends B-32: before it is used again."""
    store = postgres_database.open()
    first = asked(store, "SELECT pg_backend_pid()")
    monkeypatch.setattr(pool, "RECYCLE_SECONDS", 0)
    assert asked(store, "SELECT pg_backend_pid()") != first


def test_the_pool_is_bounded_and_says_when_it_is_exhausted(postgres_database: Database) -> None:
    """backends B-32: timeouts that name themselves."""
    store = postgres_database.open(settings=Settings(pool_size=2, pool_timeout=0.05))
    checkouts = [store.backend.acquire(Mode.READ) for _ in range(2)]
    with pytest.raises(BackendUnavailable, match="all connections of the pool stayed in use") as raised:
        create(store)
    assert raised.value.details["reason"] == "pool"
    for checkout in checkouts:
        store.backend.release(checkout)
    create(store)


def test_what_a_unit_left_that_was_cut_off_twice_is_closed_with_the_store(shared_postgres: Database) -> None:
    """backends B-87: nobody takes a connection afterwards who would find it."""
    store = shared_postgres.open()
    gone = store.backend.acquire(Mode.READ)
    gone.handle = weakref.ref(Turn())  # of a statement that is over
    store.close()
    assert gone.driver.closed


def test_a_connection_that_died_in_the_pool_is_found_before_it_is_used(postgres_database: Database) -> None:
    """backends B-32: no ping before each use, and no failed unit either."""
    store = postgres_database.open(settings=Settings(pool_size=3))
    checkouts = [store.backend.acquire(Mode.READ) for _ in range(3)]
    pids = [checkout.driver.info.backend_pid for checkout in checkouts]
    for checkout in checkouts:
        store.backend.release(checkout)
    for pid in pids:
        kill(postgres_database, pid)
    run = create(store)
    with store.transaction() as tx:
        assert tx.workflows.runs.get(run).id == run
    assert store.metrics.retries == 0
    assert asked(store, "SELECT pg_backend_pid()") not in pids


MANY_FILES = """
import resource, sys
from lastlight_state import StateStore

most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (1200, most))
files = [open("/dev/null") for _ in range(1100)]
with StateStore.open(sys.argv[1]) as store:
    print([len(store.workflows.runs.list()) for _ in range(2)])
"""


@pytest.mark.slow
def test_a_process_may_have_any_number_of_files_open(postgres_database: Database) -> None:
    """backends B-32: ``select`` would know no file beyond the 1,024th."""
    command = [sys.executable, "-W", "ignore", "-c", MANY_FILES, postgres_database.url]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "[0, 0]\n"


# A trigger that ends the connection of the first so many rows.
ON_INSERT = (
    "CREATE SEQUENCE attempts",
    """CREATE FUNCTION on_insert() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN IF nextval('attempts') <= {times} THEN PERFORM pg_terminate_backend(pg_backend_pid()); END IF;
    RETURN NEW; END $$""",
    "CREATE TRIGGER on_insert BEFORE INSERT ON {table} FOR EACH ROW EXECUTE FUNCTION on_insert()",
)


def let_connections_die(database: Database, times: int, table: str = "workflow_runs") -> None:
    """Let the first inserts into the table end their connection."""
    raw = database.raw()
    for statement in ON_INSERT:
        raw.execute(statement.format(times=times, table=table))


def test_a_unit_whose_connection_dies_before_it_wrote_is_repeated_once(postgres_database: Database) -> None:
    """backends B-33: a disconnect before any statement of a unit succeeded."""
    let_connections_die(postgres_database, 1)
    store = postgres_database.open()
    naps = Naps(store)
    store.workflows.runs.ensure("key", "w", trigger=TRIGGER, phase="p")
    assert (len(naps), store.metrics.retries) == (1, 1)
    assert len(store.workflows.runs.list()) == 1


def test_a_unit_that_may_not_be_done_twice_is_repeated_where_nothing_of_it_was_done(
    postgres_database: Database,
) -> None:
    """backends B-33: a disconnect inside its transaction."""
    let_connections_die(postgres_database, 1, "sessions")
    store = postgres_database.open()
    naps = Naps(store)
    store.conversations.sessions.create()
    assert (len(naps), len(store.conversations.sessions.list())) == (1, 1)


def test_connections_that_go_on_dying_are_unavailable_and_the_next_call_finds_a_live_one(
    postgres_database: Database,
) -> None:
    """backends B-82: retried or surface as `BackendUnavailable`."""
    let_connections_die(postgres_database, 2)
    store = postgres_database.open()
    Naps(store)
    with pytest.raises(BackendUnavailable, match="57P01"):
        store.workflows.runs.ensure("key", "w", trigger=TRIGGER, phase="p")
    store.workflows.runs.ensure("key", "w", trigger=TRIGGER, phase="p")
    assert len(store.workflows.runs.list()) == 1


def test_a_block_whose_connection_dies_says_so_and_keeps_nothing(postgres_database: Database) -> None:
    """backends B-52: a ``with`` block's body cannot be repeated."""
    store = postgres_database.open()

    def work() -> None:
        with store.transaction() as tx:
            run = create(tx)
            kill(postgres_database, tx.connection.exec_driver_sql("SELECT pg_backend_pid()").scalar_one())
            tx.workflows.runs.append_phase(run, PhaseEntry("build", True))

    with pytest.raises(BackendUnavailable, match="57P01"):
        work()
    assert len(store.workflows.runs.list()) == 0


@pytest.mark.parametrize("way", ["view", "async view", "call"])
def test_who_only_reads_loses_nothing_when_the_connection_is_lost_at_the_end(
    postgres_database: Database, way: str
) -> None:
    """backends B-46: no outcome is unknown of what was not written."""
    store = postgres_database.open()
    create(store)

    def read(domains: Any) -> int:
        return len(domains.workflows.runs.list())

    def killed(unit: Unit) -> int:
        kill(postgres_database, unit.driver.info.backend_pid)
        return 1

    async def awaited() -> None:
        async with AsyncStateStore(store).view() as view:
            assert len(await view.workflows.runs.list()) == 1
            killed(view._target._context.scope.unit)  # type: ignore[attr-defined]

    if way == "view":
        with store.view() as view:
            assert read(view) == 1
            killed(view._context.scope.unit)  # type: ignore[attr-defined]
    elif way == "async view":
        asyncio.run(awaited())
    else:
        assert store._scope.view(killed) == 1
    assert read(store) == 1
    assert store.metrics.retries == 0


# ---- Timeouts --------------------------------------------------------------------------------------------------------


@contextmanager
def locked(database: Database) -> Iterator[None]:
    """Nobody else can use the table of runs."""
    holder = database.raw()
    holder.execute("BEGIN")
    holder.execute("LOCK TABLE workflow_runs IN ACCESS EXCLUSIVE MODE")
    yield
    holder.execute("ROLLBACK")


def test_the_statement_timeout_names_itself(postgres_database: Database) -> None:
    """backends B-34."""
    store = postgres_database.open(settings=Settings(statement_timeout=0.5))
    with locked(postgres_database), pytest.raises(BackendUnavailable, match="timeout") as raised:
        create(store)
    assert raised.value.details["reason"] == "statement_timeout"
    assert raised.value.outcome == "none"
    create(store)


def test_the_lock_timeout_names_itself_and_is_repeated(postgres_database: Database) -> None:
    """backends B-34."""
    store = postgres_database.open(settings=Settings(lock_timeout=0.01))
    naps = Naps(store)
    with locked(postgres_database), pytest.raises(BackendBusy, match="lock timeout"):
        create(store)
    assert len(naps) == 6
    create(store)


# ---- Schemas ---------------------------------------------------------------------------------------------------------


def test_a_schema_holds_everything_and_no_search_path_is_needed(postgres_url: str) -> None:
    """backends B-35: schema translation."""
    with connect(postgres_url) as plain:
        default = plain.execute("SELECT current_schema()").fetchone()
    with StateStore.open(postgres_url, schema="Agents 1", migrate=True) as store:
        run = create(store)
        store.workflows.runs.append_phase(run, PhaseEntry("build", True))
        with store.transaction() as tx:
            tx.workflows.runs.merge_scratch(run, {"n": 1})
        assert [one.id for one in store.workflows.runs.list()] == [run]
        assert (asked(store, "SELECT current_schema()"),) == default
    with connect(postgres_url) as plain:
        found = plain.execute(
            "SELECT DISTINCT schemaname FROM pg_tables WHERE tablename LIKE 'workflow%' OR tablename LIKE 'lastlight%'"
        ).fetchall()
    assert found == [("Agents 1",)]


def test_a_search_path_that_names_no_schema_is_refused(postgres_url: str) -> None:
    """backends B-35: tables would have no place."""
    url = make_url(postgres_url).update_query_dict({"options": "-csearch_path=nowhere"})
    with pytest.raises(InvalidValue, match="names no schema that exists"):
        StateStore.open(url.render_as_string(hide_password=False), migrate=True)


@pytest.mark.slow
def test_schemas_of_one_database_know_nothing_of_one_another(postgres_url: str) -> None:
    """backends B-35."""
    with (
        StateStore.open(postgres_url, schema="one", migrate=True) as one,
        StateStore.open(postgres_url, schema="two", migrate=True) as two,
        StateStore.open(postgres_url, migrate=True) as public,
    ):
        create(one, "one")
        create(two, "two")
        create(public, "public")
        for store, name in ((one, "one"), (two, "two"), (public, "public")):
            assert [run.workflow_name for run in store.workflows.runs.list()] == [name]
        with pytest.raises(Conflict), one.transaction() as tx:
            tx.workflows.runs.restart(create(tx, "one"), by="ana", reason="too early")


def test_a_message_is_sent_in_a_schema_that_no_search_path_names(postgres_url: str) -> None:
    """backends B-35: as one that is sent again does, and an inbox that is there."""
    message = NewMessage("user", "hello", sender="ana")
    with StateStore.open(postgres_url, schema="two", migrate=True) as store:
        exchange = store.conversations.exchange
        assert exchange.send(message, to=["b", "c"]).delivered == ("b", "c")
        assert exchange.send(message, to=["c", "d"]).delivered == ("d",)
        assert [delivery.ord for delivery in exchange.inbox("c")] == [0]


# ---- Opening ---------------------------------------------------------------------------------------------------------


def test_a_server_older_than_fourteen_is_refused() -> None:
    """backends B-7: PostgreSQL 14."""
    with old_server() as url, pytest.raises(NotSupported, match="older than PostgreSQL 14"):
        StateStore.open(url)


def test_the_oldest_server_is_not_refused(postgres_database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """backends B-7: the first release of the oldest version that is supported."""
    with connect(postgres_database.url) as connection:
        monkeypatch.setattr(connections, "OLDEST", connection.info.server_version)
    assert postgres_database.open().workflows.runs.list().items == ()


def test_a_server_that_hangs_up_at_the_first_question_is_unavailable_by_the_drivers_error() -> None:
    """house H-51: ``__cause__`` is the driver's error."""
    with old_server(answers=False) as url, pytest.raises(BackendUnavailable) as raised:
        StateStore.open(url)
    assert isinstance(raised.value.__cause__, psycopg.Error)


@pytest.mark.parametrize("port", [1, 65_000])
def test_a_server_that_is_not_there_is_unavailable_and_no_text_holds_the_password(
    port: int, caplog: pytest.LogCaptureFixture
) -> None:
    """backends B-5, B-8: passwords in no text of errors, logs, repr."""
    url = f"postgresql://ana:{ENCODED}@127.0.0.1:{port}/state?sslpassword={ENCODED}"
    with caplog.at_level(logging.DEBUG), pytest.raises(BackendUnavailable, match="cannot be reached") as raised:
        StateStore.open(url)
    backend = open_backend(url, Options())
    texts = [*traceback.format_exception(raised.value), repr(raised.value), repr(backend), backend.location]
    texts += [record.getMessage() for record in caplog.records]
    for text in texts:
        assert PASSWORD not in text
        assert ENCODED not in text
    backend.close()


def test_a_database_that_is_not_there_is_unavailable_and_the_driver_says_why(
    postgres_server: ThrowawayPostgres,
) -> None:
    """backends B-8."""
    url = make_url(postgres_server.url).set(database="no_such_database").render_as_string(hide_password=False)
    with pytest.raises(BackendUnavailable) as raised:
        StateStore.open(url)
    assert "no_such_database" in str(raised.value.__cause__)


def test_a_password_of_any_characters_reaches_the_server(postgres_server: ThrowawayPostgres) -> None:
    """backends B-5."""
    role = f"lastlight_test_{uuid.uuid4().hex[:8]}"
    literal = PASSWORD.replace("'", "''")
    url = make_url(postgres_server.url).set(username=role, password=PASSWORD).render_as_string(hide_password=False)
    with connect(postgres_server.url) as admin:
        admin.execute(f"CREATE ROLE {role} LOGIN PASSWORD '{literal}'")
        try:
            backend = open_backend(url.replace("+psycopg", ""), Options())
            checkout = backend.acquire(Mode.READ)
            assert checkout.driver.info.password == PASSWORD
            assert checkout.driver.execute("SELECT current_user").fetchone() == (role,)
            backend.release(checkout)
            backend.close()
        finally:
            admin.execute(f"DROP ROLE {role}")


def test_threads_share_the_pool(postgres_database: Database) -> None:
    """backends B-16: open one store per process and share it."""
    store = postgres_database.open(settings=Settings(pool_size=2))
    threads = [threading.Thread(target=lambda: [create(store) for _ in range(10)]) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(store.workflows.runs.list(limit=500)) == 60


def test_what_a_connection_is_doing_is_cancelled_before_it_is_closed(postgres_url: str) -> None:
    """backends B-87: the server does not go on with a statement that nobody waits for."""
    with connect(postgres_url) as driver:
        driver.pgconn.send_query(b"SELECT pg_sleep(600)")
        for _ in range(300):
            pool.cancel(driver)  # again, if it came before the statement had begun
            if select.select([driver.fileno()], [], [], 0.1)[0]:
                break
        else:
            driver.close()
            pytest.fail("the statement goes on")
        result = driver.pgconn.get_result()
        assert result is not None
        assert result.error_field(DiagnosticField.SQLSTATE) == b"57014"
        assert driver.pgconn.get_result() is None
