"""The SDK's own tests of its sessions, with ours in the place of its classes."""

from __future__ import annotations

from pathlib import Path

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
    passed=248,
    listed="openai_agents_private.txt",
)


def test_all_tests_pass_but_those_of_private_parts(database: Database, tmp_path: Path) -> None:
    """integrations AD-10: a listed test that passes fails this one."""
    judge(SUITE, database, tmp_path)
