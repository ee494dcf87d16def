"""A log for each test."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.agent_log.logs import agent_log
from support.open_files import nothing_is_left_open  # noqa: F401 - of every test here

from lastlight_state.files.agent_log import AgentLog


@pytest.fixture
def log(tmp_path: Path) -> AgentLog:
    return agent_log(tmp_path)
