"""The SDK's own tests of its sessions, with ours in the place of its classes."""

from __future__ import annotations

from pathlib import Path

import pytest
from frameworks.suites import UNPACKED, Suite, judge

from lastlight_state.testing import Database

SUITE = Suite(
    UNPACKED / "openai_agents",
    "replaced_sessions",
    # The tests of whatever a session of SQLite is used for.
    (
        "tests/memory/test_session.py",
        "tests/memory/test_session_limit.py",
        "tests/memory/test_compaction_suffix.py",
        "tests/memory/test_compaction_model_visibility.py",
        "tests/extensions/memory/test_async_sqlite_session.py",
        "tests/extensions/memory/test_encrypt_session.py",
    ),
    passed=250,
    listed="openai_agents_private.txt",
)
#: The tests of runs, and of compaction, that a session takes part in.
RUNS = Suite(
    UNPACKED / "openai_agents",
    "replaced_sessions",
    (
        "tests/memory/test_openai_responses_compaction_session.py",
        "tests/sandbox/test_memory.py",
        "tests/test_agent_runner.py",
        "tests/test_agent_runner_streamed.py",
        "tests/test_max_turns.py",
        "tests/test_native_tool_failure_history.py",
        "tests/test_programmatic_tool_calling.py",
        "tests/test_run_impl_resume_paths.py",
        "tests/test_soft_cancel.py",
        "tests/test_tool_batch_failure_history.py",
        "tests/test_tool_failure_boundaries.py",
    ),
    passed=332,
    listed="openai_agents_private.txt",
    options=("-k", "session"),
)


@pytest.mark.parametrize("suite", [SUITE, RUNS], ids=["sessions", "runs"])
def test_all_tests_pass_but_those_of_private_parts(database: Database, tmp_path: Path, suite: Suite) -> None:
    """integrations AD-10: a listed test that passes fails this one."""
    judge(suite, database, tmp_path)
