"""What stands in the place of a database file and is none."""

import os
from pathlib import Path

import pytest
from support.each import with_each

from lastlight_state import StateStore
from lastlight_state.errors import BackendUnavailable


@with_each("read_only", [True, False])
def test_a_fifo_in_place_of_the_database_is_refused_and_stops_nobody(tmp_path: Path, *, read_only: bool) -> None:
    """backends B-8."""
    os.mkfifo(tmp_path / "state.db")
    with pytest.raises(BackendUnavailable, match="expected a regular file, found a FIFO"):
        StateStore.open(tmp_path / "state.db", read_only=read_only)


def test_a_file_is_not_said_to_be_unwritable_to_who_only_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """backends B-8."""
    (tmp_path / "state.db").write_bytes(b"this is no database" * 100)
    monkeypatch.setattr(os, "access", lambda _, mode: mode != os.W_OK)
    for read_only, said in ((True, "not a sound SQLite"), (False, "Permission denied")):
        with pytest.raises(BackendUnavailable, match=said):
            StateStore.open(tmp_path / "state.db", read_only=read_only)


def test_a_directory_that_may_not_be_entered_is_an_error_of_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """backends B-8."""

    def refuse(*_: object, **__: object) -> os.stat_result:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "stat", refuse)
    with pytest.raises(BackendUnavailable, match="Permission denied"):
        StateStore.open(tmp_path / "locked" / "state.db")
