"""Which files a test has left open: what a call opens it closes, also where it fails."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

#: Files of databases belong to stores, which many tests leave to the end of their fixtures.
DATABASES = (".db", "-wal", "-shm", "-journal")
_GONE = " (deleted)"


def open_below(folder: Path) -> list[str]:
    """The files and directories below a folder that this process has open."""
    return [
        target
        for target in targets()
        if target.startswith(f"{folder}/") and not target.removesuffix(_GONE).endswith(DATABASES)
    ]


def unnamed() -> Counter[str]:
    """Files that this process has open and that have no name, or none any more."""
    return Counter(target for target in targets() if target.startswith("/") and target.endswith(_GONE))


def targets() -> list[str]:
    """What the descriptors of this process lead to."""
    found = []
    for entry in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):  # of the listing itself
            found.append(str(entry.readlink()))
    return sorted(found)


@pytest.fixture(autouse=True)
def nothing_is_left_open(tmp_path: Path) -> Iterator[None]:
    """Fail a test after which a file or directory of its own is still open."""
    before = unnamed()
    yield
    left = [*open_below(tmp_path), *(unnamed() - before)]
    assert not left, f"still open: {left}"
