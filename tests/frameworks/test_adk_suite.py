"""ADK's own tests of its session services, with ours in the place of the one over a database."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from frameworks.suites import Suite, judge

from lastlight_state.testing import Database

#: A checkout of ADK: what it publishes has no tests.
CHECKOUT = os.environ.get("ADK_CHECKOUT")
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
SUITE = Suite(
    Path(CHECKOUT or ""),
    "replaced_adk",
    ("tests/unittests/sessions/test_session_service.py",),
    passed=20,  # those of 2.0.0
    options=("-oasyncio_mode=auto",),
    environment=(("FRAMEWORKS_ABOUT", json.dumps(ABOUT)),),
    is_pinned=False,
)


@pytest.mark.skipif(CHECKOUT is None, reason="ADK_CHECKOUT names no checkout of ADK")
def test_every_test_of_what_services_answer_passes(database: Database, tmp_path: Path) -> None:
    """integrations AD-40."""
    judge(SUITE, database, tmp_path)
