"""Salvages that were killed leave nothing that the next one trips over, or that looks whole and is not."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import pytest
from support.maintenance import killed_salvage
from support.preloaded import run_program

from lastlight_state.clock import SYSTEM_CLOCK
from lastlight_state.errors import AlreadyExists, BackendBusy
from lastlight_state.files.jsonl import sections
from lastlight_state.maintenance.upkeep.repair import Repair

LINES = b'{"type":"x","n":1}\n\0\0torn\n{"type":"x","n":2}\n'
CLEAN = b'{"type":"x","n":1}\n{"type":"x","n":2}\n'


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """A damaged line file in a folder of its own."""
    path = tmp_path / "log" / "s-1.jsonl"
    path.parent.mkdir()
    path.write_bytes(LINES)
    return path


def killed(log: Path, *words: str) -> None:
    """A salvage that is killed."""
    done = run_program([sys.executable, killed_salvage.__file__, str(log), *words], check=False, capture_output=True)
    assert done.returncode == -signal.SIGKILL, done.stderr


@pytest.mark.parametrize("where", ["take_tail", "flush"])
def test_a_salvage_that_is_killed_leaves_no_half_copy_under_its_name(log: Path, where: str) -> None:
    """maintenance OP-66, M-101: the same command works, and leaves nothing else."""
    killed(log, where)
    assert not log.with_name("s-1.repaired.jsonl").exists()
    done = Repair([], SYSTEM_CLOCK).salvage(log)
    assert done.copy_path is not None
    assert done.copy_path.read_bytes() == CLEAN
    assert sorted(one.name for one in log.parent.iterdir()) == [
        "s-1.jsonl",
        "s-1.repaired.jsonl",
        "s-1.repaired.jsonl.rejects",
    ]


def test_a_salvage_that_is_killed_when_all_has_names_is_done(log: Path) -> None:
    """maintenance M-101: the next one says that its target is there, and removes the other names."""
    killed(log, "named")
    copy = log.with_name("s-1.repaired.jsonl")
    assert copy.read_bytes() in (CLEAN, b"")  # not brought to disk here
    with pytest.raises(AlreadyExists):
        Repair([], SYSTEM_CLOCK).salvage(log)
    assert sorted(one.name for one in log.parent.iterdir()) == [
        "s-1.jsonl",
        "s-1.repaired.jsonl",
        "s-1.repaired.jsonl.rejects",
    ]


@pytest.mark.parametrize("where", ["take_tail", "flush", "rename"])
def test_a_replacement_that_is_killed_leaves_nothing_behind_the_next_one(log: Path, where: str) -> None:
    """maintenance OP-66, M-101: neither a clean copy nor rejects, nor a second name of the file that is still there."""
    killed(log, where, "replace")
    assert log.read_bytes() == LINES
    done = Repair([], SYSTEM_CLOCK).salvage(log, replace=True)
    assert log.read_bytes() == CLEAN
    assert done.damaged is not None
    damaged = done.damaged.name
    assert sorted(one.name for one in log.parent.iterdir()) == ["s-1.jsonl", damaged, f"{damaged}.rejects"]


def test_a_half_copy_that_somebody_writes_stays(log: Path) -> None:
    """maintenance M-101."""
    half = sections.of(log.with_name("s-1.repaired.jsonl"))
    half.touch()
    with half.open() as file:
        sections.hold(file.fileno())
        with pytest.raises(BackendBusy):
            Repair([], SYSTEM_CLOCK).salvage(log)
    assert half.exists()
