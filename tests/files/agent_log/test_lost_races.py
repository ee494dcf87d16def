"""Somebody changes files after a call has looked and before it writes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from support.agent_log.logs import agent_log, put
from support.between import before

from lastlight_state.errors import BackendUnavailable
from lastlight_state.files.agent_log import raw, repair
from lastlight_state.files.jsonl import files

TEXT = "a result\n" * 10_000
LINE = '{"type": "user"}\n'


def _kept(log: Path) -> dict[str, int]:
    return raw.stored_sizes(raw.directory_of(log))


def test_a_result_that_another_stored_meanwhile_is_one_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """agent-log L-72: raw._write renames over a file of equal content."""
    log = tmp_path / "s-1.jsonl"
    happened = before(monkeypatch, os, "rename", lambda: raw.keep(log, TEXT, len(TEXT), sync="os"))
    reference = raw.keep(log, TEXT, len(TEXT), sync="os")
    assert happened
    assert _kept(log) == {reference["sha256"]: len(TEXT)}
    assert len(list(raw.directory_of(log).iterdir())) == 1


def test_a_result_whose_directory_was_removed_meanwhile_is_not_promised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """agent-log L-74: raw._write; no reference to a file that is not there."""
    log = tmp_path / "s-1.jsonl"
    directory = raw.directory_of(log)

    def remove() -> None:
        for file in directory.iterdir():
            file.unlink()
        directory.rmdir()

    happened = before(monkeypatch, os, "rename", remove)
    with pytest.raises(BackendUnavailable):
        raw.keep(log, TEXT, len(TEXT), sync="os")
    assert happened
    assert _kept(log) == {}


def test_a_log_that_was_replaced_while_its_lock_was_awaited_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """agent-log L-121: repair.remove; somebody repaired it."""
    log = put(agent_log(tmp_path), LINE)

    def acquire(*_: object) -> bool:
        log.rename(log.with_suffix(".old"))
        log.write_text(LINE)
        return True

    monkeypatch.setattr(files, "acquire", acquire)
    assert not repair.remove(log, lambda *_: True)
    assert log.read_text() == LINE


def test_a_log_that_another_removes_while_its_lock_is_awaited_is_not_removed_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """agent-log L-121: repair.remove; whose folder it is now is not known."""
    log = put(agent_log(tmp_path), LINE)
    folder = log.with_suffix("")
    folder.mkdir()
    (folder / "raw.txt").touch()

    def acquire(*_: object) -> bool:
        log.unlink()
        return True

    monkeypatch.setattr(files, "acquire", acquire)
    assert not repair.remove(log, lambda *_: True)
    assert [file.name for file in folder.iterdir()] == ["raw.txt"]


def test_a_file_that_appears_while_its_log_goes_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """agent-log L-121: repair._remove_folder; nobody has judged it."""
    log = put(agent_log(tmp_path), LINE)
    folder = log.with_suffix("") / "raw"
    folder.mkdir(parents=True)
    real = repair._remove_folder

    def late(*given: object) -> None:
        (folder / "late.txt").write_text("new")
        real(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(repair, "_remove_folder", late)
    assert repair.remove(log, lambda *_: True)
    assert ((folder / "late.txt").read_text(), log.exists()) == ("new", False)
