"""Which files a test has left open: what a call opens it closes, also where it fails."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

#: Files of databases belong to stores, which many tests leave to the end of their fixtures.
DATABASES = (".db", "-wal", "-shm", "-journal")


def open_below(folder: Path) -> list[str]:
    """The files and directories below a folder that this process has open."""
    found = []
    for entry in Path("/proc/self/fd").iterdir():
        try:
            target = str(entry.readlink())
        except FileNotFoundError:  # of the listing itself
            continue
        if target.startswith(f"{folder}/") and not target.removesuffix(" (deleted)").endswith(DATABASES):
            found.append(target)
    return sorted(found)


@pytest.fixture(autouse=True)
def nothing_is_left_open(tmp_path: Path) -> Iterator[None]:
    """Fail a test after which a file or directory of its own is still open."""
    yield
    left = open_below(tmp_path)
    assert not left, f"still open: {left}"
