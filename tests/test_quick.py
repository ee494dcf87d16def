"""Which variants of a test run: in `make quick`, in `make server`, and in the whole suite."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
COLLECT = [sys.executable, "-m", "pytest", "--collect-only", "--quiet", "-p", "no:cacheprovider"]


def collected(*words: str) -> list[str]:
    told = subprocess.run([*COLLECT, *words], cwd=ROOT, capture_output=True, text=True, check=True)
    return [line for line in told.stdout.splitlines() if "::" in line]


@pytest.mark.slow
def test_it_runs_each_test_once_on_sqlite_and_without_coroutines() -> None:
    """packaging PT-32."""
    found = collected("--quick", "tests/workflows/test_overrides.py")
    assert any(name.endswith("[sync-sqlite]") for name in found)
    assert [name for name in found if "postgres" in name or "async" in name] == []


@pytest.mark.slow
def test_it_runs_a_test_that_has_no_other_database() -> None:
    """packaging PT-32."""
    test = "tests/test_store_busy.py::test_a_commit_of_unknown_outcome_is_repeated_only_when_the_writes_are_repeatable"
    assert collected("--quick", test) == [test]


CASES = "tests/journal/scores/test_scores.py::test_what_is_no_score_is_refused"


@pytest.mark.slow
def test_a_test_runs_from_coroutines_on_sqlite_alone_and_once() -> None:
    """house H-131."""
    found = collected(CASES)
    assert sum("async" in name for name in found) == sum("async-sqlite" in name for name in found) == 1
    assert sum("sync-sqlite" in name for name in found) == sum("sync-postgres" in name for name in found) + 1
    assert sum("async" in name for name in collected("--every-face", CASES)) == 2 * sum(
        "[sync-postgres" in name for name in found
    )


@pytest.mark.slow
def test_a_variant_that_is_asked_for_by_its_name_runs() -> None:
    """house H-131."""
    name = collected("--every-face", CASES)[-1]
    assert collected(name) == [name]


@pytest.mark.slow
def test_a_server_is_tried_with_all_that_has_one() -> None:
    """house H-132."""
    found = collected("--on-a-server", "tests/workflows/test_overrides.py")
    assert any("[sync-postgres" in name for name in found)
    assert [name for name in found if "sqlite" in name or "async" in name] == []
