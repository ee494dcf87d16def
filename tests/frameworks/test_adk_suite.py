"""ADK's own tests of its session services, with ours in the place of the one over a database."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from lastlight_state.testing import Database

HERE = Path(__file__).parent
#: A checkout of ADK: what it publishes has no tests.
CHECKOUT = os.environ.get("ADK_CHECKOUT")
FILE = "tests/unittests/sessions/test_session_service.py"
#: What every service over a database answers: tests with these parts of a name. Others mock parts of one service.
ABOUT = (
    "[SessionServiceType.DATABASE]",
    "[database]",
    "test_append_event_to_stale_session",
    "test_append_event_concurrent_stale_sessions_reject_stale_writer",
    "test_append_event_allows_timestamp_drift_for_current_session",
    "test_append_event_allows_markerless_current_session",
    "test_append_event_allows_sequential",
)
#: How many there are at least: those of 2.0.0.
FEWEST = 20


@pytest.mark.skipif(CHECKOUT is None, reason="ADK_CHECKOUT names no checkout of ADK")
def test_every_test_of_what_services_answer_passes(database: Database, tmp_path: Path) -> None:
    """integrations AD-40."""
    database.open().close()
    outcomes = tmp_path / "outcomes.json"
    told = {
        "FRAMEWORKS_DATABASE": database.url,
        "FRAMEWORKS_OUTCOMES": str(outcomes),
        "FRAMEWORKS_ABOUT": json.dumps(ABOUT),
        "PYTHONPATH": str(HERE),
    }
    plugins = [f"-p{name}" for name in ("no:lastlight_state", "no:cacheprovider", "no:xdist", "replaced_adk")]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "--tb=short", "-oasyncio_mode=auto", *plugins, FILE],
        cwd=CHECKOUT,
        env={**os.environ, **told},
        capture_output=True,
        text=True,
        check=False,
        timeout=220,
    )
    assert outcomes.exists(), done.stdout + done.stderr
    found: dict[str, str] = json.loads(outcomes.read_text())
    assert {test for test, outcome in found.items() if outcome != "passed"} == set(), done.stdout
    assert len(found) >= FEWEST
