"""How a file whose writer died is copied, and what is said where it cannot be."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.maintenance.left_behind import killed

from lastlight_state.backends.sqlite import private_copies
from lastlight_state.errors import BackendUnavailable
from lastlight_state.testing import SqliteTemplate
from lastlight_state.testing.clock import FrozenClock


@pytest.fixture
def left(sqlite_template: SqliteTemplate, tmp_path: Path, frozen_clock: FrozenClock) -> Iterator[Path]:
    """A file with the journal of a writer that died."""
    with sqlite_template.fresh(tmp_path, frozen_clock) as database:
        file = Path(database.url)
        killed(file, "-journal")
        yield file


def test_of_a_journal_only_the_end_is_read(left: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """mailbox MB-73: it may be as large as the file, and SQLite rolls it back itself."""
    monkeypatch.setattr(Path, "read_bytes", None)
    assert private_copies.taken(left, checked=True).path.exists()


def test_a_copy_that_fails_is_told_with_its_reason(left: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """maintenance OP-16: nobody has changed the file, and nothing is tried again."""
    monkeypatch.setattr(private_copies, "_COPY", "raise OSError(122, 'Disk quota exceeded')")
    with pytest.raises(BackendUnavailable, match=r"cannot be copied to be read: OSError: \[Errno 122\] Disk quota"):
        private_copies.taken(left, checked=False)


def test_what_is_no_file_beside_a_file_is_not_copied(left: Path) -> None:
    """maintenance OP-16: such as a FIFO in place of its log."""
    Path(f"{left}-wal").unlink(missing_ok=True)
    os.mkfifo(f"{left}-wal")
    with pytest.raises(BackendUnavailable, match="what lies beside it is no regular file"):
        private_copies.taken(left, checked=False)
