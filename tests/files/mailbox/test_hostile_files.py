"""Files of an agent that lies: none shows another session, stops its host, or holds up the other sessions."""

from __future__ import annotations

import os
import sqlite3
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from support.each import with_each
from support.endless import endless
from support.mailbox.files import inbound, outbound, reply, sql
from support.preloaded import run_program

from lastlight_state.backends.sqlite import locked_reads
from lastlight_state.errors import BackendBusy, BackendUnavailable, CorruptData, StateError
from lastlight_state.files.mailbox import AgentMailbox, HostMailbox, Mailboxes
from lastlight_state.files.mailbox.shared.pair import _MESSAGES
from lastlight_state.files.mailbox.shared.queries import OtherSide
from lastlight_state.settings import Settings

ENDLESS = "WITH RECURSIVE x(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM x)"


def view(file: Path, table: str = "messages_out") -> None:
    """Replace a table by a view with its columns over a query without end."""
    columns = [row[1] for row in sql(file, f"PRAGMA table_info({table})")]
    sql(file, f"DROP TABLE {table}")
    sql(file, f"CREATE VIEW {table} AS {ENDLESS} SELECT {', '.join(f'n AS {name}' for name in columns)} FROM x")


def acks(file: Path) -> None:
    """The same of acknowledgements."""
    view(file, "processing_ack")


def trigger(file: Path) -> None:
    """A trigger."""
    sql(file, "CREATE TRIGGER t AFTER INSERT ON messages_out BEGIN DELETE FROM messages_out; END")


def computed(file: Path) -> None:
    """A column that is computed whenever it is read."""
    sql(file, "ALTER TABLE messages_out ADD COLUMN more AS (hex(zeroblob(1000000)))")


def link(file: Path) -> None:
    """A link to the file of another session."""
    file.unlink()
    file.symlink_to(file.parent.parent / "good" / file.name)


def fifo(file: Path) -> None:
    """A FIFO, at which whoever opens it waits."""
    file.unlink()
    os.mkfifo(file)


def journal(file: Path) -> None:
    """A FIFO in place of the journal."""
    os.mkfifo(f"{file}-journal")


def folder(file: Path) -> None:
    """A directory."""
    file.unlink()
    file.mkdir()


def log(file: Path) -> None:
    """A FIFO in place of a write-ahead log."""
    os.mkfifo(f"{file}-wal")


def deep(file: Path) -> None:
    """An expression deeper than any that a table of ours has."""
    sql(file, f"CREATE TABLE deep (x CHECK (x{' + 1' * 400}))")


def text(file: Path) -> None:
    """A file that is no database."""
    file.write_bytes(b"no database" * 1000)


HOSTILE = [view, acks, trigger, computed, link, fifo, journal, log, folder, deep, text]


#: What one look at the other side's file may take in these tests, and a call with all its work on a busy machine.
SHORT, MOST_SECONDS = Settings(busy_timeout=0.2, retry_seconds=0.2), 10.0


@with_each("lie", HOSTILE)
def test_a_hostile_file_is_reported_and_the_other_sessions_are_swept(
    tmp_path: Path, lie: Callable[[Path], None]
) -> None:
    """mailbox MB-53, MB-66."""
    mailboxes = Mailboxes(tmp_path, settings=SHORT)
    good, bad = mailboxes.create("group", "good"), mailboxes.create("group", "bad")
    reply(mailboxes.agent("group", "good"), text="secret")
    lie(outbound(bad))
    calls: list[Callable[[], object]] = [bad.outbox.list_waiting, bad.outbox.take_due, bad.sweep.sync, bad.status]
    calls.append(lambda: mailboxes.prune("group", "bad"))
    for call in calls:
        began = time.monotonic()
        with pytest.raises(StateError):
            call()
        assert time.monotonic() - began < MOST_SECONDS
    swept = mailboxes.sweep([("group", "bad"), ("group", "good")], lambda *_: None)
    assert [bool(report.errors) for report in swept] == [True, False]
    assert [message.kind for message in good.outbox.list_waiting().items] == ["chat"]


def test_a_table_without_end_takes_no_call_longer_than_its_share(tmp_path: Path) -> None:
    """mailbox MB-66: also where all rows are counted."""
    mailboxes = Mailboxes(tmp_path, settings=SHORT)
    bad = mailboxes.create("group", "bad")
    endless(outbound(bad), "messages_out")
    for call in (bad.outbox.list_waiting, bad.sweep.sync, bad.status, bad.verify):
        began = time.monotonic()
        with suppress(StateError):
            call()
        assert time.monotonic() - began < MOST_SECONDS
    with pytest.raises(BackendUnavailable, match="longer to read than a unit may take"):
        mailboxes.prune("group", "bad")


def test_a_view_in_the_hosts_own_file_is_refused(host: HostMailbox) -> None:
    """mailbox MB-66: whoever may write the folder may have replaced it."""
    view(inbound(host), "messages_in")
    with pytest.raises((CorruptData, BackendUnavailable)):
        host.inbox.list()


def test_a_file_that_is_swapped_for_a_link_shows_no_other_session(mailboxes: Mailboxes) -> None:
    """mailbox MB-66: however often, between any two steps of opening it."""
    mailboxes.create("group", "good")
    bad = mailboxes.create("group", "bad")
    reply(mailboxes.agent("group", "good"), text="secret")
    file, over = outbound(bad), threading.Event()
    kept, linked = file.with_name("kept"), file.with_name("linked")
    os.link(file, kept)

    def swap() -> None:
        while not over.is_set():
            linked.symlink_to(mailboxes.root / "group" / "good" / file.name)
            linked.replace(file)
            os.link(kept, linked)
            linked.replace(file)

    swapping = threading.Thread(target=swap)
    swapping.start()
    try:
        for _ in range(150):
            try:
                assert bad.outbox.list_waiting().items == ()
            except (BackendBusy, BackendUnavailable, StateError):
                continue
    finally:
        over.set()
        swapping.join()


@pytest.mark.parametrize("suffix", ["-journal", "-wal", "-shm"])
def test_a_fifo_that_comes_after_the_look_keeps_nobody_waiting(
    host: HostMailbox, monkeypatch: pytest.MonkeyPatch, suffix: str
) -> None:
    """mailbox MB-106: SQLite opens nothing beside the file of the other side."""
    looked, beside = locked_reads._is_left, Path(f"{outbound(host)}{suffix}")

    def swapped(*given: Any) -> bool:
        found = looked(*given)
        os.mkfifo(beside)
        return found

    monkeypatch.setattr(locked_reads, "_is_left", swapped)
    assert host.outbox.list_waiting().items == ()
    assert beside.is_fifo()


def test_a_reader_holds_the_other_sides_file_and_lets_it_go(host: HostMailbox, agent: AgentMailbox) -> None:
    """mailbox MB-107: while it looks no writer commits, also of this process, and afterwards one does."""
    writer = sqlite3.connect(outbound(host), isolation_level=None, timeout=0)

    def write(look: OtherSide) -> int:
        before = look.rows(_MESSAGES[1])
        writer.execute("BEGIN IMMEDIATE")
        writer.execute("DELETE FROM messages_out")
        with pytest.raises(sqlite3.OperationalError, match="locked"):
            writer.execute("COMMIT")
        assert look.rows(_MESSAGES[1]) == before
        writer.execute("ROLLBACK")
        return int(before[0][0])

    reply(agent, "m-1")
    assert host._pair.other.look(write) == 1
    writer.execute("DELETE FROM messages_out")
    writer.close()
    assert host.outbox.list_waiting().items == ()


#: Commits to a write-ahead log, and brings it into the file.
LOGGED = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("UPDATE session_state SET value = replace(value, 'a', 'b')")
print(connection.execute("PRAGMA wal_checkpoint").fetchone())
"""


def test_a_look_at_a_file_with_a_log_sees_one_commit(host: HostMailbox) -> None:
    """mailbox MB-107: its writers wait for no reader, also while the log is empty."""
    sql(outbound(host), f"{ENDLESS} INSERT INTO session_state SELECT n, printf('%.3000c', 'a'), '' FROM x LIMIT 200")
    sql(outbound(host), "PRAGMA journal_mode = WAL")

    def letters(look: OtherSide, where: str) -> list[tuple[str, int]]:
        asked = f"SELECT substr(value, 1, 1), count(*) FROM session_state WHERE {where} GROUP BY 1"
        found: list[tuple[str, int]] = look._unit.driver.execute(asked).fetchall()
        return found

    def work(look: OtherSide) -> list[list[tuple[str, int]]]:
        before = letters(look, "key < '15'")
        run_program([sys.executable, "-c", LOGGED, str(outbound(host))], check=True, capture_output=True)
        return [before, letters(look, "true")]

    assert host._pair.other.look(work)[1] == [("a", 200)]
    assert host._pair.other.look(lambda look: letters(look, "true")) == [("b", 200)]
    assert host.metrics.mailbox_copies == 2


def test_a_look_sees_whole_commits_while_the_file_grows(host: HostMailbox, agent: AgentMailbox) -> None:
    """mailbox MB-107: the pages are counted under the lock."""
    over, sizes = threading.Event(), []

    def write() -> None:
        for _ in range(60):
            reply(agent, text="x" * 20_000)
        over.set()

    writing = threading.Thread(target=write)
    writing.start()
    while not over.is_set():
        sizes.append(len(host.outbox.list_waiting(limit=500).items))
    writing.join()
    assert sizes == sorted(sizes)
    assert len(host.outbox.list_waiting(limit=500).items) == 60
