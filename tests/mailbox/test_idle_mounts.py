"""What tells that nobody changed a mailbox where the system may know an old state of its files."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest
from support.mailbox.files import outbound, sql
from support.mailbox.openings import INSERT, at_rest, drained, openings, stamps, tell_by_coarse_clock

from lastlight_state.backends.sqlite import files
from lastlight_state.files.mailbox import AgentMailbox, HostMailbox


@pytest.fixture(autouse=True)
def _coarse_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    tell_by_coarse_clock(monkeypatch)


def test_where_a_stat_lies_the_counter_of_commits_is_read(
    host: HostMailbox, agent: AgentMailbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    """mailbox MB-110: as a network or the mount of a virtual machine may; no statement runs for that."""
    at_rest(host)
    first: dict[str, os.stat_result] = {}
    true = os.stat

    def stat(path: Any, *given: Any, **named: Any) -> os.stat_result:
        found = true(path, *given, **named)
        is_database = "dir_fd" in named and path in ("inbound.db", "outbound.db")
        return first.setdefault(path, found) if is_database else found

    monkeypatch.setattr(os, "stat", stat)
    monkeypatch.setattr(files, "tells_changes", lambda _: False)
    drained(host)
    assert openings(lambda: drained(host)) == 2  # of each file its header
    first_stamps = stamps(host.folder)
    sql(outbound(host), INSERT)
    later = stamps(host.folder)
    assert first_stamps is not None
    assert later is not None
    assert [stamp._replace(counter=b"") for stamp in later] == [one._replace(counter=b"") for one in first_stamps]
    assert later != first_stamps
    assert drained(host) == 1


def test_where_a_stat_lies_a_file_with_a_log_is_opened(host: HostMailbox, monkeypatch: pytest.MonkeyPatch) -> None:
    """mailbox MB-110: a commit to a log does not raise the counter of commits."""
    monkeypatch.setattr(files, "tells_changes", lambda _: False)
    assert stamps(host.folder) is not None
    sql(outbound(host), "PRAGMA journal_mode = WAL")
    assert not Path(f"{outbound(host)}-wal").exists()
    assert stamps(host.folder) is None


@pytest.mark.parametrize(("tells", "seconds"), [(True, 1200), (False, 60)])
def test_an_answer_grows_old(host: HostMailbox, monkeypatch: pytest.MonkeyPatch, *, tells: bool, seconds: int) -> None:
    """mailbox MB-110: however seldom somebody asks."""
    now = 0.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    monkeypatch.setattr(files, "tells_changes", lambda _: tells)
    at_rest(host)
    drained(host)
    now = seconds - 1.0
    known = openings(lambda: drained(host))
    now = float(seconds)
    assert openings(lambda: drained(host)) > known == (0 if tells else 2)
