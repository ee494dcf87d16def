"""Somebody changes files after a call has looked and before it writes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from support.between import before

from lastlight_state.agent_log import raw_files
from lastlight_state.errors import BackendUnavailable

TEXT = "a result\n" * 10_000


def _kept(log: Path) -> dict[str, int]:
    return raw_files.kept(raw_files.directory_of(log))


def test_a_result_that_another_stored_meanwhile_is_one_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """agent-log L-72: raw_files._write renames over a file of equal content."""
    log = tmp_path / "s-1.jsonl"
    happened = before(monkeypatch, os, "rename", lambda: raw_files.keep(log, TEXT, len(TEXT), sync="os"))
    reference = raw_files.keep(log, TEXT, len(TEXT), sync="os")
    assert happened
    assert _kept(log) == {reference["sha256"]: len(TEXT)}
    assert len(list(raw_files.directory_of(log).iterdir())) == 1


def test_a_result_whose_directory_was_removed_meanwhile_is_not_promised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """agent-log L-74: raw_files._write; no reference to a file that is not there."""
    log = tmp_path / "s-1.jsonl"
    directory = raw_files.directory_of(log)

    def remove() -> None:
        for file in directory.iterdir():
            file.unlink()
        directory.rmdir()

    happened = before(monkeypatch, os, "rename", remove)
    with pytest.raises(BackendUnavailable):
        raw_files.keep(log, TEXT, len(TEXT), sync="os")
    assert happened
    assert _kept(log) == {}
