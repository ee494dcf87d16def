"""Files of an agent that lies: none shows another session, stops its host, or holds up the other sessions."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from support.mailbox.files import inbound, outbound, reply, sql

from lastlight_state.errors import BackendBusy, BackendUnavailable, CorruptData, StateError
from lastlight_state.mailbox import HostMailbox, Mailboxes

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


HOSTILE = [view, acks, trigger, computed, link, fifo, journal, folder]


@pytest.mark.parametrize("lie", HOSTILE)
def test_a_hostile_file_is_reported_and_the_other_sessions_are_swept(
    mailboxes: Mailboxes, lie: Callable[[Path], None]
) -> None:
    """mailbox MB-53, MB-66."""
    good, bad = mailboxes.create("group", "good"), mailboxes.create("group", "bad")
    reply(mailboxes.agent("group", "good"), text="secret")
    lie(outbound(bad))
    calls: list[Callable[[], object]] = [bad.outbox.list_waiting, bad.outbox.take_due, bad.sweep.sync, bad.status]
    for call in calls:
        with pytest.raises(StateError):
            call()
    swept = mailboxes.sweep([("group", "bad"), ("group", "good")], lambda *_: None)
    assert [bool(report.errors) for report in swept] == [True, False]
    assert [message.kind for message in good.outbox.list_waiting().items] == ["chat"]


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
