"""Joining a caller's transaction of another database than the store's."""

from __future__ import annotations

from pathlib import Path

import pytest
import sqlalchemy as sa
from sqlalchemy.engine import make_url

from lastlight_state import MisuseError, StateStore
from lastlight_state.testing import Database


def join(store: StateStore, engine: sa.Engine) -> None:
    with engine.begin() as connection:
        connection.exec_driver_sql("PRAGMA foreign_keys = ON") if engine.name == "sqlite" else None
        with store.transaction(connection=connection) as tx:
            tx.workflows.overrides.put("w", enabled=False)


def test_a_transaction_of_another_sqlite_file_is_refused(sqlite_database: Database, tmp_path: Path) -> None:
    """backends B-187: nothing is written there."""
    other = tmp_path / "other.db"
    StateStore.open(str(other), migrate=True).close()
    theirs = sa.create_engine(f"sqlite:///{other}")
    ours = sa.create_engine(f"sqlite:///{sqlite_database.url.removeprefix('sqlite:///')}")
    with sqlite_database.open() as store:
        for _ in range(2):
            with pytest.raises(MisuseError, match=r"another database than the store: .*other\.db, not "):
                join(store, theirs)
            join(store, ours)
        assert not store.workflows.overrides.is_enabled("w")
    with StateStore.open(str(other)) as store:
        assert store.workflows.overrides.is_enabled("w")
    theirs.dispose()
    ours.dispose()


def test_a_transaction_of_another_database_of_the_server_is_refused(postgres_database: Database) -> None:
    """backends B-187."""
    url = make_url(postgres_database.url).set(drivername="postgresql+psycopg")
    theirs, ours = sa.create_engine(url.set(database="postgres")), sa.create_engine(url)
    with postgres_database.open() as store:
        for _ in range(2):
            with pytest.raises(MisuseError, match="another database than the store: postgres of the server"):
                join(store, theirs)
            join(store, ours)
        assert not store.workflows.overrides.is_enabled("w")
    theirs.dispose()
    ours.dispose()


def test_a_store_over_the_engine_joins_with_its_only_connection(postgres_database: Database) -> None:
    """backends B-187: a second connection would never come."""
    url = make_url(postgres_database.url).set(drivername="postgresql+psycopg")
    engine = sa.create_engine(url, pool_size=1, max_overflow=0, pool_timeout=2)
    with StateStore.open(engine=engine) as store:
        join(store, engine)
        assert not store.workflows.overrides.is_enabled("w")
    engine.dispose()
