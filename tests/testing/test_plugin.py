import threading

import pytest

from lastlight_state import StateStore
from lastlight_state.testing import blocking_store

NO_SERVER = {"LASTLIGHT_TEST_POSTGRES": "url", "LASTLIGHT_TEST_POSTGRES_URL": ""}

NEEDS_NOTHING = """
def test_files_only(lastlight_state_dir):
    assert list(lastlight_state_dir.iterdir()) == []
    assert lastlight_state_dir.stat().st_mode & 0o777 == 0o700
"""

NEEDS_POSTGRES = """
import pytest
from lastlight_state.testing.postgres import connect

@pytest.mark.parametrize("number", range(4))
def test_database(lastlight_postgres_url, number):
    with connect(lastlight_postgres_url) as connection:
        folder = connection.execute("SHOW data_directory").fetchone()[0]
        connection.execute("CREATE TABLE mine (n int)")
    print("served from", folder)
"""

AT_START = """
[pytest]
filterwarnings = error
lastlight_postgres_at_start = true
"""

ON_DEMAND = """
[pytest]
filterwarnings = error
"""


@pytest.fixture
def no_server(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in NO_SERVER.items():
        monkeypatch.setenv(name, value)


@pytest.mark.slow
@pytest.mark.usefixtures("no_server")
def test_tests_that_ask_for_no_server_start_none(pytester: pytest.Pytester) -> None:
    pytester.makeini(ON_DEMAND)
    pytester.makepyfile(NEEDS_NOTHING)
    pytester.runpytest_subprocess().assert_outcomes(passed=1)


@pytest.mark.slow
@pytest.mark.usefixtures("no_server")
def test_a_test_without_its_server_fails_with_the_reasons(pytester: pytest.Pytester) -> None:
    pytester.makeini(ON_DEMAND)
    pytester.makepyfile(NEEDS_POSTGRES)
    result = pytester.runpytest_subprocess()
    result.assert_outcomes(errors=4)
    result.stdout.fnmatch_lines(["*no PostgreSQL for the tests:", "*url: LASTLIGHT_TEST_POSTGRES_URL is not set"])


def served_from(result: pytest.RunResult) -> set[str]:
    return {line for line in result.outlines if line.startswith("served from")}


@pytest.mark.slow
def test_on_demand_one_server_is_started_for_all_tests(pytester: pytest.Pytester) -> None:
    pytester.makeini(ON_DEMAND)
    pytester.makepyfile(NEEDS_POSTGRES)
    result = pytester.runpytest_subprocess("-rP")
    result.assert_outcomes(passed=4)
    assert len(served_from(result)) == 1


@pytest.mark.slow
def test_at_start_all_workers_share_the_server_that_the_header_names(pytester: pytest.Pytester) -> None:
    pytester.makeini(AT_START)
    pytester.makepyfile(NEEDS_POSTGRES)
    result = pytester.runpytest_subprocess("-rP", "-n2")
    result.assert_outcomes(passed=4)
    result.stdout.fnmatch_lines(["postgres: PostgreSQL *"])
    assert len(served_from(result)) == 1


@pytest.mark.slow
@pytest.mark.usefixtures("no_server")
@pytest.mark.parametrize("workers", ["-n0", "-n2"])
def test_at_start_a_run_without_a_server_ends_at_once(pytester: pytest.Pytester, workers: str) -> None:
    pytester.makeini(AT_START)
    pytester.makepyfile(NEEDS_NOTHING)
    result = pytester.runpytest_subprocess(workers)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*no PostgreSQL for the tests:", "*LASTLIGHT_TEST_POSTGRES_URL is not set*"])


@pytest.mark.slow
@pytest.mark.usefixtures("no_server")
def test_collecting_tests_starts_no_server(pytester: pytest.Pytester) -> None:
    pytester.makeini(AT_START)
    pytester.makepyfile(NEEDS_POSTGRES)
    assert pytester.runpytest_subprocess("--collect-only").ret == pytest.ExitCode.OK


def test_a_blocking_store_leaves_no_thread_behind(state_store: StateStore) -> None:
    """The event loop of its own ends with it."""
    with blocking_store(state_store) as blocking:
        blocking.workflows.runs.list()
    assert "test-loop" not in {thread.name for thread in threading.enumerate()}


EVERY_FIXTURE = """
import asyncio

from lastlight_state.workflows import Trigger


def made(store):
    run = store.workflows.runs.create("review", trigger=Trigger("t"), phase="plan")
    assert store.workflows.runs.get(run.id) == run


def test_store(lastlight_store):
    made(lastlight_store)


def test_sqlite(lastlight_sqlite_store, lastlight_clock):
    assert lastlight_sqlite_store.backend.name == "sqlite"
    made(lastlight_sqlite_store)


def test_postgres(lastlight_postgres_store):
    assert lastlight_postgres_store.backend.name == "postgresql"
    made(lastlight_postgres_store)


def test_async(lastlight_async_store):
    assert not asyncio.run(lastlight_async_store.workflows.runs.list()).items


def test_every(lastlight_every_store):
    made(lastlight_every_store)


def test_databases(lastlight_database, lastlight_fresh_database):
    assert lastlight_database.name == lastlight_fresh_database.name
"""

FORGOTTEN = """
def test_mine(store):
    pass
"""

WITH_OWN_TABLES = """
import sqlalchemy
import pytest


@pytest.fixture(scope="session")
def lastlight_migrations():
    def migrations(url):
        engine = sqlalchemy.create_engine(url.replace("postgresql://", "postgresql+psycopg://"))
        with engine.begin() as connection:
            connection.exec_driver_sql("CREATE TABLE notes (run_id TEXT REFERENCES workflow_runs (id))")
        engine.dispose()

    return migrations


@pytest.mark.parametrize("number", range(2))
def test_mine(lastlight_database, number):
    raw = lastlight_database.raw()
    assert raw.execute("SELECT count(*) FROM notes").fetchone()[0] == 0
    raw.execute("INSERT INTO notes VALUES (NULL)")
"""


@pytest.mark.slow
def test_every_fixture_is_called_after_the_library(pytester: pytest.Pytester) -> None:
    """packaging PT-37: on both databases, sync and async."""
    pytester.makeini(ON_DEMAND)
    pytester.makepyfile(EVERY_FIXTURE)
    pytester.runpytest_subprocess().assert_outcomes(passed=12)


@pytest.mark.slow
def test_a_fixture_that_a_service_forgot_is_not_ours(pytester: pytest.Pytester) -> None:
    """packaging PT-37: short names are there where they are asked for alone."""
    pytester.makepyfile(FORGOTTEN)
    pytester.makeini(ON_DEMAND)
    result = pytester.runpytest_subprocess()
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*fixture 'store' not found*"])
    pytester.makeini(f"{ON_DEMAND}lastlight_short_names = true\n")
    pytester.runpytest_subprocess().assert_outcomes(passed=4)


@pytest.mark.slow
def test_templates_have_the_tables_of_a_service(pytester: pytest.Pytester) -> None:
    """packaging PT-38: each test begins with empty ones, on both databases."""
    pytester.makeini(ON_DEMAND)
    pytester.makepyfile(WITH_OWN_TABLES)
    pytester.runpytest_subprocess().assert_outcomes(passed=4)
