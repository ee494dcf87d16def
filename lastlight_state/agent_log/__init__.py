"""The agent's event logs."""

from __future__ import annotations

from pathlib import Path
from typing import Any


class AgentLog:
    """``store.agent_log``"""

    def __init__(self, root: Path, **options: Any) -> None:
        self.root = root
