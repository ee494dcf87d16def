"""Logs that are removed with their folders."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

import pytest
from support.agent_log.logs import SANDBOX, agent_log, put
from support.each import with_each

from lastlight_state.errors import BackendBusy, UnsafePath
from lastlight_state.files.agent_log import repair
from lastlight_state.files.jsonl import files

LINE = '{"type": "user"}\n'


def test_a_log_goes_with_its_folder_or_not_at_all(tmp_path: Path) -> None:
    """agent-log L-121."""
    log = put(agent_log(tmp_path), LINE)
    raw = log.with_suffix("") / "raw"
    raw.mkdir(parents=True)
    (raw / "a.txt").write_text("whole")
    for kept in ("s-1.jsonl", "s-1/raw/a.txt"):
        assert repair.removable_files(log, lambda name, _, kept=kept: name != kept) is None  # type: ignore[misc]
        assert not repair.remove(log, lambda name, _, kept=kept: name != kept)  # type: ignore[misc]
    assert repair.removable_files(log, _any) == {"s-1.jsonl": len(LINE), "s-1/raw/a.txt": 5}
    assert repair.remove(log, _any)
    assert list(log.parent.iterdir()) == []
    assert repair.remove(log, _any)  # again


def test_a_log_whose_directory_is_gone_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """agent-log L-121: a file of that name where the process works is another's."""
    (tmp_path / "s-1.jsonl").write_text(LINE)
    monkeypatch.chdir(tmp_path)
    assert repair.remove(tmp_path / "gone" / "s-1.jsonl", _any)
    assert (tmp_path / "s-1.jsonl").read_text() == LINE


def test_a_writer_of_a_log_that_went_begins_a_new_file(tmp_path: Path) -> None:
    """agent-log L-121: no line of it is lost."""
    logs = agent_log(tmp_path)
    with logs.writer.open(session_id="s-1", place=SANDBOX) as writer:
        writer.append([{"type": "first"}])
        assert writer.path is not None
        assert repair.remove(writer.path, _any)
        writer.append([{"type": "second"}])
        assert writer.path.read_text() == '{"type":"second"}\n'


def test_a_removal_waits_for_a_writer_and_gives_up(tmp_path: Path) -> None:
    """agent-log L-121."""
    log = put(agent_log(tmp_path), LINE)
    with log.open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(BackendBusy):
            repair.remove(log, _any, lock_timeout=0)
    assert log.read_text() == LINE


def test_a_log_stays_where_nobody_can_lock_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """agent-log L-121."""
    log = put(agent_log(tmp_path), LINE)
    monkeypatch.setattr(files, "acquire", lambda *_: False)
    assert not repair.remove(log, _any)
    assert log.exists()


@with_each("place", ["s-1", "s-1/raw", "s-1/raw/a.txt", "s-1.jsonl"])
def test_a_log_with_a_link_in_its_place_or_folder_stays(tmp_path: Path, place: str) -> None:
    """agent-log L-121: what it leads to stays, too."""
    log = put(agent_log(tmp_path), LINE)
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "file.txt").write_text("mine")
    (log.parent / place).parent.mkdir(parents=True, exist_ok=True)
    (log.parent / place).unlink(missing_ok=True)
    (log.parent / place).symlink_to(outside)
    if place == "s-1.jsonl":
        with pytest.raises(UnsafePath):
            repair.remove(log, _any)
    else:
        assert not repair.remove(log, _any)
    assert os.path.lexists(log)
    assert (outside / "file.txt").read_text() == "mine"


def _any(_name: str, _file: int) -> bool:
    return True
