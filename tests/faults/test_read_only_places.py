"""SQLite files on a file system that is mounted read-only."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from lastlight_state import BackendUnavailable, StateStore


@pytest.fixture
def mounted(tmp_path: Path) -> Iterator[Path]:
    """A file that was closed, with nothing beside it, on a read-only mount."""
    with StateStore.open(tmp_path / "service" / "state.db", migrate=True) as store:
        store.states.put("a", 1)
    mount = tmp_path / "mount"
    mount.mkdir()
    bound = subprocess.run(
        ["mount", "--bind", "-o", "ro", tmp_path / "service", mount], check=False, capture_output=True
    )
    if bound.returncode:
        pytest.skip(f"mounting is refused: {bound.stderr.decode()}")
    try:
        yield mount / "state.db"
    finally:
        subprocess.run(["umount", mount], check=True)


def test_a_file_on_a_read_only_mount_is_refused_by_name(mounted: Path) -> None:
    """backends B-192: SQLite cannot put the index of the log beside it; the commands look at it all the same."""
    with pytest.raises(BackendUnavailable, match=r"read-only, let `lastlight-state` look at it"):
        StateStore.open(mounted, read_only=True)
    with pytest.raises(BackendUnavailable, match="Read-only file system"):
        StateStore.open(mounted)
    assert [one.name for one in mounted.parent.iterdir()] == ["state.db"]
