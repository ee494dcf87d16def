from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.mark.slow
def test_the_example_runs_and_tells_its_story(tmp_path: Path) -> None:
    """packaging PT-4."""
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    told = subprocess.run(
        [sys.executable, EXAMPLES / "replay.py"], env=environment, capture_output=True, text=True, check=True
    )
    lines = told.stdout.splitlines()
    assert lines[0].endswith("- began")
    assert any("gate post_architect approved" in line for line in lines)
    assert lines[-1].startswith(("user:", "assistant:", "tool:"))
    assert list(tmp_path.iterdir()) == []
