"""The SDK's own tests of its sessions, with ours in the place of its classes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from lastlight_state.testing import Database

HERE = Path(__file__).parent
SDIST = Path(sys.prefix) / "openai-agents"
#: The tests of whatever a session of SQLite is used for.
FILES = (
    "tests/memory/test_session.py",
    "tests/memory/test_session_limit.py",
    "tests/memory/test_compaction_suffix.py",
    "tests/memory/test_compaction_model_visibility.py",
    "tests/extensions/memory/test_async_sqlite_session.py",
    "tests/extensions/memory/test_encrypt_session.py",
)
#: How many of their tests, each with its parameters, pass in the pinned version.
PASSED = 248


def private() -> dict[str, str]:
    """Return the listed tests with their reasons."""
    found: dict[str, str] = {}
    path = ""
    for line in (HERE / "openai_agents_private.txt").read_text("utf-8").splitlines():
        if line.startswith("  "):
            name, _, reason = line.strip().partition(": ")
            found[f"{path}::{name}"] = reason
        elif line and not line.startswith("#"):
            path = line
    return found


def test_all_tests_pass_but_those_of_private_parts(database: Database, tmp_path: Path) -> None:
    """integrations AD-10: a listed test that passes fails this one."""
    listed = private()
    assert all(listed.values())
    database.open().close()
    outcomes = tmp_path / "outcomes.json"
    told = {
        "FRAMEWORKS_DATABASE": database.url,
        "FRAMEWORKS_OUTCOMES": str(outcomes),
        "FRAMEWORKS_PRIVATE": json.dumps([*listed]),
        "PYTHONPATH": str(HERE),
    }
    plugins = [f"-p{name}" for name in ("no:lastlight_state", "no:cacheprovider", "no:xdist", "replaced_sessions")]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "--tb=line", *plugins, *FILES],
        cwd=SDIST,
        env={**os.environ, **told},
        capture_output=True,
        text=True,
        check=False,
        timeout=220,
    )
    assert outcomes.exists(), done.stdout + done.stderr
    found: dict[str, str] = json.loads(outcomes.read_text())
    names = {test.partition("[")[0] for test in found}
    failed = {test for test, outcome in found.items() if outcome == "failed"}
    assert {test for test in failed if test.partition("[")[0] not in listed} == set(), done.stdout
    assert {test for test in found if test.partition("[")[0] in listed and test not in failed} == set()
    assert listed.keys() <= names
    assert sum(outcome == "passed" for outcome in found.values()) == PASSED
