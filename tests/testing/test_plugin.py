import threading

import pytest

from lastlight_state import StateStore
from lastlight_state.testing import blocking_store

NO_SERVER = {"LASTLIGHT_TEST_POSTGRES": "url", "LASTLIGHT_TEST_POSTGRES_URL": ""}

NEEDS_NOTHING = """
def test_files_only(state_dir):
    assert list(state_dir.iterdir()) == []
    assert state_dir.stat().st_mode & 0o777 == 0o700
"""

NEEDS_POSTGRES = """
import pytest
from lastlight_state.testing.postgres import connect

@pytest.mark.parametrize("number", range(4))
def test_database(postgres_url, number):
    with connect(postgres_url) as connection:
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


@pytest.mark.usefixtures("no_server")
def test_tests_that_ask_for_no_server_start_none(pytester: pytest.Pytester) -> None:
    pytester.makeini(ON_DEMAND)
    pytester.makepyfile(NEEDS_NOTHING)
    pytester.runpytest_subprocess().assert_outcomes(passed=1)


@pytest.mark.usefixtures("no_server")
def test_a_test_without_its_server_fails_with_the_reasons(pytester: pytest.Pytester) -> None:
    pytester.makeini(ON_DEMAND)
    pytester.makepyfile(NEEDS_POSTGRES)
    result = pytester.runpytest_subprocess()
    result.assert_outcomes(errors=4)
    result.stdout.fnmatch_lines(["*no PostgreSQL for the tests:", "*url: LASTLIGHT_TEST_POSTGRES_URL is not set"])


def served_from(result: pytest.RunResult) -> set[str]:
    return {line for line in result.outlines if line.startswith("served from")}


def test_on_demand_one_server_is_started_for_all_tests(pytester: pytest.Pytester) -> None:
    pytester.makeini(ON_DEMAND)
    pytester.makepyfile(NEEDS_POSTGRES)
    result = pytester.runpytest_subprocess("-rP")
    result.assert_outcomes(passed=4)
    assert len(served_from(result)) == 1


def test_at_start_all_workers_share_the_server_that_the_header_names(pytester: pytest.Pytester) -> None:
    pytester.makeini(AT_START)
    pytester.makepyfile(NEEDS_POSTGRES)
    result = pytester.runpytest_subprocess("-rP", "-n2")
    result.assert_outcomes(passed=4)
    result.stdout.fnmatch_lines(["postgres: PostgreSQL *"])
    assert len(served_from(result)) == 1


@pytest.mark.usefixtures("no_server")
@pytest.mark.parametrize("workers", ["-n0", "-n2"])
def test_at_start_a_run_without_a_server_ends_at_once(pytester: pytest.Pytester, workers: str) -> None:
    pytester.makeini(AT_START)
    pytester.makepyfile(NEEDS_NOTHING)
    result = pytester.runpytest_subprocess(workers)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*no PostgreSQL for the tests:", "*LASTLIGHT_TEST_POSTGRES_URL is not set*"])


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
