"""Connections of a caller's engine: what SQLite needs otherwise for us is put back, and said where it cannot be."""

import logging
import sqlite3
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from support.undone import undone

from lastlight_state import StateStore, Transaction
from lastlight_state.backends.base import Mode
from lastlight_state.backends.sqlite import host_connections
from lastlight_state.errors import BackendBusy, MisuseError
from lastlight_state.testing import Database
from lastlight_state.workflows import Trigger

PRAGMAS = (
    "busy_timeout",
    "cache_size",
    "foreign_keys",
    "mmap_size",
    "recursive_triggers",
    "synchronous",
    "temp_store",
    "wal_autocheckpoint",
)
#: A message of a session that does not exist.
ORPHAN = (
    "INSERT INTO messaging_messages (session_id, role, content, timestamp)"
    " VALUES ('none', 'user', 'x', '2026-02-03T00:00:00.000Z')"
)


@pytest.fixture
def engine(sqlite_database: Database) -> Iterator[sa.Engine]:
    """A caller's, with one connection, and settings that are not those of the library."""
    made = sa.create_engine(f"sqlite:///{sqlite_database.url}", pool_size=1, max_overflow=0)

    def connected(driver: Any, record: Any) -> None:
        driver.execute("PRAGMA busy_timeout = 1234")
        driver.execute("PRAGMA synchronous = EXTRA")
        driver.execute("PRAGMA wal_autocheckpoint = 77")
        driver.execute("CREATE TEMP TABLE mine (x)")
        driver.commit()

    sa.event.listen(made, "connect", connected)
    yield made
    sqlite_database.close()
    made.dispose()


@pytest.fixture
def store(sqlite_database: Database, engine: sa.Engine) -> StateStore:
    return sqlite_database.open(engine=engine)


def settings(engine: sa.Engine) -> dict[str, Any]:
    """What the pool's connection is set to."""
    fairy = engine.raw_connection()
    driver: Any = fairy.dbapi_connection
    try:
        found = {name: driver.execute(f"PRAGMA {name}").fetchone()[0] for name in PRAGMAS}
        found["isolation_level"] = driver.isolation_level
        found["autocommit"] = getattr(driver, "autocommit", None)
        found["temporary tables"] = driver.execute("SELECT count(*) FROM temp.sqlite_master").fetchone()[0]
    finally:
        fairy.close()
    return found


def create(tx: Any) -> None:
    tx.workflows.runs.create("w", trigger=Trigger(type="cli", id="t"), phase="p")


def test_every_setting_of_a_callers_connection_is_back_after_a_unit(
    engine: sa.Engine, sqlite_database: Database
) -> None:
    """backends B-113: also its temporary tables, which another ``temp_store`` would have emptied."""
    before = settings(engine)
    assert (before["busy_timeout"], before["synchronous"], before["foreign_keys"]) == (1234, 3, 0)
    store = sqlite_database.open(engine=engine)
    assert settings(engine) == before
    create(store)
    assert settings(engine) == before
    store.workflows.runs.list()
    assert settings(engine) == before
    undone(store, create)
    assert settings(engine) == before


def test_a_unit_has_its_own_settings_on_a_callers_connection(store: StateStore) -> None:
    """backends B-20, B-26."""
    checkout = store.backend.acquire(Mode.WRITE)
    found = {name: checkout.execute(f"PRAGMA {name}").fetchone()[0] for name in PRAGMAS}
    store.backend.rollback(checkout)
    store.backend.release(checkout)
    assert (found["foreign_keys"], found["recursive_triggers"], found["synchronous"]) == (1, 1, 1)
    assert found["busy_timeout"] == 250


def test_a_connection_that_cannot_be_put_back_is_closed(store: StateStore, engine: sa.Engine) -> None:
    """backends B-113: nobody gets it with our settings."""
    checkout = store.backend.acquire(Mode.WRITE)
    store.backend.rollback(checkout)
    checkout.before.pragmas = {"foreign_keys = (": 1}
    store.backend.release(checkout)
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        checkout.driver.execute("SELECT 1")
    assert settings(engine)["foreign_keys"] == 0
    create(store)


@pytest.mark.skipif(sys.version_info < (3, 12), reason="the driver has no such mode before")
def test_a_driver_that_is_always_in_a_transaction_is_used_and_put_back(sqlite_database: Database) -> None:
    """backends B-113: ``autocommit=False`` of Python 3.12."""
    engine = sa.create_engine(f"sqlite:///{sqlite_database.url}", connect_args={"autocommit": False}, pool_size=1)
    before = settings(engine)
    with sqlite_database.open(engine=engine) as store:
        create(store)
        with engine.begin() as connection, store.transaction(connection=connection) as tx:
            create(tx)
        assert len(store.workflows.runs.list()) == 2
    assert settings(engine) == before
    engine.dispose()


@pytest.mark.parametrize("end", ["commit", "rollback", "close", "another transaction", "nothing"])
def test_a_joined_connection_has_its_settings_back_when_its_transaction_is_over(
    store: StateStore, engine: sa.Engine, end: str
) -> None:
    """backends B-114."""
    before = settings(engine)
    with engine.connect() as connection:
        connection.begin()
        with store.transaction(connection=connection):
            for name in ("foreign_keys", "recursive_triggers"):
                assert connection.exec_driver_sql(f"PRAGMA {name}").scalar() == 1
        assert connection.exec_driver_sql("PRAGMA recursive_triggers").scalar() == 0
        assert connection.exec_driver_sql("PRAGMA foreign_keys").scalar() == int(not host_connections.SWITCHES_INSIDE)
        if end == "rollback":
            connection.rollback()
        elif end in ("commit", "another transaction"):
            connection.commit()
        elif end == "close":
            connection.close()
        if end == "another transaction":
            assert connection.exec_driver_sql("PRAGMA foreign_keys").scalar() == 0
    assert settings(engine) == before


def test_the_guards_hold_in_a_block_that_joined_a_connection_without_pragmas(
    store: StateStore, engine: sa.Engine
) -> None:
    """backends B-114: and the caller's own statements are as free as before, after it."""

    def work(tx: Transaction) -> None:
        tx.connection.exec_driver_sql(ORPHAN)

    with engine.connect() as connection:
        connection.begin()
        with pytest.raises(sa.exc.IntegrityError), store.transaction(connection=connection) as tx:
            work(tx)
        connection.rollback()
        connection.exec_driver_sql(ORPHAN)
        connection.rollback()


def test_a_caller_who_wrote_before_it_joined_is_told_the_line_to_add_where_it_is_too_late(
    store: StateStore, engine: sa.Engine
) -> None:
    """backends B-114: with Python 3.11 alone; and the line helps."""
    switches = host_connections.SWITCHES_INSIDE
    with engine.connect() as connection:
        connection.exec_driver_sql("CREATE TABLE mine (x)")
        connection.exec_driver_sql("INSERT INTO mine VALUES (1)")
        if switches:
            with store.transaction(connection=connection) as tx:
                create(tx)
        else:
            with (
                pytest.raises(MisuseError, match=r"foreign_keys off, and Python 3\.11 cannot") as raised,
                store.transaction(connection=connection),
            ):
                pass
            assert raised.value.details == {"pragma": "foreign_keys"}
            assert host_connections.LISTENER in str(raised.value)
            assert connection.exec_driver_sql("PRAGMA recursive_triggers").scalar() == 0
        connection.commit()
    engine.dispose()
    exec(host_connections.LISTENER, {"sqlalchemy": sa, "engine": engine})
    with engine.connect() as connection:
        connection.exec_driver_sql("INSERT INTO mine VALUES (2)")
        with store.transaction(connection=connection) as tx:
            create(tx)
        connection.commit()
    assert len(store.workflows.runs.list()) == 1 + switches


def test_a_busy_file_leaves_a_joined_connection_as_it_was(
    store: StateStore, sqlite_database: Database, engine: sa.Engine
) -> None:
    """backends B-114, B-21."""
    before = settings(engine)
    with sqlite_database.open() as other, other.transaction(), engine.connect() as connection:
        connection.begin()
        connection.exec_driver_sql("PRAGMA busy_timeout = 10")
        with pytest.raises(BackendBusy), store.transaction(connection=connection):
            pass
        connection.exec_driver_sql("PRAGMA busy_timeout = 1234")
    assert settings(engine) == before


def test_the_caller_is_told_that_the_files_journal_mode_changes(
    state_dir: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """backends B-115: once, and with the setting that keeps it."""
    state_dir.mkdir(exist_ok=True)
    engine = sa.create_engine(f"sqlite:///{state_dir}/host.db")
    with engine.begin() as connection:
        connection.exec_driver_sql("CREATE TABLE mine (x)")
    with caplog.at_level(logging.WARNING, logger="lastlight_state"):
        for _ in range(2):
            StateStore.open(engine=engine).close()
    told = [record.getMessage() for record in caplog.records if "journal mode" in record.getMessage()]
    assert len(told) == 1
    assert "was delete and is wal from now on: open with the setting journal_mode=delete" in told[0]
    engine.dispose()


@pytest.mark.parametrize("missing", [True, False])
def test_the_caller_is_told_at_opening_which_line_its_engine_lacks(
    sqlite_database: Database, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, missing: bool
) -> None:
    """backends B-115: once, with Python 3.11 alone."""
    monkeypatch.setattr(host_connections, "SWITCHES_INSIDE", False)
    engine = sa.create_engine(f"sqlite:///{sqlite_database.url}")
    if not missing:
        exec(host_connections.LISTENER, {"sqlalchemy": sa, "engine": engine})
    with (
        caplog.at_level(logging.WARNING, logger="lastlight_state"),
        sqlite_database.open(engine=engine) as store,
    ):
        create(store)
    assert [host_connections.LISTENER in record.getMessage() for record in caplog.records] == [True] * missing
    engine.dispose()
