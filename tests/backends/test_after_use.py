"""What a connection is like after it was used for something else."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from support.workflows.steps import Raw

from lastlight_state.backends.base import Backend, Checkout, Mode
from lastlight_state.errors import StateError
from lastlight_state.testing import Database


def test_an_open_store_keeps_foreign_keys_after_a_migration_that_rebuilds_tables(sqlite_database: Database) -> None:
    """backends B-26, migrations MG-44: the migration switches them off for itself alone."""
    store = sqlite_database.open()
    with store.backend.migration(5, rebuilds=True):
        pass
    with store.transaction() as tx:
        assert tx.connection.exec_driver_sql("PRAGMA foreign_keys").scalar_one() == 1
        with pytest.raises(Exception, match="FOREIGN KEY"):
            tx.connection.exec_driver_sql(
                "INSERT INTO messaging_messages (session_id, role, content, timestamp) "
                "VALUES ('nobody', 'user', 'hello', '2026-01-01T00:00:00.000Z')"
            )


@pytest.mark.parametrize("fails", [False, True])
def test_a_migration_leaves_the_settings_of_the_connection_that_writes(sqlite_database: Database, fails: bool) -> None:
    """migrations MG-44: also one that failed inside its transaction, where nothing can switch them on again."""

    def settings() -> list[int]:
        with store.transaction() as tx:
            execute = tx.connection.exec_driver_sql
            return [execute(f"PRAGMA {name}").scalar_one() for name in ("foreign_keys", "busy_timeout")]

    def migrated() -> None:
        with store.backend.migration(7, rebuilds=True) as connection:
            connection.exec_driver_sql("CREATE TABLE theirs (number INTEGER)")
            if fails:
                raise ZeroDivisionError

    store = sqlite_database.open()
    before = settings()
    with suppress(ZeroDivisionError):
        migrated()
    assert settings() == before
    assert before[0] == 1


def test_a_connection_inside_a_transaction_does_not_go_back_to_the_pool(postgres_database: Database) -> None:
    """backends B-45: whoever got it next would write into that transaction."""
    store = postgres_database.open()
    checkout = store.backend.acquire(Mode.READ)
    checkout.driver.execute("BEGIN")
    used = checkout.driver.info.backend_pid
    store.backend.release(checkout)
    again = store.backend.acquire(Mode.READ)
    try:
        assert again.driver.info.backend_pid != used
        assert store.backend.alive(again) is False
    finally:
        store.backend.release(again)
    idle = "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND state = 'idle in transaction'"
    raw, deadline = Raw(postgres_database), time.monotonic() + 30
    while raw(idle):  # until the server has noticed
        assert time.monotonic() < deadline


def test_the_driver_error_of_a_failed_migration_leaves_the_store_usable(sqlite_database: Database) -> None:
    """migrations MG-44."""
    store = sqlite_database.open()
    with pytest.raises((StateError, ZeroDivisionError)), store.backend.migration(5, rebuilds=True):
        raise ZeroDivisionError
    assert store.workflows.runs.list().items == ()


def test_a_connection_that_a_migration_closed_is_replaced_and_hides_no_error(sqlite_database: Database) -> None:
    """migrations MG-44: it has no settings that could be given back."""
    store = sqlite_database.open()

    def fail() -> None:
        with store.backend.migration(5) as connection:
            driver: Any = connection.connection.dbapi_connection
            driver.close()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    with store.transaction() as tx:
        assert tx.connection.exec_driver_sql("PRAGMA foreign_keys").scalar_one() == 1


def test_a_connection_whose_rollback_was_cut_off_is_used_no_more(
    fresh_database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """backends B-87: it may still be in the transaction that was to be undone."""
    store = fresh_database.open()

    def fail() -> None:
        with store.transaction() as tx:
            tx.connection.exec_driver_sql("DELETE FROM messaging_messages")
            raise LookupError

    with monkeypatch.context() as patched:
        patched.setattr(store.backend, "rollback", _cut_off)
        with pytest.raises(RecursionError):
            fail()
    with store.transaction() as tx:
        assert tx.connection.exec_driver_sql("SELECT count(*) FROM messaging_messages").scalar_one() == 0


def _cut_off(checkout: Checkout) -> None:
    raise RecursionError


ASKED: dict[str, Callable[[Backend, Checkout], object]] = {
    "columns": lambda backend, checkout: backend.column_names(checkout, "workflow_runs"),
    "damages": lambda backend, checkout: backend.damages(checkout, deep=False),
    "measures": lambda backend, checkout: backend.measures(checkout, ["workflow_runs"]),
    "vacuum": lambda backend, checkout: backend.vacuum(checkout, ["workflow_runs"], analyze=True, full=False),
}


@pytest.mark.parametrize("name", ASKED)
def test_a_question_on_a_connection_that_was_closed_is_an_error_of_ours(database: Database, name: str) -> None:
    """house H-50: whoever asks, and whichever driver fails; the next unit has another connection."""
    store = database.open()
    checkout = store.backend.acquire(Mode.READ)
    checkout.driver.close()
    checkout.broken = True
    try:
        with pytest.raises(StateError):
            ASKED[name](store.backend, checkout)
    finally:
        store.backend.release(checkout)
    assert store.workflows.runs.list().items == ()


def test_a_checkpoint_on_a_connection_that_was_closed_is_an_error_of_ours(sqlite_database: Database) -> None:
    """house H-50."""
    store = sqlite_database.open()
    checkout = store.backend.acquire(Mode.READ)
    checkout.driver.close()
    checkout.broken = True
    with pytest.raises(StateError):
        store.backend.checkpoint(checkout, "passive")
    store.backend.release(checkout)


def test_a_reader_that_broke_is_closed_and_not_lent_again(sqlite_database: Database) -> None:
    """backends B-45."""
    store = sqlite_database.open()
    checkout = store.backend.acquire(Mode.READ)
    driver = checkout.driver
    checkout.broken = True
    store.backend.release(checkout)
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        driver.execute("SELECT 1")
    again = store.backend.acquire(Mode.READ)
    try:
        assert again.driver is not driver
    finally:
        store.backend.release(again)
