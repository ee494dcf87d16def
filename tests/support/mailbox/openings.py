"""How often SQLite opens a file, and files whose times a later commit is sure to change."""

from __future__ import annotations

import os
import sqlite3
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lastlight_state.backends.sqlite import unchanged

#: Of Linux; Python has no name for it.
_REALTIME_COARSE = 5


def openings(call: Callable[[], object]) -> int:
    """How often a call opens a database."""
    opened = 0

    def hear(_: object, event: str, called: Any) -> None:
        nonlocal opened
        opened += event == "c_call" and called is sqlite3.connect

    sys.setprofile(hear)
    try:
        call()
    finally:
        sys.setprofile(None)
    return opened


def coarse() -> int:
    """The clock from which Linux takes the times of files, in nanoseconds."""
    return time.clock_gettime_ns(_REALTIME_COARSE)


def tell_by_coarse_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take files for settled as soon as their clock has gone on, instead of seconds later."""
    monkeypatch.setattr(unchanged, "_SETTLED_NS", 0)
    monkeypatch.setattr(unchanged, "now", coarse)


def settle(*paths: Path) -> None:
    """Return once the clock of these files has gone on since their last change: some milliseconds."""
    found = [path.lstat() for path in paths]
    last = max(max(one.st_mtime_ns, one.st_ctime_ns) for one in found)
    while coarse() <= last:
        pass


def stamps(folder: Path) -> tuple[unchanged.Stamp, ...] | None:
    """What both files of a mailbox are like."""
    return unchanged.stamps_of(folder, ("inbound.db", "outbound.db"))


def touch(path: Path, size: int, written: int) -> None:
    """Fail unless a file has this size and this time of writing; it has, once that time is set."""
    os.utime(path, ns=(written, written))
    assert (path.stat().st_size, path.stat().st_mtime_ns) == (size, written)
