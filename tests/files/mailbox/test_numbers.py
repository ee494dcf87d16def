"""Numbers of messages: unique and growing over both files, enforced by the database."""

from __future__ import annotations

import sqlite3
import threading
from pathlib import Path

import pytest
from support.each import with_each
from support.mailbox.files import INBOUND, OUTBOUND, inbound, made, outbound, reply, send, sql
from support.mailbox.pairs import mailbox_pair

from lastlight_state.errors import CorruptData, InvalidValue, NotFound
from lastlight_state.files.mailbox import AgentMailbox, HostMailbox, Mailboxes, NewMessage, models
from lastlight_state.testing import FrozenClock


def test_numbers_grow_over_both_files(host: HostMailbox, agent: AgentMailbox) -> None:
    """mailbox MB-21: the host has even numbers and the agent odd ones, each above all others."""
    assert [send(host).seq for _ in range(3)] == [2, 4, 6]
    assert [reply(agent).seq for _ in range(2)] == [7, 9]
    assert send(host).seq == 10


def test_a_host_goes_on_above_the_agents_numbers(host: HostMailbox, agent: AgentMailbox) -> None:
    """mailbox case 4: after 1 and 3 comes 4; after 100 comes 101."""
    assert [reply(agent).seq, reply(agent).seq] == [1, 3]
    assert send(host).seq == 4
    sql(inbound(host), "UPDATE messages_in SET seq = 100")
    assert reply(agent).seq == 101


def test_the_number_of_a_removed_message_is_not_given_again(host: HostMailbox) -> None:
    """mailbox MB-21"""
    send(host)
    sql(inbound(host), "DELETE FROM messages_in")
    assert send(host).seq == 4


@with_each("number", [1, 0, -2, 2.5, "two"])
def test_the_database_refuses_a_number_of_the_other_side(
    tmp_path: Path, frozen_clock: FrozenClock, number: object
) -> None:
    """mailbox MB-20: in files that we made, whoever writes."""
    host, _ = mailbox_pair(tmp_path, frozen_clock)
    insert = "INSERT INTO messages_in (id, seq, kind, timestamp, content) VALUES ('x', ?, 'chat', 't', '{}')"
    with pytest.raises(sqlite3.IntegrityError):
        sql(inbound(host), insert, [number])


def test_several_messages_get_numbers_in_their_order(host: HostMailbox) -> None:
    """mailbox MB-22: a batch is one transaction."""
    found = host.inbox.send_many([NewMessage("chat", {"text": str(i)}) for i in range(3)])
    assert [message.seq for message in found] == [2, 4, 6]
    assert host.inbox.send_many([]) == []


def test_threads_of_both_sides_send_at_once(mailboxes: Mailboxes, host: HostMailbox, agent: AgentMailbox) -> None:
    """mailbox MB-22: every message is stored, each with its own number, and no error reaches a caller."""
    failures: list[BaseException] = []

    def sending(side: HostMailbox | AgentMailbox) -> None:
        try:
            for _ in range(5):
                if isinstance(side, HostMailbox):
                    send(side)
                else:
                    reply(side)
        except BaseException as error:  # noqa: BLE001 - whatever it is
            failures.append(error)

    other = mailboxes.host("group", "session")
    threads = [threading.Thread(target=sending, args=(side,)) for side in (host, other, agent, agent)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    numbers = [seq for (seq,) in sql(inbound(host), "SELECT seq FROM messages_in")]
    numbers += [seq for (seq,) in sql(outbound(host), "SELECT seq FROM messages_out")]
    assert len(set(numbers)) == 20


@pytest.mark.logs("going on without the other side's file")
def test_a_damaged_file_of_the_other_side_does_not_stop_a_sender(host: HostMailbox, agent: AgentMailbox) -> None:
    """mailbox MB-23: the number is above all that this side ever knew."""
    reply(agent)
    send(host)
    outbound(host).write_bytes(b"this is no database" * 100)
    assert send(host).seq == 4
    outbound(host).unlink()
    assert send(host).seq == 6


def test_numbers_of_others_that_break_the_rules_are_listed(host: HostMailbox, agent: AgentMailbox) -> None:
    """mailbox MB-24, case 8: they are named, hold nothing up, and are never found by their number."""
    send(host)
    sql(outbound(host), "DROP TABLE messages_out")
    sql(outbound(host), "CREATE TABLE messages_out (id TEXT, seq INTEGER, kind TEXT, timestamp TEXT, content TEXT)")
    for name, seq in (("even", 8), ("words", "eight")):
        row = (name, seq, "chat", "2026-01-01 00:00:00", "{}")
        sql(outbound(host), "INSERT INTO messages_out (id, seq, kind, timestamp, content) VALUES (?, ?, ?, ?, ?)", row)
    assert [finding.message_id for finding in host.verify()] == ["even", "words"]
    for side in (HostMailbox, AgentMailbox):
        with pytest.raises(CorruptData, match="even: the number 8 is not one of this side"):
            side.open(host.folder, strict=True)
    assert send(host).seq == 10
    with pytest.raises(NotFound):
        host.inbox.resolve_seq(8)


def test_a_series_with_two_live_messages_is_listed(tmp_path: Path) -> None:
    """mailbox MB-12, MB-24: the index that forbids it is left out of an adopted file; a sound file opens strictly."""
    folder = tmp_path / "group" / "session"
    made(folder / "inbound.db", INBOUND)
    made(folder / "outbound.db", OUTBOUND)
    for name, seq in (("a", 2), ("b", 4)):
        row = (name, seq, "task", "2026-01-01T00:00:00.000Z", "@daily", "a", "{}")
        columns = "id, seq, kind, timestamp, recurrence, series_id, content"
        sql(folder / "inbound.db", f"INSERT INTO messages_in ({columns}) VALUES (?, ?, ?, ?, ?, ?, ?)", row)
    insert = "INSERT INTO messages_in (id, seq, kind, timestamp, series_id, content)"
    for name, seq in (("plain", 6), ("as plain", 8)):
        sql(folder / "inbound.db", f"{insert} VALUES (?, ?, 'chat', '2026-01-01', 'p', '{{}}')", [name, seq])
    [found] = HostMailbox.open(folder).verify()
    assert (found.message_id, "several live messages" in found.problem) == ("b", True)
    sql(folder / "inbound.db", "DELETE FROM messages_in WHERE id = 'a'")
    assert HostMailbox.open(folder).verify() == []
    sql(folder / "inbound.db", f"{insert} VALUES ('none', 0, 'chat', '2026-01-01', 'none', '{{}}')")
    assert [found.message_id for found in HostMailbox.open(folder).verify()] == ["none"]
    sql(folder / "inbound.db", "DELETE FROM messages_in")
    assert HostMailbox.open(folder, strict=True).verify() == []


def test_there_is_a_greatest_number() -> None:
    """mailbox MB-20: readers of other languages hold numbers as doubles."""
    assert models.next_number("agent", models.GREATEST - 2) == models.GREATEST
    with pytest.raises(InvalidValue):
        models.next_number("host", models.GREATEST - 1)


def test_above_the_greatest_number_of_the_other_side_there_is_none(host: HostMailbox, agent: AgentMailbox) -> None:
    """mailbox MB-20, MB-21: nothing is sent out of order."""
    reply(agent)
    sql(outbound(host), "UPDATE messages_out SET seq = ?", [models.GREATEST])
    with pytest.raises(InvalidValue, match="seq"):
        send(host)
    sql(outbound(host), "UPDATE messages_out SET seq = ?", [models.GREATEST + 2])
    assert send(host).seq == 2  # which no reader of another language can hold: it is passed over


def test_messages_are_found_by_number_on_both_sides(host: HostMailbox, agent: AgentMailbox) -> None:
    """mailbox MB-25, case 40: parity alone says where to look, and the platform's id is known as far as it is."""
    given = host.inbox.send("1700.5:group", kind="chat", content={})
    assert agent.outbox.resolve_seq(2).platform_message_id == "1700.5"
    assert host.inbox.resolve_seq(2).id == given.id
    sent = [reply(agent) for _ in range(3)]
    host.outbox.mark_delivered(sent[0].id, platform_message_id="p-1")
    host.outbox.mark_failed(sent[1].id, error="gone", permanent=True)
    found = [agent.outbox.resolve_seq(message.seq or 0) for message in sent]
    assert [(ref.delivery, ref.platform_message_id) for ref in found] == [
        ("delivered", "p-1"),
        ("failed", None),
        ("pending", None),
    ]
    with pytest.raises(NotFound):
        agent.outbox.resolve_seq(99)


@with_each("seq", [2.5, "eight", 0, -2, 3])
def test_what_is_no_number_of_the_host_is_listed(tmp_path: Path, frozen_clock: FrozenClock, seq: object) -> None:
    """mailbox MB-24: a fraction, a text, one that is not above zero, and one of the agent; what has none is sound."""
    host, agent = mailbox_pair(tmp_path, frozen_clock)
    send(host)
    sql(inbound(host), "DROP TABLE messages_in")
    columns = "id TEXT, seq, kind TEXT, timestamp TEXT, status TEXT DEFAULT 'pending', content TEXT"
    sql(inbound(host), f"CREATE TABLE messages_in ({columns})")
    for name, number in (("sound", 8), ("none", None), ("odd", seq)):
        row = (name, number, "chat", "2026-01-01 00:00:00", "{}")
        sql(inbound(host), "INSERT INTO messages_in (id, seq, kind, timestamp, content) VALUES (?, ?, ?, ?, ?)", row)
    assert [finding.message_id for finding in agent.verify()] == ["odd"]


def test_a_series_that_waits_for_its_next_occurrence_is_sound(host: HostMailbox) -> None:
    """mailbox MB-24: a settled occurrence beside a live one is no second live one."""
    columns = "id, seq, kind, timestamp, status, recurrence, series_id, content"
    for name, seq, status in (("a", 2, "completed"), ("b", 4, "pending")):
        row = (name, seq, "task", "2026-01-01T00:00:00.000Z", status, "@daily", "a", "{}")
        sql(inbound(host), f"INSERT INTO messages_in ({columns}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)", row)
    assert host.verify() == []


@with_each("text", ["", "soon", "\N{SUPERSCRIPT TWO}", "-4"])
def test_a_note_of_others_that_is_no_number_counts_as_none(
    tmp_path: Path, frozen_clock: FrozenClock, text: str
) -> None:
    """mailbox MB-21, MB-45, MB-82: of the highest number, of what is settled, and of the lives of an agent."""
    host, agent = mailbox_pair(tmp_path, frozen_clock)
    sent, answer = send(host), reply(agent)
    agent.start()
    for path in (inbound(host), outbound(host)):
        for key in ("highest_seq", "settled_seq", "agent_instance"):
            sql(path, "INSERT OR REPLACE INTO mailbox_meta (key, value) VALUES (?, ?)", [key, text])
    assert [due.message.id for due in host.outbox.take_due()] == [answer.id]
    assert (send(host).seq, sent.seq) == (4, 2)
    assert agent.start().instance.startswith("1-")
