"""The pytest plugin that comes with an installed library: databases and directories for tests.

Nothing starts before a test asks for it. With the setting ``lastlight_postgres_at_start = true`` one server is started
before the tests and shared by all xdist workers; otherwise each process that needs a server starts its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import lastlight_state
from lastlight_state import testing
from lastlight_state.errors import StateError
from lastlight_state.testing.shared import SharedPostgres, shared_server

BACKENDS = ("sqlite", "postgres")
AT_START = "lastlight_postgres_at_start"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addini(AT_START, "start one Postgres before the tests and share it between all workers", type="bool")


def pytest_configure(config: pytest.Config) -> None:
    if config.getini(AT_START) and not hasattr(config, "workerinput"):
        config.pluginmanager.register(SharedPostgres(), SharedPostgres.__name__)


@pytest.fixture(scope="session")
def postgres_server(request: pytest.FixtureRequest) -> Iterator[testing.ThrowawayPostgres]:
    """A real Postgres server, started once (0.3 to 0.9 s). A machine that has none fails the test with every reason."""
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
def postgres_url(postgres_server: testing.ThrowawayPostgres) -> Iterator[str]:
    """The URL of an empty Postgres database of the test's own, dropped afterwards (30 to 150 ms per test)."""
    with postgres_server.database() as url:
        yield url


@pytest.fixture
def state_dir(tmp_path: Path) -> Path:
    """An empty directory of the test's own, open to nobody else."""
    folder = tmp_path / "state"
    folder.mkdir(mode=0o700)
    return folder


@pytest.fixture
def frozen_clock() -> testing.FrozenClock:
    """The clock of the stores below: stands still until the test moves it."""
    return testing.FrozenClock()


@pytest.fixture(scope="session")
def sqlite_template(tmp_path_factory: pytest.TempPathFactory) -> testing.SqliteTemplate:
    """A migrated SQLite file (once, 50 ms)."""
    return testing.SqliteTemplate(tmp_path_factory.mktemp("lastlight"))


@pytest.fixture(scope="session")
def postgres_template(postgres_server: testing.ThrowawayPostgres) -> Iterator[testing.PostgresTemplate]:
    """A migrated Postgres database (once, 200 ms)."""
    template = testing.PostgresTemplate(postgres_server)
    yield template
    template.drop()


@pytest.fixture(params=BACKENDS)
def template(request: pytest.FixtureRequest) -> testing.SqliteTemplate | testing.PostgresTemplate:
    """The migrated database of each backend."""
    made: testing.SqliteTemplate | testing.PostgresTemplate = request.getfixturevalue(f"{request.param}_template")
    return made


@pytest.fixture
def database(
    template: testing.SqliteTemplate | testing.PostgresTemplate, state_dir: Path, frozen_clock: testing.FrozenClock
) -> Iterator[testing.Database]:
    """An empty, migrated database on each backend (2 ms): its ``url``, ``name``, ``open()`` and ``raw()``."""
    with template.shared(state_dir, frozen_clock) as database:
        yield database


@pytest.fixture
def fresh_database(
    template: testing.SqliteTemplate | testing.PostgresTemplate, state_dir: Path, frozen_clock: testing.FrozenClock
) -> Iterator[testing.Database]:
    """Like ``database``, but of the test's own: for processes, locks and migrations (40 to 170 ms on Postgres)."""
    with template.fresh(state_dir, frozen_clock) as database:
        yield database


@pytest.fixture
def every_backend(database: testing.Database) -> lastlight_state.StateStore:
    """A store on each backend."""
    return database.open()


@pytest.fixture(params=("sync", "async"))
def store(request: pytest.FixtureRequest, database: testing.Database) -> Iterator[lastlight_state.StateStore]:
    """A store on each backend, once itself and once through its async face."""
    opened = database.open()
    if request.param == "sync":
        yield opened
        return
    with testing.blocking_store(opened) as blocking:
        yield blocking


@pytest.fixture
def state_store(
    state_dir: Path, frozen_clock: testing.FrozenClock, sqlite_template: testing.SqliteTemplate
) -> Iterator[lastlight_state.StateStore]:
    """A store on a SQLite file of the test's own (3 ms)."""
    with sqlite_template.fresh(state_dir, frozen_clock) as database:
        yield database.open()


@pytest.fixture
def async_state_store(state_store: lastlight_state.StateStore) -> lastlight_state.AsyncStateStore:
    """The same from coroutines; it serves whichever event loop the test runs."""
    return lastlight_state.AsyncStateStore(state_store)
