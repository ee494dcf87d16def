"""A log for each test."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.agent_log.logs import agent_log

from lastlight_state.agent_log import AgentLog


@pytest.fixture
def log(tmp_path: Path) -> AgentLog:
    return agent_log(tmp_path)
