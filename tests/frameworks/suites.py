"""Runs a framework's own tests with ours in the place of its classes, and compares what fails with a list.

`make frameworks` takes the suites from source distributions. A list names the tests that fail, each with its reason;
a test that is listed and passes is as wrong as one that fails and is not listed.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from lastlight_state.testing import Database

HERE = Path(__file__).parent
#: Where the Makefile unpacks source distributions, each in a folder of its project's name.
UNPACKED = Path(sys.prefix) / "suites"


class Suite(NamedTuple):
    """Tests of a framework: where they are, who replaces its classes, and what becomes of them."""

    folder: Path
    #: The plugin of pytest, a module beside this one, that puts ours in the place of the framework's.
    plugin: str
    files: tuple[str, ...]
    #: How many tests pass or skip themselves, each with its parameters; at least so many of a suite without a pin.
    passed: int
    #: The file beside this one that lists the tests that fail, each with its reason.
    listed: str | None = None
    options: tuple[str, ...] = ()
    environment: tuple[tuple[str, str], ...] = ()
    is_pinned: bool = True


def judge(suite: Suite, database: Database, tmp_path: Path) -> None:
    """Run a suite on a database, and fail where other tests fail than those that are listed."""
    listed = {} if suite.listed is None else _listed(suite)
    assert all(listed.values()), "each listed test has its reason"
    found, output = _run(suite, database, tmp_path, [*listed])
    failed = {test for test, outcome in found.items() if outcome == "failed"}
    known = {test for test in found if test in listed or test.partition("[")[0] in listed}
    assert failed - known == set(), f"{sorted(failed - known)} failed and are not listed\n{output}"
    assert known - failed == set(), "these are listed, and do not fail"
    assert listed.keys() <= {*found, *(test.partition("[")[0] for test in found)}, "these are listed, and not there"
    passed = sum(outcome == "passed" for outcome in found.values())
    assert passed == suite.passed or (passed > suite.passed and not suite.is_pinned)


def _listed(suite: Suite) -> dict[str, str]:
    """Return the listed tests of the files of a suite with their reasons."""
    found: dict[str, str] = {}
    path = ""
    for line in (HERE / str(suite.listed)).read_text("utf-8").splitlines():
        if line.startswith("  "):
            name, _, reason = line.strip().partition(": ")
            found[f"{path}::{name}"] = reason
        elif line and not line.startswith("#"):
            path = line
    return {test: reason for test, reason in found.items() if test.startswith(suite.files)}


def _run(suite: Suite, database: Database, tmp_path: Path, listed: list[str]) -> tuple[dict[str, str], str]:
    """Run the files of a suite in a process of their own. Return what became of each test, and what was printed."""
    database.open().close()
    outcomes = tmp_path / "outcomes.json"
    told = {
        "FRAMEWORKS_DATABASE": database.url,
        "FRAMEWORKS_LISTED": json.dumps(listed),
        "FRAMEWORKS_OUTCOMES": str(outcomes),
        "PYTHONPATH": str(HERE),
        **dict(suite.environment),
    }
    plugins = [f"-p{name}" for name in ("no:lastlight_state", "no:cacheprovider", "no:xdist", "outcomes", suite.plugin)]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "--tb=short", *plugins, *suite.options, *suite.files],
        cwd=suite.folder,
        env={**os.environ, **told},
        capture_output=True,
        text=True,
        check=False,
        timeout=870,
    )
    assert outcomes.exists(), done.stdout + done.stderr
    found: dict[str, str] = json.loads(outcomes.read_text())
    return found, done.stdout[-20_000:]
