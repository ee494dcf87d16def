"""Mailboxes that nobody changes are not opened, and every change is seen by the next call."""

from __future__ import annotations

import os
import shutil
import sqlite3
import sys
from collections.abc import Callable
from contextlib import closing
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from support.each import with_each
from support.mailbox.files import OUTBOUND, inbound, outbound, reply, send, sql
from support.mailbox.openings import INSERT, at_rest, drained, openings, stamps, tell_by_coarse_clock, touch
from support.mailbox.pairs import mailbox_pair
from support.preloaded import run_program

from lastlight_state import clock
from lastlight_state.backends.sqlite import files, unchanged
from lastlight_state.errors import ClaimLost, NestedTransaction, UnsafePath
from lastlight_state.files.mailbox import AgentMailbox, HostMailbox, Mailboxes, StalePolicy
from lastlight_state.files.mailbox.shared import idle
from lastlight_state.testing import FrozenClock

MINUTE = timedelta(minutes=1)
#: Dies in a transaction that has written to the file already.
DYING = """
import os, sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("PRAGMA cache_size = 1")
connection.execute("BEGIN IMMEDIATE")
connection.executemany("INSERT INTO session_state VALUES (?, ?, '')", [(str(n), "x" * 4000) for n in range(200)])
os.kill(os.getpid(), 9)
"""
#: Tries to write a file at once.
LOCKING = """
import sqlite3, sys
try:
    sqlite3.connect(sys.argv[1], timeout=0, isolation_level=None).execute("BEGIN IMMEDIATE")
except sqlite3.OperationalError as error:
    print(error)
"""
#: Tries to commit at once, for which nobody may read.
COMMITTING = LOCKING.replace("BEGIN IMMEDIATE", "INSERT INTO session_state VALUES ('k', 'v', '')")


@pytest.fixture(autouse=True)
def _coarse_clock(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if "by_the_usual_clock" not in request.fixturenames:
        tell_by_coarse_clock(monkeypatch)


@pytest.fixture
def by_the_usual_clock() -> None:
    """Files count as settled seconds after their last change."""


def run(text: str, *arguments: object) -> str:
    """Return what a program prints."""
    return run_program([sys.executable, "-c", text, *map(str, arguments)], check=False, capture_output=True).stdout


def swept(host: HostMailbox) -> Any:
    """Return what a sweep says while the agent runs."""
    return host.sweep.run(agent_started_at=host._pair.clock.now())


def stopped(host: HostMailbox) -> Any:
    """Return what a sweep says while it does not."""
    return host.sweep.run(agent_started_at=None)


@with_each("call", [swept, stopped, drained])
def test_an_idle_mailbox_is_swept_and_drained_without_an_opening(
    tmp_path: Path, frozen_clock: FrozenClock, call: Callable[[HostMailbox], object]
) -> None:
    """mailbox MB-108: after it was asked once."""
    host, agent = mailbox_pair(tmp_path, frozen_clock)
    agent.inbox.complete(send(host).id)
    reply(agent)
    stopped(host)
    drained(host)
    agent.state.put("anything", "else")
    at_rest(host)
    assert openings(lambda: call(host)) == 2
    assert openings(lambda: call(host)) == 0


def test_a_sweep_of_many_opens_none_that_is_idle(mailboxes: Mailboxes, frozen_clock: FrozenClock) -> None:
    """mailbox MB-108: its reports are those of mailboxes that are opened."""
    names = [("group", f"session-{number}") for number in range(5)]
    hosts = [mailboxes.create(*name) for name in names]
    for host in hosts:
        at_rest(host)
    reports = mailboxes.sweep(names, lambda *_: None)
    assert openings(lambda: mailboxes.sweep(names, lambda *_: None)) == 0
    assert mailboxes.sweep(names, lambda *_: None) == reports
    assert Mailboxes(mailboxes.root, clock=frozen_clock).sweep(names, lambda *_: None) == reports
    send(hosts[2])
    found = mailboxes.sweep(names, lambda *_: None)
    assert [one.assessment.action for one in found if one.assessment] == ["ok", "ok", "wake", "ok", "ok"]


def test_a_mailbox_that_is_opened_again_is_not_read_for_that(mailboxes: Mailboxes, host: HostMailbox) -> None:
    """mailbox MB-108: what it lacks was looked for in the same bytes."""
    at_rest(host)
    mailboxes.host("group", "session")
    assert openings(lambda: mailboxes.host("group", "session")) == 0
    sql(inbound(host), "DROP INDEX idx_messages_in_ready")
    assert openings(lambda: mailboxes.host("group", "session")) > 0
    assert sql(inbound(host), "SELECT count(*) FROM sqlite_master WHERE name = 'idx_messages_in_ready'") == [(1,)]


def test_an_empty_poll_opens_nothing(host: HostMailbox, agent: AgentMailbox) -> None:
    """mailbox MB-108: whether it looks or takes."""
    agent.start()
    at_rest(agent)
    for call in (agent.inbox.peek, agent.inbox.take):
        call()
        call()  # the first poll of an agent asks for more than later ones
        assert openings(call) == 0
    send(host)
    assert len(agent.inbox.peek()) == len(agent.inbox.take()) == 1


def test_what_falls_due_is_seen_in_files_that_nobody_changed(
    host: HostMailbox, agent: AgentMailbox, frozen_clock: FrozenClock
) -> None:
    """mailbox MB-109: work, deliveries, and the second try of one that failed."""
    send(host, process_after=frozen_clock.now() + MINUTE)
    reply(agent, "m-1")
    host.outbox.mark_failed("m-1", error="later")
    at_rest(host)
    for _ in range(2):
        found = stopped(host).assessment
        assert (found.due, found.action, drained(host), len(agent.inbox.peek())) == (0, "ok", 0, 0)
    frozen_clock.advance(MINUTE)
    found = stopped(host).assessment
    assert (found.due, found.action, drained(host), len(agent.inbox.peek())) == (1, "wake", 1, 1)


def test_an_agent_that_falls_silent_is_judged_without_its_files(
    host: HostMailbox, agent: AgentMailbox, frozen_clock: FrozenClock
) -> None:
    """mailbox MB-108, MB-51: by the time of its heartbeat and the claims that were read before."""
    started = frozen_clock.now()
    agent.inbox.claim(send(host).id)
    agent.beat()
    at_rest(host)

    def judge(after: timedelta) -> Any:
        frozen_clock.set(started + after)
        return host.sweep.run(agent_started_at=started).assessment

    assert judge(timedelta(seconds=59)).action == "ok"
    assert openings(lambda: judge(timedelta(seconds=60))) == 0
    assert judge(timedelta(seconds=62)).reason == "claim"
    assert openings(lambda: judge(timedelta(minutes=31))) == 0
    assert judge(timedelta(minutes=31)).reason == "silent"
    assert stopped(host).release.released == 1


def test_another_policy_is_another_question(host: HostMailbox) -> None:
    """mailbox MB-108, MB-54"""
    for _ in range(3):
        send(host, trigger=False)
    at_rest(host)
    assert [stopped(host).expired for _ in range(2)] == [0, 0]
    assert host.sweep.run(agent_started_at=None, policy=StalePolicy(max_context=1)).expired == 2


def test_a_folder_without_a_message_is_removed_from_an_idle_mailbox(
    host: HostMailbox, frozen_clock: FrozenClock
) -> None:
    """mailbox MB-109, MB-61: a folder grows old in files that nobody changes."""
    at_rest(host)
    folder = host.folder / "inbox" / "left"
    folder.mkdir(parents=True)
    now = frozen_clock.now().timestamp()
    os.utime(folder, (now, now))
    assert [stopped(host).tidied for _ in range(2)] == [0, 0]
    frozen_clock.advance(timedelta(hours=2))
    assert stopped(host).tidied == 1


def test_a_commit_of_the_same_size_and_time_is_seen(host: HostMailbox) -> None:
    """mailbox MB-109: whoever sets the time of a file changes the time of its last change."""
    file = outbound(host)
    at_rest(host)
    drained(host)
    before = file.stat()
    sql(file, INSERT)
    touch(file, before.st_size, before.st_mtime_ns)
    assert drained(host) == 1


@with_each("replace", [shutil.move, shutil.copy2])
def test_a_file_that_was_restored_is_seen(
    tmp_path: Path, frozen_clock: FrozenClock, replace: Callable[[Path, Path], object]
) -> None:
    """mailbox MB-109: put in place, and written into the file that is there, with its old times."""
    host, agent = mailbox_pair(tmp_path, frozen_clock)
    reply(agent)
    kept, file = outbound(host).with_name("kept"), outbound(host)
    shutil.copy2(file, kept)
    sql(file, "DELETE FROM messages_out")
    at_rest(host)
    drained(host)
    assert openings(lambda: drained(host)) == 0
    replace(kept, file)
    assert drained(host) == 1


def test_within_the_grain_of_the_clock_nothing_is_noted(
    host: HostMailbox, agent: AgentMailbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    """mailbox MB-109: a file that was just written may be written again with the same times."""
    drained(host)
    agent.state.put("anything", "else")
    last = max(outbound(host).stat().st_mtime_ns, inbound(host).stat().st_ctime_ns)
    monkeypatch.setattr(clock, "nanoseconds", lambda: last)
    assert [openings(lambda: drained(host)) > 0 for _ in range(3)] == [True] * 3


def test_a_file_is_settled_after_seconds(host: HostMailbox, by_the_usual_clock: None) -> None:
    """mailbox MB-109: longer than the clock of any file system stands still."""
    found = stamps(host.folder)
    assert found is not None
    last = max(max(stamp.written_at, stamp.changed_at) for stamp in found)
    assert [unchanged.are_settled(found, last + seconds * 10**9) for seconds in (-5, 0, 2, 4)] == [*[False] * 3, True]


@with_each("suffix", ["-journal", "-wal"])
@with_each("name", ["inbound.db", "outbound.db"])
def test_a_file_with_a_journal_or_log_is_opened(
    tmp_path: Path, frozen_clock: FrozenClock, suffix: str, name: str
) -> None:
    """mailbox MB-109: what lies in it belongs to the file, while it is written and after its writer died."""
    host, _ = mailbox_pair(tmp_path, frozen_clock)
    beside = Path(f"{host.folder / name}{suffix}")
    beside.write_bytes(b"\xd9\xd5\x05\xf9 \xa1c\xd7")
    assert stamps(host.folder) is None
    beside.write_bytes(b"")  # as a journal is left that is cut short
    assert stamps(host.folder) is not None


def test_what_a_dead_writer_left_is_seen(host: HostMailbox, agent: AgentMailbox) -> None:
    """mailbox MB-109, MB-73: a hot journal makes an older state of the file the true one."""
    at_rest(host)
    drained(host)
    assert openings(lambda: drained(host)) == 0
    run(DYING, outbound(host))
    assert Path(f"{outbound(host)}-journal").stat().st_size > 0
    assert openings(lambda: drained(host)) > 0
    assert host.metrics.mailbox_copies == 1
    reply(agent)
    assert drained(host) == 1


def test_now_and_then_an_idle_mailbox_is_opened_all_the_same(host: HostMailbox) -> None:
    """mailbox MB-110"""
    at_rest(host)
    drained(host)
    found = [openings(lambda: drained(host)) > 0 for _ in range(2 * idle.MOST_ANSWERS + 2)]
    assert found == [*[False] * idle.MOST_ANSWERS, True] * 2


@pytest.mark.parametrize("tells", [True, False])
def test_a_look_drops_no_lock_of_this_process(
    host: HostMailbox, monkeypatch: pytest.MonkeyPatch, *, tells: bool
) -> None:
    """mailbox MB-111: to close a descriptor of a file drops all locks that the process has on it."""
    monkeypatch.setattr(files, "tells_changes", lambda _: tells)
    at_rest(host)
    drained(host)
    writer = sqlite3.connect(outbound(host), isolation_level=None)
    writer.execute("BEGIN IMMEDIATE")
    drained(host)
    assert "locked" in run(LOCKING, outbound(host))
    writer.execute(INSERT)
    writer.execute("COMMIT")
    writer.close()
    assert drained(host) == 1


def test_a_link_in_the_place_of_an_idle_mailbox_is_refused(mailboxes: Mailboxes, host: HostMailbox) -> None:
    """mailbox MB-02: the look at its files follows none."""
    mailboxes.create("group", "good")
    at_rest(host)
    names = [("group", "session")]
    mailboxes.sweep(names, lambda *_: None)
    assert openings(lambda: mailboxes.sweep(names, lambda *_: None)) == 0
    host.folder.rename(host.folder.with_name("kept"))
    host.folder.symlink_to(host.folder.with_name("kept"))
    assert "must not be a symbolic link" in str(mailboxes.sweep(names, lambda *_: None)[0].errors)
    with pytest.raises(UnsafePath):
        mailboxes.host("group", "session")


def test_an_idle_poll_of_a_replaced_agent_is_refused(
    host: HostMailbox, agent: AgentMailbox, mailboxes: Mailboxes
) -> None:
    """mailbox MB-45, MB-108: the life of its successor stands in the file."""
    agent.start()
    agent.inbox.take()
    at_rest(agent)
    agent.inbox.take()
    assert openings(agent.inbox.take) == 0
    mailboxes.agent("group", "session").start()
    with pytest.raises(ClaimLost):
        agent.inbox.take()


def test_an_agent_whose_file_became_one_of_the_original_is_replaced(host: HostMailbox, agent: AgentMailbox) -> None:
    """mailbox MB-45: a restored file of another program has no life of an agent in it."""
    agent.start()
    agent.inbox.take()
    original = host.folder / "original.db"
    with closing(sqlite3.connect(original)) as made:
        made.executescript(OUTBOUND)
    outbound(agent).write_bytes(original.read_bytes())
    for call in (agent.inbox.take, partial(agent.state.put, "key", "value")):
        with pytest.raises(ClaimLost):
            call()


def test_in_a_transaction_nothing_is_told_from_the_stamps(host: HostMailbox, agent: AgentMailbox) -> None:
    """mailbox MB-108: what is not committed has changed no file, and calls beside the block are refused."""
    message = send(host)
    at_rest(agent)
    with agent.transaction() as together:
        assert len(together.inbox.take()) == 1
        assert len(together.inbox.take()) == 0
        together.inbox.release(message.id)
        assert len(together.inbox.take()) == 1
        with pytest.raises(NestedTransaction):
            agent.inbox.take()
        together.inbox.complete(message.id)
    at_rest(agent)
    agent.inbox.peek()
    assert openings(agent.inbox.peek) == 0
    with agent.transaction(), pytest.raises(NestedTransaction):
        agent.inbox.peek()
