"""Joining a caller's transaction whose ``search_path`` leads to other tables than the store's."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import sqlalchemy as sa
from sqlalchemy.engine import URL, make_url
from sqlalchemy.ext.asyncio import create_async_engine
from support.each import with_each

from lastlight_state import AsyncStateStore, MisuseError, StateStore
from lastlight_state.testing import Database

#: What a host may make of its connection, in the transaction that is joined.
ELSEWHERE = {
    "another schema": "SET search_path = theirs",
    "another schema, for this transaction": "SET LOCAL search_path = theirs, public",
    "a temporary table": "CREATE TEMPORARY TABLE workflow_overrides (LIKE public.workflow_overrides INCLUDING ALL)",
}
LIKEWISE = [
    "SET search_path = public, theirs",
    "SET LOCAL search_path = nowhere, public",
    "CREATE TEMPORARY TABLE t (n int)",
]


@pytest.fixture
def url(postgres_database: Database) -> URL:
    """A database with the library's tables in two schemas."""
    StateStore.open(postgres_database.url, schema="theirs", migrate=True).close()
    return make_url(postgres_database.url).set(drivername="postgresql+psycopg")


@contextmanager
def over(url: URL, kind: str, engine: sa.Engine) -> Iterator[StateStore]:
    """A store in ``public`` with connections of its own, or over the host's engine."""
    own = url.set(drivername="postgresql").render_as_string(hide_password=False)
    with StateStore.open(own) if kind == "own" else StateStore.open(engine=engine) as store:
        yield store


def put(store: StateStore, connection: sa.Connection) -> None:
    with store.transaction(connection=connection) as tx:
        tx.workflows.overrides.put("w", enabled=False)


def is_put(engine: sa.Engine, schema: str) -> bool:
    with engine.connect() as connection:
        return bool(connection.scalar(sa.text(f"SELECT count(*) FROM {schema}.workflow_overrides")))


@with_each("kind", ["own", "engine"])
@with_each("change", ELSEWHERE)
def test_a_transaction_that_would_write_other_tables_is_refused(url: URL, kind: str, change: str) -> None:
    """backends B-187: each time, also on a connection that has been joined before."""
    engine = sa.create_engine(url, pool_size=1, max_overflow=0, pool_timeout=2)
    with over(url, kind, engine) as store:
        for _ in range(2):
            with engine.begin() as connection:
                with store.transaction(connection=connection) as tx:
                    assert tx.workflows.overrides.is_enabled("w")
                connection.exec_driver_sql(ELSEWHERE[change])
                with pytest.raises(
                    MisuseError, match=r"other tables than the store: '\w+' is not that of the schema 'public'"
                ):
                    put(store, connection)
                connection.rollback()
            assert not is_put(engine, "public")
            assert not is_put(engine, "theirs")
    engine.dispose()


def test_a_temporary_table_in_front_of_the_stores_is_refused_on_sqlite(sqlite_database: Database) -> None:
    """backends B-187: names mean temporary tables first. One of another name is joined."""
    engine = sa.create_engine(f"sqlite:///{sqlite_database.url}")
    with sqlite_database.open() as store, engine.begin() as connection:
        connection.exec_driver_sql("PRAGMA foreign_keys = ON")
        connection.exec_driver_sql("CREATE TEMPORARY TABLE mine AS SELECT 1 AS n")
        put(store, connection)
        connection.exec_driver_sql("CREATE TEMPORARY TABLE Workflow_Overrides AS SELECT * FROM main.workflow_overrides")
        with pytest.raises(MisuseError, match="'Workflow_Overrides' is a temporary one"):
            put(store, connection)
    engine.dispose()


@pytest.mark.parametrize("change", ELSEWHERE)
def test_an_asynchronous_transaction_that_would_write_other_tables_is_refused(url: URL, change: str) -> None:
    """backends B-187."""

    async def main() -> None:
        engine = create_async_engine(url, pool_size=1, max_overflow=0)
        own = url.set(drivername="postgresql").render_as_string(hide_password=False)
        async with await AsyncStateStore.open(own) as store, engine.begin() as connection:
            async with store.transaction(connection=connection) as tx:
                await tx.workflows.overrides.is_enabled("w")
            await connection.exec_driver_sql(ELSEWHERE[change])
            with pytest.raises(MisuseError, match="other tables than the store"):
                async with store.transaction(connection=connection) as tx:
                    await tx.workflows.overrides.put("w", enabled=False)
        await engine.dispose()

    asyncio.run(main())
    engine = sa.create_engine(url)
    assert not is_put(engine, "public")
    assert not is_put(engine, "theirs")
    engine.dispose()


@pytest.mark.parametrize("kind", ["own", "engine"])
@pytest.mark.parametrize("change", LIKEWISE)
def test_a_search_path_that_leads_to_the_stores_tables_is_joined(url: URL, kind: str, change: str) -> None:
    """backends B-187: and so is a caller's own temporary table."""
    engine = sa.create_engine(url, pool_size=1, max_overflow=0, pool_timeout=2)
    with over(url, kind, engine) as store:
        for _ in range(2):
            with engine.begin() as connection:
                connection.exec_driver_sql(change.replace("TABLE t", "TABLE IF NOT EXISTS t"))
                put(store, connection)
        assert is_put(engine, "public")
    engine.dispose()


def test_a_store_with_a_schema_joins_whatever_the_search_path_is(url: URL) -> None:
    """backends B-187: its statements name the schema."""
    engine = sa.create_engine(url)
    with StateStore.open(
        url.set(drivername="postgresql").render_as_string(hide_password=False), schema="theirs"
    ) as store:
        for change in ELSEWHERE.values():
            with engine.begin() as connection:
                connection.exec_driver_sql(change)
                put(store, connection)
                connection.exec_driver_sql("DISCARD TEMP")
    assert is_put(engine, "theirs")
    assert not is_put(engine, "public")
    engine.dispose()


def raw(connection: sa.Connection, sql: str) -> None:
    """Execute a statement by the driver, of which SQLAlchemy knows nothing."""
    driver = connection.connection.dbapi_connection
    assert driver is not None
    if sql == "commit()":
        driver.commit()
    else:
        driver.cursor().execute(sql)


@pytest.mark.parametrize("kind", ["own", "engine"])
@pytest.mark.parametrize("commit", ["COMMIT", "commit()"])
def test_a_transaction_after_a_commit_by_the_driver_is_judged_anew(url: URL, kind: str, commit: str) -> None:
    """backends B-187: what was said for one transaction is over, what was said for the session is not."""
    engine = sa.create_engine(url, pool_size=1, max_overflow=0, pool_timeout=2)
    with over(url, kind, engine) as store:
        with engine.begin() as connection:
            raw(connection, "SET LOCAL search_path = theirs")
            with pytest.raises(MisuseError, match="other tables than the store"):
                put(store, connection)
            raw(connection, commit)
            put(store, connection)
            raw(connection, commit)
            assert connection.scalar(sa.text("SELECT count(*) FROM public.workflow_overrides")) == 1
            raw(connection, "SET search_path = theirs")
            raw(connection, commit)
            with pytest.raises(MisuseError, match="other tables than the store"):
                put(store, connection)
        assert not is_put(engine, "theirs")
    engine.dispose()


@pytest.mark.parametrize("kind", ["own", "engine"])
def test_a_search_path_that_is_changed_in_the_block_is_refused_there(url: URL, kind: str) -> None:
    """backends B-187: and the block is undone; one that leads to the same tables is not."""
    engine = sa.create_engine(url, pool_size=1, max_overflow=0, pool_timeout=2)

    def moves(store: StateStore, connection: sa.Connection) -> None:
        with store.transaction(connection=connection) as tx:
            tx.workflows.overrides.put("w", enabled=False)
            connection.execute(sa.text("SELECT set_config('search_path', 'theirs', true)"))

    with over(url, kind, engine) as store:
        with engine.begin() as connection:
            with pytest.raises(MisuseError, match="other tables"):
                moves(store, connection)
            with store.transaction(connection=connection) as tx:
                connection.exec_driver_sql("SET LOCAL search_path = public, theirs")
                tx.workflows.overrides.put("w", enabled=True)
        assert not is_put(engine, "theirs")
        assert store.workflows.overrides.is_enabled("w")
    engine.dispose()


@pytest.mark.parametrize("commit", ["COMMIT", "commit()"])
def test_a_commit_by_the_driver_in_the_block_is_noticed_at_its_end(url: URL, commit: str) -> None:
    """backends B-187: nothing that follows it in the block is kept."""

    def commits(store: StateStore, connection: sa.Connection) -> None:
        with store.transaction(connection=connection) as tx:
            tx.workflows.overrides.put("before", enabled=False)
            raw(connection, commit)
            tx.workflows.overrides.put("after", enabled=False)

    engine = sa.create_engine(url)
    own = url.set(drivername="postgresql").render_as_string(hide_password=False)
    with StateStore.open(own) as store:
        with engine.connect() as connection:
            connection.exec_driver_sql("SET LOCAL search_path = public, theirs")
            with pytest.raises(MisuseError, match="ended inside its block"):
                commits(store, connection)
            connection.rollback()
        assert store.workflows.overrides.is_enabled("after")
    engine.dispose()
