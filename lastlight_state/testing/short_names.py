"""Short names for the fixtures, enabled by ``lastlight_short_names = true``. A service may use these names itself."""

from __future__ import annotations

from pathlib import Path

import pytest

import lastlight_state
from lastlight_state import testing


@pytest.fixture(scope="session")
def postgres_server(lastlight_postgres_server: testing.ThrowawayPostgres) -> testing.ThrowawayPostgres:
    """Return `lastlight_postgres_server`."""
    return lastlight_postgres_server


@pytest.fixture
def postgres_url(lastlight_postgres_url: str) -> str:
    """Return `lastlight_postgres_url`."""
    return lastlight_postgres_url


@pytest.fixture
def state_dir(lastlight_state_dir: Path) -> Path:
    """Return `lastlight_state_dir`."""
    return lastlight_state_dir


@pytest.fixture
def frozen_clock(lastlight_clock: testing.FrozenClock) -> testing.FrozenClock:
    """Return `lastlight_clock`."""
    return lastlight_clock


@pytest.fixture(scope="session")
def sqlite_template(lastlight_sqlite_template: testing.SqliteTemplate) -> testing.SqliteTemplate:
    """Return `lastlight_sqlite_template`."""
    return lastlight_sqlite_template


@pytest.fixture(scope="session")
def postgres_template(lastlight_postgres_template: testing.PostgresTemplate) -> testing.PostgresTemplate:
    """Return `lastlight_postgres_template`."""
    return lastlight_postgres_template


@pytest.fixture
def template(
    lastlight_template: testing.SqliteTemplate | testing.PostgresTemplate,
) -> testing.SqliteTemplate | testing.PostgresTemplate:
    """Return `lastlight_template`."""
    return lastlight_template


@pytest.fixture
def database(lastlight_database: testing.Database) -> testing.Database:
    """Return `lastlight_database`."""
    return lastlight_database


@pytest.fixture
def fresh_database(lastlight_fresh_database: testing.Database) -> testing.Database:
    """Return `lastlight_fresh_database`."""
    return lastlight_fresh_database


@pytest.fixture
def every_backend(lastlight_store: lastlight_state.StateStore) -> lastlight_state.StateStore:
    """Return `lastlight_store`."""
    return lastlight_store


@pytest.fixture
def store(lastlight_every_store: lastlight_state.StateStore) -> lastlight_state.StateStore:
    """Return `lastlight_every_store`."""
    return lastlight_every_store


@pytest.fixture
def state_store(lastlight_sqlite_store: lastlight_state.StateStore) -> lastlight_state.StateStore:
    """Return `lastlight_sqlite_store`."""
    return lastlight_sqlite_store


@pytest.fixture
def async_state_store(lastlight_sqlite_store: lastlight_state.StateStore) -> lastlight_state.AsyncStateStore:
    """Return the async form of the store of `state_store`."""
    return lastlight_state.AsyncStateStore(lastlight_sqlite_store)
