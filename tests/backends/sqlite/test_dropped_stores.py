"""Stores that nobody closes."""

import os
from pathlib import Path

import pytest
from support.garbage import collect
from support.workflows.steps import started

from lastlight_state import StateStore


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_stores_that_are_dropped_leave_no_descriptor(tmp_path: Path) -> None:
    """house H-76: of the file, and of the log that a checkpoint is made of."""

    def drop() -> int:
        started(StateStore.open(tmp_path / "state.db"))
        collect()
        return len(os.listdir("/dev/fd"))  # noqa: PTH208 - names, not paths

    first = drop()
    assert max([drop() for _ in range(5)]) <= first
