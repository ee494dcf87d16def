"""``make affected`` runs the tests that are nearest to what was changed."""

from __future__ import annotations

from support.affected import nearest
from support.each import with_each


@with_each(
    ("file", "expected"),
    [
        ("lastlight_state/workflows/runs/lists.py", "tests/workflows/runs"),
        ("lastlight_state/workflows/overrides.py", "tests/workflows"),
        ("lastlight_state/files/mailbox/host/sweep.py", "tests/files/mailbox"),
        ("lastlight_state/maintenance/copy/transfer.py", "tests/maintenance/copy"),
        ("lastlight_state/cron.py", "tests/test_cron.py"),
        ("tests/support/journal/appenders.py", "tests/journal"),
        ("tests/support/jsonl/lines.py", "tests/files/jsonl"),
        ("tests/test_cron.py", "tests/test_cron.py"),
        ("alembic/versions/0001.py", "tests/migrations"),
        ("docs/concepts.md", "tests/docs"),
    ],
)
def test_a_changed_file_leads_to_the_tests_that_are_named_like_it(file: str, expected: str) -> None:
    assert nearest([file]) == sorted(["tests/architecture", expected])


def test_a_folder_takes_its_files_along() -> None:
    files = ["lastlight_state/workflows/overrides.py", "tests/workflows/test_overrides.py"]
    assert nearest(files) == ["tests/architecture", "tests/workflows"]
