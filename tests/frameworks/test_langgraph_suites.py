"""LangGraph's own tests, with our saver and store in the place of the shipped ones."""

from __future__ import annotations

from pathlib import Path

import pytest
from frameworks.suites import UNPACKED, Suite, judge

from lastlight_state.testing import Database

OPTIONS = (("NO_DOCKER", "true"), ("LANGGRAPH_TEST_FAST", "false"))
SUITES = {
    "core": Suite(
        UNPACKED / "langgraph",
        "replaced_langgraph",
        ("tests",),
        passed=1311,  # four of them skip themselves
        listed="langgraph_core_failing.txt",
        options=("-pno:asyncio",),
        environment=OPTIONS,
    ),
    # A part of it that takes a minute or two, for every change: time travel, subgraphs, delta channels, large graphs.
    "travel": Suite(
        UNPACKED / "langgraph",
        "replaced_langgraph",
        (
            "tests/test_time_travel.py",
            "tests/test_time_travel_async.py",
            "tests/test_subgraph_persistence.py",
            "tests/test_subgraph_persistence_async.py",
            "tests/test_interruption.py",
            "tests/test_large_cases.py",
            "tests/test_large_cases_async.py",
            *sorted(f"tests/{one.name}" for one in (UNPACKED / "langgraph/tests").glob("test_delta_channel_[!b]*.py")),
        ),
        passed=713,
        options=("-pno:asyncio",),
        environment=OPTIONS,
    ),
    "prebuilt": Suite(
        UNPACKED / "langgraph_prebuilt", "replaced_langgraph", ("tests",), passed=62, environment=OPTIONS
    ),
    "checkpoint-sqlite": Suite(
        UNPACKED / "langgraph_checkpoint_sqlite",
        "replaced_langgraph",
        ("tests",),
        passed=167,
        listed="checkpoint_sqlite_failing.txt",
    ),
    "checkpoint-postgres": Suite(
        UNPACKED / "langgraph_checkpoint_postgres",
        "replaced_langgraph",
        ("tests",),
        passed=301,
        listed="checkpoint_postgres_failing.txt",
        # It makes 60,000 calls at once, which the shipped store puts together; ours are refused after half a minute.
        options=("--deselect=tests/test_async_store.py::test_large_batches_async",),
    ),
}


@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", SUITES)
def test_all_tests_pass_but_those_that_are_listed(database: Database, tmp_path: Path, name: str) -> None:
    """checkpoints CK-58: a listed test that passes fails this one."""
    judge(SUITES[name], database, tmp_path)
