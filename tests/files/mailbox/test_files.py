"""Files of the original and of its older builds, adopted and used by both sides."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest
from support.between import before
from support.mailbox.files import INBOUND, OLD_INBOUND, OUTBOUND, ids, inbound, made, outbound, reply, send, sql

from lastlight_state.errors import AlreadyExists, InvalidValue
from lastlight_state.files.mailbox import (
    AgentMailbox,
    Deliver,
    HostMailbox,
    Mailboxes,
    NewDestination,
    Origin,
    Routing,
    When,
)
from lastlight_state.settings import Settings
from lastlight_state.testing import FrozenClock

_COLUMNS = """
    SELECT t.name, c.name, c.type, c."notnull" OR c.pk, c.dflt_value, c.pk
    FROM sqlite_master t JOIN pragma_table_info(t.name) c WHERE t.type = 'table'
"""
ROW = "INSERT INTO messages_in (id, seq, kind, timestamp, content) VALUES (?, ?, 'chat', '2026-01-01T00:00:00.000Z', ?)"


@pytest.mark.parametrize("name", ["inbound.db", "outbound.db"])
def test_a_new_file_has_the_columns_that_the_original_makes(mailboxes: Mailboxes, folder: Path, name: str) -> None:
    """mailbox MB-12: of the same types, defaults and keys, so that the original goes on with it."""
    new = mailboxes.create("group", "new").folder
    assert set(sql(folder / name, _COLUMNS)) <= set(sql(new / name, _COLUMNS))


@pytest.fixture
def folder(mailboxes: Mailboxes) -> Path:
    """Files that the original made, with a message."""
    found = mailboxes.root / "group" / "session"
    made(found / "inbound.db", INBOUND)
    made(found / "outbound.db", OUTBOUND)
    sql(found / "inbound.db", ROW, ["first", 2, '{"text":"hello"}'])
    return found


def test_files_of_the_original_are_used_by_both_sides(mailboxes: Mailboxes, folder: Path) -> None:
    """mailbox MB-12, case 51: messages, acknowledgements and receipts pass through them."""
    host, agent = mailboxes.host("group", "session"), mailboxes.agent("group", "session")
    second = send(host)
    assert ids(agent.inbox.take()) == ["first", second.id]
    answer = reply(agent)
    agent.inbox.complete("first", second.id)
    assert host.sweep.sync().completed == 2
    assert host.outbox.drain(lambda _due: "p-1").delivered == 1
    assert agent.outbox.delivery(answer.id).platform_message_id == "p-1"


def test_the_original_uses_files_of_ours(host: HostMailbox, agent: AgentMailbox) -> None:
    """mailbox case 51: its statements insert, poll, acknowledge, deliver and sweep."""
    sql(inbound(host), ROW, ["theirs", 2, "{}"])
    ours = send(host)
    poll = (
        "SELECT id FROM messages_in WHERE status = 'pending'"
        " AND (process_after IS NULL OR process_after <= datetime('now')) ORDER BY seq"
    )
    assert sql(inbound(host), poll) == [("theirs",), (ours.id,)]
    acknowledge = (
        "INSERT INTO processing_ack (message_id, status, status_changed) VALUES (?, 'completed', datetime('now'))"
    )
    sql(outbound(host), acknowledge, ["theirs"])
    columns = "id, seq, timestamp, kind, content"
    answer = f"INSERT INTO messages_out ({columns}) VALUES ('a', 5, datetime('now'), 'system', '{{}}')"
    sql(outbound(host), answer)
    assert ids(agent.inbox.peek()) == [ours.id]
    assert host.sweep.sync().completed == 1
    assert [due.message.id for due in host.outbox.take_due()] == ["a"]
    sql(inbound(host), "INSERT INTO delivered (message_out_id, delivered_at) VALUES ('a', datetime('now'))")
    assert agent.outbox.delivery("a").status == "delivered"
    sql(inbound(host), "UPDATE messages_in SET status = 'completed' WHERE status = 'pending'")
    assert ids(agent.inbox.peek()) == []


def test_times_have_the_forms_that_the_original_compares(host: HostMailbox, agent: AgentMailbox) -> None:
    """mailbox MB-11: a blank in what it compares as text, the house's form elsewhere."""
    moment = datetime(2026, 2, 3, 12, tzinfo=UTC)
    message, answer = send(host, process_after=moment), reply(agent, deliver=Deliver(after=moment))
    agent.inbox.claim(message.id)
    host.outbox.mark_delivered(answer.id)
    [(sent, due)] = sql(inbound(host), "SELECT timestamp, process_after FROM messages_in")
    [(written, after)] = sql(outbound(host), "SELECT timestamp, deliver_after FROM messages_out")
    [(claimed,)] = sql(outbound(host), "SELECT status_changed FROM processing_ack")
    [(delivered,)] = sql(inbound(host), "SELECT delivered_at FROM delivered")
    assert (due, after) == ("2026-02-03T12:00:00.000Z", "2026-02-03 12:00:00.000")
    plain = sent.replace("T", " ").removesuffix("Z")
    assert (len(sent), written, claimed, delivered) == (24, plain, plain, plain)


def test_an_agent_reads_a_file_that_lacks_later_columns(mailboxes: Mailboxes) -> None:
    """mailbox MB-12, case 48: it takes their defaults, and changes nothing."""
    folder = mailboxes.root / "group" / "session"
    made(folder / "inbound.db", OLD_INBOUND)
    made(folder / "outbound.db", OUTBOUND)
    sql(folder / "inbound.db", ROW, ["first", 2, "{}"])
    before = (folder / "inbound.db").read_bytes()
    agent = mailboxes.agent("group", "session")
    agent.start()
    [found] = agent.inbox.take()
    assert (found.id, found.tries, found.trigger, found.series_id) == ("first", 0, True, "first")
    assert agent.outbox.send(kind="chat", content={}).seq == 3
    assert agent.routing.list_destinations() == []
    assert (folder / "inbound.db").read_bytes() == before


def test_a_file_that_lacks_columns_is_completed_by_its_owner(mailboxes: Mailboxes) -> None:
    """mailbox MB-12, case 50: with the names of series; the second time writes nothing."""
    folder = mailboxes.root / "group" / "session"
    made(folder / "inbound.db", OLD_INBOUND)
    made(folder / "outbound.db", OUTBOUND)
    sql(folder / "inbound.db", ROW, ["first", 2, "{}"])
    mailboxes.host("group", "session")
    assert sql(folder / "inbound.db", "SELECT series_id, tries, trigger, on_wake FROM messages_in") == [
        ("first", 0, 1, 0)
    ]
    before = (folder / "inbound.db").read_bytes()
    host = mailboxes.host("group", "session")
    assert host.inbox.list().items != ()
    assert (folder / "inbound.db").read_bytes() == before


def test_new_files_have_these_indexes(mailboxes: Mailboxes) -> None:
    """mailbox MB-03, MB-75: what polling, settling, delivering and counting read by."""
    place = mailboxes.create("group", "new").folder
    found = {
        name: {index for (index,) in sql(place / name, "SELECT name FROM sqlite_master WHERE sql LIKE 'CREATE%INDEX%'")}
        for name in ("inbound.db", "outbound.db")
    }
    assert found == {
        "inbound.db": {
            *"idx_delivered_failed idx_messages_in_failed idx_messages_in_paused idx_messages_in_peer".split(),
            *"idx_messages_in_place idx_messages_in_ready idx_messages_in_recurring idx_messages_in_series".split(),
            *"idx_messages_in_tasks uq_messages_in_live_series idx_messages_in_unknown idx_delivered_unknown".split(),
        },
        "outbound.db": {"idx_messages_out_place"},
    }


def test_a_file_that_was_left_half_way_is_completed(mailboxes: Mailboxes, folder: Path) -> None:
    """mailbox case 50: a column is there, its index and the names of series are not."""
    for name in ("timezone", "platform_message_id"):
        sql(folder / "inbound.db", f"ALTER TABLE messages_in ADD COLUMN {name} TEXT")
    sql(folder / "inbound.db", "DROP INDEX idx_messages_in_series")
    mailboxes.host("group", "session")
    assert sql(folder / "inbound.db", "SELECT series_id FROM messages_in") == [("first",)]
    names = {name for (name,) in sql(folder / "inbound.db", "SELECT name FROM sqlite_master WHERE type = 'index'")}
    assert {"idx_messages_in_series", "idx_messages_in_ready", "uq_messages_in_live_series"} <= names


def test_an_index_or_a_note_that_somebody_removed_is_added_again(mailboxes: Mailboxes, host: HostMailbox) -> None:
    """mailbox MB-12."""
    ready = "SELECT count(*) FROM sqlite_master WHERE name = 'idx_messages_in_ready'"
    layout = "SELECT count(*) FROM mailbox_meta WHERE key = 'layout'"
    for removal in ("DROP INDEX idx_messages_in_ready", "DELETE FROM mailbox_meta WHERE key = 'layout'"):
        sql(inbound(host), removal)
        mailboxes.host("group", "session")
        assert [sql(inbound(host), question) for question in (ready, layout)] == [[(1,)], [(1,)]]


def test_who_only_reads_needs_no_notes_in_a_file(mailboxes: Mailboxes, host: HostMailbox) -> None:
    """mailbox MB-12: those that it lacks count as none, and are not added."""
    sql(inbound(host), "DROP TABLE mailbox_meta")
    reader = Mailboxes(mailboxes.root, settings=Settings(read_only=True)).host("group", "session")
    assert reader.sweep.advance().successors == 0
    assert sql(inbound(host), "SELECT count(*) FROM sqlite_master WHERE name = 'mailbox_meta'") == [(0,)]


@pytest.mark.logs("an index is left out")
def test_rows_that_contradict_an_index_keep_it_out(mailboxes: Mailboxes, folder: Path) -> None:
    """mailbox MB-12: the file is used all the same, and the series has one successor."""
    for number in (4, 6):
        sql(folder / "inbound.db", ROW, [f"twin-{number}", number, "{}"])
    sql(folder / "inbound.db", "UPDATE messages_in SET recurrence = '0 9 * * *', series_id = 's' WHERE seq > 2")
    host = mailboxes.host("group", "session")
    assert send(host).seq == 8
    assert mailboxes.host("group", "session").inbox.get("twin-4").series_id == "s"


def test_a_series_that_failed_before_is_revived_by_hand_alone(
    mailboxes: Mailboxes, folder: Path, frozen_clock: FrozenClock
) -> None:
    """mailbox MB-39: `verify` names it."""
    sql(folder / "inbound.db", "UPDATE messages_in SET status = 'failed', recurrence = '0 9 * * *'")
    sql(folder / "inbound.db", ROW, ["odd", "text", "{}"])
    host = mailboxes.host("group", "session")
    host.inbox.fail(send(host).id, error="of no series")
    assert host.sweep.advance().successors == 0
    assert [finding.message_id for finding in host.verify()] == ["odd", "first"]
    sql(folder / "inbound.db", "DELETE FROM messages_in WHERE id = 'odd'")
    host.inbox.retry("first")
    assert host.inbox.count_due() == 1


def test_a_redelivered_message_is_stored_once(host: HostMailbox) -> None:
    """mailbox MB-31: another content under the same id is refused, with what is stored."""
    first = host.inbox.ensure("m", kind="chat", content={"text": "a"})
    again = host.inbox.ensure("m", kind="chat", content={"text": "a"})
    assert (first.created, again.created) == (True, False)
    assert again.message == first.message
    with pytest.raises(AlreadyExists) as error:
        host.inbox.ensure("m", kind="chat", content={"text": "b"})
    assert error.value.details["stored"] == first.message
    with pytest.raises(AlreadyExists):
        host.inbox.send("m", kind="chat", content={"text": "a"})


def test_a_message_that_another_delivery_stores_meanwhile_is_returned(
    host: HostMailbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    """mailbox MB-31: between the look and the write; what is refused for another reason says so."""
    inbox = host.inbox
    happened = before(monkeypatch, inbox, "send_many", lambda: sql(inbound(host), ROW, ["m", 2, '{"text":"a"}']))
    assert not inbox.ensure("m", kind="chat", content={"text": "a"}).created
    assert happened == ["send_many"]
    with pytest.raises(InvalidValue, match="kind"):
        inbox.ensure("n", kind="", content={})


def test_an_answer_finds_the_session_that_asked(host: HostMailbox) -> None:
    """mailbox MB-33"""
    for name, source in (("old", "s-1"), ("new", "s-2"), ("plain", None)):
        host.inbox.send(
            name,
            kind="chat",
            content={},
            routing=Routing("agent", "peer"),
            origin=Origin(source_session_id=source),
            when=When(trigger=False),
        )
    paths = [host.inbox.find_return_path(in_reply_to=name, peer_group="peer") for name in ("old", "plain", None)]
    assert paths == ["s-1", "s-2", "s-2"]
    assert host.inbox.find_return_path(in_reply_to=None, peer_group="stranger") is None


def test_words_are_checked_when_written_and_taken_as_they_are_when_read(host: HostMailbox, agent: AgentMailbox) -> None:
    """mailbox MB-10: of statuses, acknowledgements, deliveries and destinations; a kind is any name."""
    wrong: list[Callable[[], object]] = [
        lambda: host.inbox.list(status="odd"),
        lambda: host.tasks.list(status="failed"),
        lambda: host.routing.replace_destinations([NewDestination("a", "odd")]),
        lambda: host.inbox.send(kind="", content={}),
    ]
    for call in wrong:
        with pytest.raises(InvalidValue):
            call()
    message, answer = send(host, kind="any name at all"), reply(agent)
    host.outbox.mark_delivered(answer.id)
    agent.inbox.claim(message.id)
    sql(inbound(host), "UPDATE messages_in SET status = 'odd'")
    sql(inbound(host), "UPDATE delivered SET status = 'odd'")
    sql(inbound(host), "INSERT INTO destinations (name, type) VALUES ('a', 'odd')")
    sql(outbound(host), "UPDATE processing_ack SET status = 'odd'")
    assert (host.inbox.get(message.id).status, host.inbox.get(message.id).kind) == ("odd", "any name at all")
    assert agent.outbox.delivery(answer.id).status == "odd"
    assert [destination.type for destination in agent.routing.list_destinations()] == ["odd"]
    assert host.sweep.sync().completed == 0
    assert agent.inbox.take().messages == ()
