"""Removing what was settled long ago, from either side's file."""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from support.mailbox.files import PLACE, ids, inbound, outbound, reply, send, sql

from lastlight_state.errors import Conflict, NotFound
from lastlight_state.files.mailbox import AgentMailbox, Attachment, HostMailbox, Mailboxes, NewMessage
from lastlight_state.testing import FrozenClock

DAY = timedelta(days=1)


def test_settled_messages_go_with_their_files(
    host: HostMailbox, agent: AgentMailbox, frozen_clock: FrozenClock
) -> None:
    """mailbox MB-35: a dry run counts the same and changes nothing; what is not settled stays."""
    done = host.inbox.send("a/b", kind="chat", content={}, attachments=[Attachment("notes.txt", b"milk")])
    waiting, held = send(host), send(host)
    agent.inbox.claim(held.id)
    agent.inbox.complete(done.id)
    host.sweep.sync()
    frozen_clock.advance(DAY)
    folder = host.folder / done.content["attachments"][0]["localPath"]
    before = inbound(host).read_bytes()
    dry = host.inbox.prune(settled_before=frozen_clock.now())
    assert (dry.messages, dry.dry_run, inbound(host).read_bytes() == before) == (1, True, True)
    assert dry.size_bytes > len(b"milk")
    assert folder.exists()
    assert host.inbox.prune(settled_before=frozen_clock.now() - DAY, dry_run=False).messages == 0
    real = host.inbox.prune(settled_before=frozen_clock.now(), dry_run=False)
    assert real.model_copy(update={"dry_run": True}) == dry
    assert not folder.parent.exists()
    assert {row.id for row in host.inbox.list()} == {waiting.id, held.id}


def test_a_removed_number_is_not_given_again(host: HostMailbox, agent: AgentMailbox, frozen_clock: FrozenClock) -> None:
    """mailbox MB-35: also where another program gave it."""
    sql(
        inbound(host),
        "INSERT INTO messages_in (id, seq, kind, timestamp, status, series_id, content)"
        " VALUES ('theirs', 40, 'chat', '2025-01-01 00:00:00', 'completed', 'theirs', '{}')",
    )
    assert host.inbox.prune(settled_before=frozen_clock.now(), dry_run=False).messages == 1
    assert send(host).seq == 42


def test_a_number_that_was_given_before_is_not_given_again(
    host: HostMailbox, agent: AgentMailbox, frozen_clock: FrozenClock
) -> None:
    """mailbox MB-35: also where its message is gone and lower ones are removed now."""
    first, _, last = send(host), send(host), send(host)
    sql(inbound(host), "DELETE FROM messages_in WHERE seq = 6")
    agent.inbox.complete(first.id)
    host.sweep.sync()
    frozen_clock.advance(DAY)
    assert host.inbox.prune(settled_before=frozen_clock.now(), dry_run=False).messages == 1
    assert (last.seq, send(host).seq) == (6, 8)


def test_a_series_that_goes_on_is_kept(host: HostMailbox, agent: AgentMailbox, frozen_clock: FrozenClock) -> None:
    """mailbox MB-35: until it has ended."""
    first = send(host, "report", recurrence="0 9 * * *")
    agent.inbox.complete(first.id)
    assert host.sweep.sync().successors == 1
    frozen_clock.advance(DAY)
    assert host.inbox.prune(settled_before=frozen_clock.now(), dry_run=False).messages == 0
    host.inbox.fail(host.inbox.list(status="pending").items[0].id, error="no more")
    sql(inbound(host), "UPDATE messages_in SET recurrence = NULL, status = 'completed'")
    frozen_clock.advance(DAY)
    assert host.inbox.prune(settled_before=frozen_clock.now()).messages >= 2


def test_what_an_undelivered_message_names_is_kept(
    host: HostMailbox, agent: AgentMailbox, frozen_clock: FrozenClock
) -> None:
    """mailbox MB-35: what it answers, what it is about, and what an agent still holds."""
    answered, reacted, held, free = host.inbox.send_many([NewMessage("chat", {}, routing=PLACE) for _ in range(4)])
    agent.inbox.claim(held.id)
    for message in (answered, reacted, held, free):
        host.inbox.fail(message.id, error="done with")
    sent = [reply(agent, in_reply_to=answered.id), agent.outbox.react(reacted.seq or 0, emoji="eyes")]
    frozen_clock.advance(DAY)
    assert host.inbox.prune(settled_before=frozen_clock.now(), dry_run=False).messages == 1
    assert host.inbox.find(free.id) is None
    for message_out in sent:
        host.outbox.mark_delivered(message_out.id)
    agent.start()
    assert host.inbox.prune(settled_before=frozen_clock.now(), dry_run=False).messages == 3


def test_what_was_settled_at_no_time_is_kept(host: HostMailbox, agent: AgentMailbox, frozen_clock: FrozenClock) -> None:
    """mailbox MB-35: others wrote it; what stands beside it goes, and what was settled at the very time stays."""
    sent, answers = [send(host) for _ in range(3)], [reply(agent) for _ in range(3)]
    for message in sent:
        host.inbox.fail(message.id, error="done with")
    for answer in answers:
        host.outbox.mark_delivered(answer.id)
    now, later = frozen_clock.now(), frozen_clock.now() + DAY
    for table, key, column, found in (
        ("messages_in", "id", "settled_at", ids(sent)),
        ("delivered", "message_out_id", "delivered_at", ids(answers)),
    ):
        for one, text in zip(found, ("soon", later.isoformat(), now.isoformat()), strict=True):
            sql(inbound(host), f"UPDATE {table} SET {column} = ? WHERE {key} = ?", [text, one])
    assert agent.outbox.prune(settled_before=later, dry_run=False).messages == 1
    assert host.inbox.prune(settled_before=later, dry_run=False).messages == 1
    assert [host.inbox.find(message.id) is None for message in sent] == [False, False, True]
    assert [agent.outbox.find(message.id) is None for message in answers] == [False, False, True]


def test_delivered_messages_go_and_their_receipts_follow(
    host: HostMailbox, agent: AgentMailbox, frozen_clock: FrozenClock
) -> None:
    """mailbox MB-35: a receipt stays as long as its message, which would be sent again without it."""
    sent, failed, waiting = reply(agent), reply(agent), reply(agent)
    host.outbox.mark_delivered(sent.id, platform_message_id="p1")
    host.outbox.mark_failed(failed.id, error="gone", permanent=True)
    frozen_clock.advance(DAY)
    now = frozen_clock.now()
    assert host.inbox.prune(settled_before=now, dry_run=False).receipts == 0
    agent.outbox.edit(sent.seq or 0, text="no")
    assert agent.outbox.prune(settled_before=now, dry_run=False).messages == 0
    host.outbox.drain(lambda due: due.message.id)
    dry = agent.outbox.prune(settled_before=now)
    assert (dry.messages, agent.outbox.prune(settled_before=now, dry_run=False).messages) == (1, 1)
    assert {row.id for row in agent.outbox.list()} >= {failed.id, waiting.id}
    assert agent.outbox.find(sent.id) is None
    assert host.inbox.prune(settled_before=now, dry_run=False).receipts == 1
    assert host.outbox.take_due() == []
    host.outbox.requeue(failed.id)
    assert ids(due.message for due in host.outbox.take_due()) == [failed.id]
    assert (reply(agent).seq or 0) > (waiting.seq or 0)


def test_receipts_stay_beside_an_empty_file(host: HostMailbox, agent: AgentMailbox, frozen_clock: FrozenClock) -> None:
    """mailbox MB-35: the agent's file may come back with its messages."""
    host.outbox.mark_delivered(reply(agent).id)
    frozen_clock.advance(DAY)
    outbound(host).write_bytes(b"")
    assert host.inbox.prune(settled_before=frozen_clock.now(), dry_run=False).receipts == 0
    assert host.status().undelivered == 0


def test_a_session_goes_whole_when_its_agent_is_gone(
    mailboxes: Mailboxes, host: HostMailbox, agent: AgentMailbox, frozen_clock: FrozenClock
) -> None:
    """mailbox MB-35: a young heartbeat or a live claim keeps it; a dry run counts the same and removes nothing."""
    sent = host.inbox.send("m", kind="chat", content={}, attachments=[Attachment("a", b"12345")])
    host.outbox.mark_delivered(reply(agent).id)
    reply(agent)
    agent.inbox.claim(sent.id)
    with pytest.raises(Conflict, match="seems to run"):
        mailboxes.prune("group", "session", dry_run=False)
    agent.inbox.release(sent.id)
    agent.beat()
    with pytest.raises(Conflict, match="seems to run"):
        mailboxes.prune("group", "session")
    frozen_clock.advance(timedelta(minutes=30))
    kept = mailboxes.create("group", "other")
    dry = mailboxes.prune("group", "session")
    assert (dry.messages, dry.receipts, dry.dry_run, host.folder.exists()) == (3, 1, True, True)
    assert dry.size_bytes == sum(path.stat().st_size for path in host.folder.rglob("*") if path.is_file())
    assert mailboxes.prune("group", "session", dry_run=False).model_copy(update={"dry_run": True}) == dry
    assert [info.session for info in mailboxes.list()] == ["other"]
    assert [path.name for path in kept.folder.parent.iterdir()] == ["other"]
    with pytest.raises(NotFound):
        mailboxes.prune("group", "session")


def test_a_file_that_vanishes_while_sizes_are_added_up_counts_nothing(
    mailboxes: Mailboxes, host: HostMailbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    """mailbox MB-35"""
    walk, fleeting = os.walk, host.folder / "fleeting"
    fleeting.write_bytes(b"12345")

    def walked(top: Path) -> Iterator[tuple[str, list[str], list[str]]]:
        for step in walk(top):
            fleeting.unlink(missing_ok=True)
            yield step

    monkeypatch.setattr(os, "walk", walked)
    assert mailboxes.prune("group", "session").size_bytes == sum(
        path.stat().st_size for path in host.folder.rglob("*") if path.is_file()
    )


def test_a_planted_link_does_not_lead_a_removal_elsewhere(
    mailboxes: Mailboxes, host: HostMailbox, tmp_path: Path
) -> None:
    """mailbox MB-35, MB-64."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "kept").write_bytes(b"kept")
    (host.folder / "inbox" / "link").symlink_to(outside)
    assert mailboxes.prune("group", "session", dry_run=False).size_bytes > 0
    assert (outside / "kept").read_bytes() == b"kept"
    assert not host.folder.exists()


def test_what_killed_calls_left_goes_with_the_next_creation(mailboxes: Mailboxes, host: HostMailbox) -> None:
    """mailbox MB-03: an hour later."""
    group = host.folder.parent
    old, young = group / ".new-old", group / ".gone-young"
    for path in (old, young):
        path.mkdir()
    os.utime(old, (0, 0))
    mailboxes.create("group", "next")
    assert (old.exists(), young.exists()) == (False, True)


def test_what_the_agent_works_on_is_kept_while_it_completes_other_work(
    host: HostMailbox, agent: AgentMailbox, frozen_clock: FrozenClock
) -> None:
    """mailbox MB-35, MB-46: its claim is no acknowledgement that is done with."""
    held, other = send(host), send(host)
    agent.inbox.claim(held.id)
    host.inbox.fail(held.id, error="no")
    agent.inbox.complete(other.id)
    frozen_clock.advance(DAY)
    assert host.inbox.prune(settled_before=frozen_clock.now(), dry_run=False).messages == 0
    assert host.inbox.find(held.id) is not None


def test_a_receipt_goes_by_its_own_time(host: HostMailbox, agent: AgentMailbox, frozen_clock: FrozenClock) -> None:
    """mailbox MB-35: one of a message that is gone stays as long as it is young."""
    for name in ("old", "young"):
        host.outbox.mark_delivered(reply(agent, name).id)
        frozen_clock.advance(DAY)
    now = frozen_clock.now()
    assert agent.outbox.prune(settled_before=now, dry_run=False).messages == 2
    assert host.inbox.prune(settled_before=now - DAY, dry_run=False).receipts == 1
    assert sql(inbound(host), "SELECT message_out_id FROM delivered") == [("young",)]


def test_receipts_stay_beside_a_fresh_file(mailboxes: Mailboxes, host: HostMailbox, frozen_clock: FrozenClock) -> None:
    """mailbox MB-35: one that never numbered a message; the agent's own may come back."""
    host.outbox.mark_delivered(reply(mailboxes.agent("group", "session")).id)
    frozen_clock.advance(DAY)
    outbound(host).write_bytes(outbound(mailboxes.create("group", "fresh")).read_bytes())
    assert host.inbox.prune(settled_before=frozen_clock.now(), dry_run=False).receipts == 0


@pytest.mark.parametrize(
    ("beside", "removed"),
    [
        ({"status": "paused"}, 1),
        ({"status": "pending", "recurrence": "@daily"}, 1),
        ({"status": "completed", "recurrence": "@daily"}, 1),
        ({"status": "completed", "recurrence": "@daily", "series_id": "old"}, 0),
        ({"status": "paused", "series_id": "old"}, 0),
        ({"status": "pending", "series_id": "old"}, 0),
        ({"status": "pending", "series_id": "new"}, 1),
        ({"status": "completed", "series_id": "old"}, 2),
    ],
)
def test_a_message_of_others_keeps_its_own_series_and_no_other(
    host: HostMailbox, frozen_clock: FrozenClock, beside: dict[str, str], removed: int
) -> None:
    """mailbox MB-35: also one that they wrote without a series; a settled one that recurs stays itself."""
    host.inbox.fail(send(host, "old").id, error="no")
    row = {"id": "theirs", "kind": "chat", "timestamp": "2025-01-01 00:00:00", "content": "{}", **beside}
    names, marks = ", ".join(row), ", ".join("?" * len(row))
    sql(inbound(host), f"INSERT INTO messages_in ({names}) VALUES ({marks})", [*row.values()])
    frozen_clock.advance(DAY)
    assert host.inbox.prune(settled_before=frozen_clock.now(), dry_run=False).messages == removed


def test_a_settled_message_that_recurs_without_a_series_stays(host: HostMailbox, frozen_clock: FrozenClock) -> None:
    """mailbox MB-35: others wrote it, and its next occurrence is still to be stored."""
    columns = "id, kind, timestamp, status, recurrence, content"
    row = ["theirs", "chat", "2025-01-01 00:00:00", "completed", "@daily", "{}"]
    host.status()
    sql(inbound(host), f"INSERT INTO messages_in ({columns}) VALUES (?, ?, ?, ?, ?, ?)", row)
    assert host.inbox.prune(settled_before=frozen_clock.now(), dry_run=False).messages == 0
