"""``make quick``: the fast way to run one test."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
COLLECT = [sys.executable, "-m", "pytest", "--collect-only", "--quiet", "-p", "no:cacheprovider", "--quick"]


def collected(*words: str) -> list[str]:
    told = subprocess.run([*COLLECT, *words], cwd=ROOT, capture_output=True, text=True, check=True)
    return [line for line in told.stdout.splitlines() if "::" in line]


def test_it_runs_each_test_once_on_sqlite_and_without_coroutines() -> None:
    """packaging PT-32."""
    found = collected("tests/workflows/test_overrides.py")
    assert any(name.endswith("[sync-sqlite]") for name in found)
    assert [name for name in found if "postgres" in name or "async" in name] == []


def test_it_runs_a_test_that_has_no_other_database() -> None:
    """packaging PT-32."""
    test = "tests/test_store_busy.py::test_a_commit_of_unknown_outcome_is_repeated_only_when_the_writes_are_repeatable"
    assert collected(test) == [test]
