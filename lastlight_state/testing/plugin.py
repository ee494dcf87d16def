"""The pytest plugin of an installed library: databases and directories for tests.

Nothing is started before a test requests it. With the setting ``lastlight_postgres_at_start = true``, one server is
started before the tests and shared by all xdist workers. Otherwise each process that needs a server starts its own.
Fixtures have the prefix ``lastlight_``. With ``lastlight_short_names = true`` they also have short names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import lastlight_state
from lastlight_state import testing
from lastlight_state.errors import StateError
from lastlight_state.lazy import load
from lastlight_state.testing.postgres import SharedPostgres, shared_server

BACKENDS = ("sqlite", "postgres")
AT_START = "lastlight_postgres_at_start"
SHORT = "lastlight_short_names"

Migrations = Callable[[str], object] | None


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addini(AT_START, "start one Postgres before the tests and share it between all workers", type="bool")
    parser.addini(SHORT, "offer the fixtures under short names too: store, database, state_dir and so on", type="bool")


def pytest_configure(config: pytest.Config) -> None:
    if config.getini(AT_START) and not hasattr(config, "workerinput"):
        config.pluginmanager.register(SharedPostgres(), SharedPostgres.__name__)
    if config.getini(SHORT):
        config.pluginmanager.register(load("lastlight_state.testing.short_names"))


@pytest.fixture(scope="session")
def lastlight_postgres_server(request: pytest.FixtureRequest) -> Iterator[testing.ThrowawayPostgres]:
    """Return a real Postgres server that is started once (0.3 to 0.9 s).

    If it cannot be started in any way, the test fails with the reason for each way.
    """
    shared = shared_server(request.config)
    if shared:
        yield shared
        return
    try:
        server = testing.ThrowawayPostgres.start()
    except StateError as error:
        pytest.fail(str(error), pytrace=False)
    with server:
        yield server


@pytest.fixture
def lastlight_postgres_url(lastlight_postgres_server: testing.ThrowawayPostgres) -> Iterator[str]:
    """Yield the URL of an empty Postgres database for this test, dropped afterwards (30 to 150 ms per test)."""
    with lastlight_postgres_server.database() as url:
        yield url


@pytest.fixture
def lastlight_state_dir(tmp_path: Path) -> Path:
    """Return an empty directory for this test. Only its owner has access."""
    folder = tmp_path / "state"
    folder.mkdir(mode=0o700)
    return folder


@pytest.fixture
def lastlight_clock() -> testing.FrozenClock:
    """Return the clock of the stores in the fixtures below. It shows a fixed time until the test moves it."""
    return testing.FrozenClock()


@pytest.fixture(scope="session")
def lastlight_migrations() -> Migrations:
    """Return None.

    Override this fixture with a function that creates a service's tables in the database with a given URL. Then each
    test on Postgres gets its own database, because only the service knows which tables to empty.
    """
    return None


@pytest.fixture(scope="session")
def lastlight_sqlite_template(
    tmp_path_factory: pytest.TempPathFactory, lastlight_migrations: Migrations
) -> testing.SqliteTemplate:
    """Return a migrated SQLite file, created once (50 ms)."""
    return testing.SqliteTemplate(tmp_path_factory.mktemp("lastlight"), lastlight_migrations)


@pytest.fixture(scope="session")
def lastlight_postgres_template(
    lastlight_postgres_server: testing.ThrowawayPostgres, lastlight_migrations: Migrations
) -> Iterator[testing.PostgresTemplate]:
    """Yield a migrated Postgres database, created once (200 ms)."""
    template = testing.PostgresTemplate(lastlight_postgres_server, lastlight_migrations)
    yield template
    template.drop()


@pytest.fixture(params=BACKENDS)
def lastlight_template(request: pytest.FixtureRequest) -> testing.SqliteTemplate | testing.PostgresTemplate:
    """Return the migrated database. The test runs once with SQLite's and once with Postgres'."""
    made: testing.SqliteTemplate | testing.PostgresTemplate
    made = request.getfixturevalue(f"lastlight_{request.param}_template")
    return made


@pytest.fixture
def lastlight_database(
    lastlight_template: testing.SqliteTemplate | testing.PostgresTemplate,
    lastlight_state_dir: Path,
    lastlight_clock: testing.FrozenClock,
) -> Iterator[testing.Database]:
    """Return an empty, migrated database, once per backend (2 ms): ``url``, ``name``, ``open()``, ``raw()``."""
    with lastlight_template.shared(lastlight_state_dir, lastlight_clock) as database:
        yield database


@pytest.fixture
def lastlight_fresh_database(
    lastlight_template: testing.SqliteTemplate | testing.PostgresTemplate,
    lastlight_state_dir: Path,
    lastlight_clock: testing.FrozenClock,
) -> Iterator[testing.Database]:
    """Yield a new database for this test, for tests with processes or locks (40 to 170 ms on Postgres)."""
    with lastlight_template.fresh(lastlight_state_dir, lastlight_clock) as database:
        yield database


@pytest.fixture
def lastlight_store(lastlight_database: testing.Database) -> lastlight_state.StateStore:
    """Return a store. The test runs once on SQLite and once on Postgres."""
    return lastlight_database.open()


@pytest.fixture
def lastlight_async_store(lastlight_store: lastlight_state.StateStore) -> lastlight_state.AsyncStateStore:
    """Return the async form of `lastlight_store`, which works in any event loop."""
    return lastlight_state.AsyncStateStore(lastlight_store)


@pytest.fixture(params=("sync", "async"))
def lastlight_every_store(
    request: pytest.FixtureRequest, lastlight_database: testing.Database
) -> Iterator[lastlight_state.StateStore]:
    """Yield a store. The test runs four times: on each backend, with the sync store and with its async form."""
    opened = lastlight_database.open()
    if request.param == "sync":
        yield opened
        return
    with testing.blocking_store(opened) as blocking:
        yield blocking


@pytest.fixture
def lastlight_sqlite_store(
    lastlight_state_dir: Path,
    lastlight_clock: testing.FrozenClock,
    lastlight_sqlite_template: testing.SqliteTemplate,
) -> Iterator[lastlight_state.StateStore]:
    """Yield a store on an SQLite file for this test (3 ms)."""
    with lastlight_sqlite_template.fresh(lastlight_state_dir, lastlight_clock) as database:
        yield database.open()


@pytest.fixture
def lastlight_postgres_store(
    lastlight_state_dir: Path,
    lastlight_clock: testing.FrozenClock,
    lastlight_postgres_template: testing.PostgresTemplate,
) -> Iterator[lastlight_state.StateStore]:
    """Yield a store on Postgres (2 ms)."""
    with lastlight_postgres_template.shared(lastlight_state_dir, lastlight_clock) as database:
        yield database.open()
