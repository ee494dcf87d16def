"""What a call costs by counts, and files whose times a later commit is sure to change."""

from __future__ import annotations

import os
import sqlite3
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from support.mailbox.files import inbound, outbound

from lastlight_state import clock
from lastlight_state.backends.sqlite import unchanged
from lastlight_state.files.mailbox import AgentMailbox, HostMailbox

#: Of Linux; Python has no name for it.
_REALTIME_COARSE = 5
#: A message of the agent, as the original writes it.
INSERT = (
    "INSERT INTO messages_out (id, seq, timestamp, kind, platform_id, channel_type, content)"
    " VALUES ('m-1', 1, '2026-01-01 00:00:00', 'chat', 'C1', 'slack', '{}')"
)


class Costs(NamedTuple):
    """How often a call opens a database, runs a statement, and calls a function that is written in Python."""

    openings: int
    statements: int
    calls: int


def costs(call: Callable[[], object]) -> Costs:
    """Return what a call costs."""
    opened = ran = called = 0

    def hear(_: object, event: str, function: Any) -> None:
        nonlocal opened, ran, called
        if event == "call":
            called += 1
        elif event == "c_call":
            opened += function is sqlite3.connect
            ran += getattr(function, "__name__", "") == "execute"

    sys.setprofile(hear)
    try:
        call()
    finally:
        sys.setprofile(None)
    return Costs(opened, ran, called)


def openings(call: Callable[[], object]) -> int:
    """Return how often a call opens a database."""
    return costs(call).openings


def coarse() -> int:
    """The clock from which Linux takes the times of files, in nanoseconds."""
    return time.clock_gettime_ns(_REALTIME_COARSE)


def tell_by_coarse_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take files for settled as soon as their clock has gone on, instead of seconds later."""
    monkeypatch.setattr(unchanged, "_SETTLED_NS", 0)
    monkeypatch.setattr(clock, "nanoseconds", coarse)


def settle(*paths: Path) -> None:
    """Return once the clock of these files has gone on since their last change: some milliseconds."""
    found = [path.lstat() for path in paths]
    last = max(max(one.st_mtime_ns, one.st_ctime_ns) for one in found)
    while coarse() <= last:
        pass


def stamps(folder: Path) -> tuple[unchanged.Stamp, ...] | None:
    """Return what both files of a mailbox are like."""
    return unchanged.stamps_of(folder, ("inbound.db", "outbound.db"))


def touch(path: Path, size: int, written: int) -> None:
    """Fail unless a file has this size and this time of writing; it has, once that time is set."""
    os.utime(path, ns=(written, written))
    assert (path.stat().st_size, path.stat().st_mtime_ns) == (size, written)


def at_rest(mailbox: HostMailbox | AgentMailbox) -> None:
    """Wait until any later change of its files changes their times."""
    settle(inbound(mailbox), outbound(mailbox))


def drained(host: HostMailbox) -> int:
    """Return how many messages a drain sends."""
    return host.outbox.drain(lambda due: due.message.id).delivered
