"""The lock files of run logs."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from lastlight_state.errors import BackendBusy
from lastlight_state.run_log import locks


def test_a_lock_that_others_make_and_remove_ends_in_its_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """house H-77: the time is counted once, and not anew for each file."""
    monkeypatch.setattr(locks, "_names", lambda *_: False)
    began = time.monotonic()
    with pytest.raises(BackendBusy, match="made and removed"):
        locks.acquire(tmp_path / "a.lock", 0.2)
    assert time.monotonic() - began < 10
