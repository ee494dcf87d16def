"""The pytest plugin that comes with an installed library: databases and directories for tests.

Nothing starts before a test asks for it. With the setting ``lastlight_postgres_at_start = true`` one server is started
before the tests and shared by all xdist workers; otherwise each process that needs a server starts its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from lastlight_state.errors import StateError
from lastlight_state.testing.postgres import ThrowawayPostgres
from lastlight_state.testing.shared import SharedPostgres, shared_server

AT_START = "lastlight_postgres_at_start"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addini(AT_START, "start one Postgres before the tests and share it between all workers", type="bool")


def pytest_configure(config: pytest.Config) -> None:
    if config.getini(AT_START) and not hasattr(config, "workerinput"):
        config.pluginmanager.register(SharedPostgres(), SharedPostgres.__name__)


@pytest.fixture(scope="session")
def postgres_server(request: pytest.FixtureRequest) -> Iterator[ThrowawayPostgres]:
    """A real Postgres server, started once (0.3 to 0.9 s). A machine that has none fails the test with every reason."""
    shared = shared_server(request.config)
    if shared:
        yield shared
        return
    try:
        server = ThrowawayPostgres.start()
    except StateError as error:
        pytest.fail(str(error), pytrace=False)
    with server:
        yield server


@pytest.fixture
def postgres_url(postgres_server: ThrowawayPostgres) -> Iterator[str]:
    """The URL of an empty Postgres database of the test's own, dropped afterwards (50 to 150 ms per test)."""
    with postgres_server.database() as url:
        yield url


@pytest.fixture
def state_dir(tmp_path: Path) -> Path:
    """An empty directory of the test's own, open to nobody else."""
    folder = tmp_path / "state"
    folder.mkdir(mode=0o700)
    return folder
