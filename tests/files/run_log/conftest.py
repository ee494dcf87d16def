"""A run log for each test."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.open_files import nothing_is_left_open  # noqa: F401 - of every test here
from support.run_log.logs import run_log

from lastlight_state.files.run_log import RunLog


@pytest.fixture
def log(tmp_path: Path) -> RunLog:
    return run_log(tmp_path)
