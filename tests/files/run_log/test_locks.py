"""The lock files of run logs."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from lastlight_state.errors import BackendBusy
from lastlight_state.files.run_log import storage


def test_a_lock_that_others_make_and_remove_ends_in_its_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """house H-77: the time is counted once, and not anew for each file."""
    monkeypatch.setattr(storage, "_names", lambda *_: False)
    began = time.monotonic()
    with pytest.raises(BackendBusy, match="made and removed"):
        storage.acquire(tmp_path / "a.lock", 0.2)
    assert time.monotonic() - began < 10
