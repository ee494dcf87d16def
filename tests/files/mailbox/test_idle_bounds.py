"""How long it is believed that nobody changed a mailbox, and of which file systems."""

from __future__ import annotations

import os
import time
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from support.each import with_each
from support.mailbox.files import outbound, sql
from support.mailbox.openings import INSERT, at_rest, drained, openings, stamps, tell_by_coarse_clock

from lastlight_state.backends.sqlite import files
from lastlight_state.files.mailbox import AgentMailbox, HostMailbox, Mailboxes, face


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


def test_of_too_many_mailboxes_the_oldest_is_forgotten(mailboxes: Mailboxes, monkeypatch: pytest.MonkeyPatch) -> None:
    """mailbox MB-108: what was found in the others is kept, and to open one again forgets none."""
    monkeypatch.setattr(face, "_MOST_IDLE", 3)
    names = [("group", f"session-{number}") for number in range(4)]
    for name in names:
        at_rest(mailboxes.create(*name))
    mailboxes.sweep(names[1:], lambda *_: None)
    mailboxes.host(*names[1])
    assert openings(lambda: mailboxes.sweep(names[1:], lambda *_: None)) == 0
    mailboxes.host(*names[0])
    assert openings(lambda: mailboxes.sweep(names[2:], lambda *_: None)) == 0
    assert openings(lambda: mailboxes.sweep(names[1:2], lambda *_: None)) > 0


@with_each("moment", [datetime(9500, 1, 1, tzinfo=UTC), datetime(2020, 1, 1)])  # noqa: DTZ001
def test_an_idle_mailbox_is_swept_by_a_sound_clock_alone(tmp_path: Path, moment: datetime) -> None:
    """mailbox MB-108: a clock that an opened one refuses is refused."""
    clock = SimpleNamespace(now=lambda: datetime(2026, 1, 1, tzinfo=UTC))
    mailboxes = Mailboxes(tmp_path, clock=clock)
    at_rest(mailboxes.create("group", "session"))
    found = [mailboxes.sweep([("group", "session")], lambda *_: None)[0] for _ in range(2)]
    assert [one.errors for one in found] == [(), ()]
    clock.now = lambda: moment
    assert "clock: " in str(mailboxes.sweep([("group", "session")], lambda *_: None)[0].errors)
