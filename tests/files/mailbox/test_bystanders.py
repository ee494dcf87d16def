"""What a call is about changes, and what stands beside it in the files stays as it was."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from support.between import before
from support.each import with_each
from support.mailbox.files import PLACE, inbound, outbound, reply, send, sql
from support.mailbox.pairs import mailbox_pair

from lastlight_state.errors import LostRace, NotFound
from lastlight_state.files.mailbox import (
    AgentMailbox,
    HostMailbox,
    Mailboxes,
    NewDestination,
    NewMessage,
    Origin,
    Routing,
    StalePolicy,
    When,
)
from lastlight_state.settings import Settings
from lastlight_state.testing import FrozenClock

DAILY = When(recurrence="0 9 * * *")
HOUR = timedelta(hours=1)
TABLES = {
    "messages_in": (inbound, "id"),
    "delivered": (inbound, "message_out_id"),
    "delivery_attempts": (inbound, "message_out_id"),
    "messages_out": (outbound, "id"),
    "processing_ack": (outbound, "message_id"),
    "session_state": (outbound, "key"),
}


def stored(host: HostMailbox) -> dict[tuple[str, str], Any]:
    """Every row of both files, by its table and key."""
    return {
        (table, row[0]): row
        for table, (path, key) in TABLES.items()
        for row in sql(path(host), f"SELECT {key}, * FROM {table}")
    }


def put(host: HostMailbox, message_id: str, **columns: Any) -> str:
    """A row of ``messages_in`` as another program may write it, without a series."""
    row = {"id": message_id, "kind": "chat", "timestamp": "2025-01-01 00:00:00", "content": "{}", **columns}
    names, marks = ", ".join(row), ", ".join("?" * len(row))
    sql(inbound(host), f"INSERT INTO messages_in ({names}) VALUES ({marks})", [*row.values()])
    return message_id


@pytest.fixture
def crowded(host: HostMailbox, agent: AgentMailbox, frozen_clock: FrozenClock) -> HostMailbox:
    """A mailbox with two messages of every sort."""
    agent.start()
    for name in ("waiting", "held", "done", "failed", "refused", "freed"):
        for number in (1, 2):
            send(host, f"{name}-{number}")
    for number in (1, 2):
        host.tasks.create(f"task-{number}", prompt="p", when=DAILY)
        host.inbox.fail(f"failed-{number}", error="no")
        agent.inbox.claim(f"held-{number}", f"freed-{number}")
        agent.inbox.complete(f"done-{number}")
        agent.inbox.fail(f"refused-{number}", error="no")
        agent.state.put(f"key-{number}", "v")
        for name in ("unsent", "leased", "tried", "sent", "lost"):
            reply(agent, f"{name}-{number}")
        host.outbox.mark_delivered(f"sent-{number}", platform_message_id=f"p-{number}")
        host.outbox.mark_failed(f"lost-{number}", error=f"gone {number}", permanent=True)
    host.outbox.take_due(limit=6)
    for _ in range(2):
        host.outbox.mark_failed("tried-1", error="busy")
        frozen_clock.advance(timedelta(seconds=1))
    host.outbox.mark_failed("tried-2", error="busy")
    return host


CALLS: dict[str, tuple[Callable[[HostMailbox, AgentMailbox], object], set[str]]] = {
    "fail": (lambda host, _: host.inbox.fail("waiting-2", error="no"), {"messages_in waiting-2"}),
    "retry": (lambda host, _: host.inbox.retry("failed-2"), {"messages_in failed-2"}),
    "pause": (lambda host, _: host.tasks.pause("task-2"), {"messages_in task-2"}),
    "cancel": (lambda host, _: host.tasks.cancel("task-2"), {"messages_in task-2"}),
    "deliver": (
        lambda host, _: host.outbox.mark_delivered("leased-2"),
        {"delivered leased-2", "delivery_attempts leased-2"},
    ),
    "try again": (lambda host, _: host.outbox.mark_failed("leased-2", error="busy"), {"delivery_attempts leased-2"}),
    "requeue": (lambda host, _: host.outbox.requeue("lost-2"), {"delivered lost-2"}),
    "claim": (lambda _, agent: agent.inbox.claim("waiting-2"), {"processing_ack waiting-2"}),
    "release": (lambda _, agent: agent.inbox.release("held-2"), {"processing_ack held-2"}),
    "give back what is done": (lambda _, agent: agent.inbox.release("done-2", "refused-2"), set()),
    "forget": (lambda _, agent: agent.state.clear("key-2"), {"session_state key-2"}),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_call_changes_nothing_but_what_it_is_about(crowded: HostMailbox, agent: AgentMailbox, name: str) -> None:
    """mailbox MB-34, MB-36, MB-42, MB-43, MB-83, MB-84, MB-92: another of the same sort stays as it was."""
    call, changes = CALLS[name]
    earlier = stored(crowded)
    call(crowded, agent)
    after = stored(crowded)
    assert {" ".join(key) for key in earlier.keys() | after.keys() if earlier.get(key) != after.get(key)} == changes


def test_a_start_frees_claims_alone(crowded: HostMailbox, agent: AgentMailbox) -> None:
    """mailbox MB-45: what was completed or has failed is still settled."""
    earlier = stored(crowded)
    assert agent.start().freed == 4
    gone = earlier.keys() - stored(crowded).keys()
    assert gone == {("processing_ack", f"{name}-{number}") for name in ("held", "freed") for number in (1, 2)}
    report = crowded.sweep.sync()
    assert (report.completed, report.failed) == (2, 2)


def test_what_is_asked_by_id_is_the_one_of_that_id(crowded: HostMailbox, agent: AgentMailbox) -> None:
    """mailbox MB-83, MB-84, MB-92: receipts, attempts and texts."""
    assert crowded.outbox.mark_delivered("sent-2").platform_message_id == "p-2"
    sql(inbound(crowded), "UPDATE delivery_attempts SET attempts = 2 WHERE message_out_id != 'tried-2'")
    assert crowded.outbox.mark_failed("tried-2", error="busy").attempts == 1
    crowded.outbox.requeue("lost-2")
    assert [found.message_out_id for found in crowded.outbox.list_failed()] == ["lost-1"]
    with pytest.raises(LostRace):
        crowded.outbox.requeue("sent-2")
    agent.state.put("key-2", "w")
    assert (agent.state.get("key-1"), agent.state.get("key-2")) == ("v", "w")


def test_a_failure_of_a_message_that_was_queued_again_counts_from_the_first(
    host: HostMailbox, agent: AgentMailbox
) -> None:
    """mailbox MB-84: also with the token of the attempt before."""
    message = reply(agent)
    [due] = host.outbox.take_due()
    host.outbox.mark_failed(message.id, error="gone", permanent=True)
    host.outbox.requeue(message.id)
    assert host.outbox.mark_failed(message.id, error="busy", token=due.token).attempts == 1


def test_a_message_that_is_not_pending_is_not_claimed(host: HostMailbox, agent: AgentMailbox) -> None:
    """mailbox MB-42: one that is paused, or that the host has settled."""
    host.tasks.create("paused", prompt="p", when=When())
    host.tasks.pause("paused")
    host.inbox.fail(send(host, "failed").id, error="no")
    send(host, "waiting")
    assert agent.inbox.claim("paused", "failed", "waiting") == ("waiting",)


def test_only_context_expires_and_only_what_waits_of_it_counts(host: HostMailbox) -> None:
    """mailbox MB-54: neither what wakes the agent nor what is settled."""
    context = [NewMessage("chat", {}, f"context-{number}", when=When(trigger=False)) for number in range(4)]
    host.inbox.send_many([*context, *(NewMessage("chat", {}, f"waking-{number}") for number in range(4))])
    host.inbox.fail("context-3", error="no")
    assert host.sweep.expire(policy=StalePolicy(max_context=2)) == 1
    assert [row.id for row in host.inbox.list(status="completed")] == ["context-0"]
    assert [row.id for row in host.inbox.list(status="failed")] == ["context-3"]


def test_an_answer_goes_to_the_session_that_the_newest_message_of_the_peer_names(host: HostMailbox) -> None:
    """mailbox MB-33: not to that of another peer or channel, and not to none."""
    for number, (channel, peer, session) in enumerate(
        [("agent", "peer", "s-1"), ("agent", "other", "s-2"), ("slack", "peer", "s-3"), ("agent", "peer", None)]
    ):
        origin = Origin(source_session_id=session)
        host.inbox.send(f"m-{number}", kind="chat", content={}, routing=Routing(channel, peer), origin=origin)
    asked = [None, "m-1", "m-3", "unknown"]
    assert [host.inbox.find_return_path(in_reply_to=message_id, peer_group="peer") for message_id in asked] == [
        "s-1",
        "s-2",
        "s-1",
        "s-1",
    ]
    assert host.inbox.find_return_path(in_reply_to=None, peer_group="third") is None


@with_each("default", [PLACE, None])
def test_the_agent_may_send_where_its_wiring_says_and_nowhere_else(
    tmp_path: Path, frozen_clock: FrozenClock, default: Routing | None
) -> None:
    """mailbox MB-91: a place needs its own channel, and another agent is none of a channel's."""
    host, _ = mailbox_pair(tmp_path, frozen_clock)
    host.routing.put_default(default)
    host.routing.replace_destinations(
        [
            NewDestination("ops", "channel", channel_type="slack", platform_id="C9"),
            NewDestination("peer", "agent", agent_group_id="reviewer"),
        ]
    )
    asked = {
        Routing("slack", "C9"): True,
        Routing("agent", "reviewer"): True,
        PLACE: default is not None,
        Routing("discord", "C9"): False,
        Routing("slack", "C8"): False,
        Routing("slack", "reviewer"): False,
        Routing("agent", "writer"): False,
        Routing("agent", "C9"): False,
        Routing("discord", PLACE.platform_id): False,
        Routing(PLACE.channel_type, None): False,
        Routing(): False,
    }
    assert {place: host.routing.allows(place) for place in asked} == asked


def test_a_series_is_told_from_the_series_beside_it(host: HostMailbox, agent: AgentMailbox) -> None:
    """mailbox MB-36, MB-39: what follows one ends no other that still waits for its next occurrence."""
    for name in ("one", "other", "ended"):
        host.tasks.create(name, prompt=name, when=DAILY)
    host.tasks.cancel("ended")
    sql(inbound(host), "UPDATE messages_in SET status = 'completed', timezone = 'Mars/Olympus' WHERE id = 'other'")
    agent.inbox.complete("one")
    assert host.sweep.sync().successors == 1
    assert host.sweep.advance().unreadable_series == ("other",)
    assert [host.tasks.get(name).prompt for name in ("one", "other", "ended")] == ["one", "other", "ended"]
    assert host.tasks.get("ended").status == "completed"


def test_a_series_of_other_messages_is_no_task(host: HostMailbox) -> None:
    """mailbox MB-36: also where its first message is gone."""
    put(host, "second", series_id="first", status="completed")
    assert host.tasks.find("first") is None
    put(host, "third", series_id="first", status="pending")
    assert host.tasks.find("first") is None


def test_a_sweep_that_has_nothing_to_do_waits_for_no_lock(
    host: HostMailbox, agent: AgentMailbox, frozen_clock: FrozenClock
) -> None:
    """mailbox MB-50: whatever waits or is settled beside."""
    agent.inbox.complete(send(host).id)
    host.sweep.sync()
    host.tasks.create("recurring", prompt="p", when=DAILY)
    host.inbox.fail(send(host).id, error="no")
    host.tasks.create("paused", prompt="p", when=When())
    agent.inbox.claim("paused")
    host.tasks.pause("paused")
    frozen_clock.advance(2 * HOUR)
    hurried = HostMailbox.open(host.folder, settings=Settings(busy_timeout=0.001, retry_seconds=0), clock=frozen_clock)
    hurried.status()
    with closing(sqlite3.connect(inbound(host), isolation_level=None)) as rival:
        rival.execute("BEGIN IMMEDIATE")
        assert hurried.sweep.run(agent_started_at=None, policy=StalePolicy(max_context=0)).errors == ()
        rival.execute("ROLLBACK")


#: What another program or host does to the claimed message ``m`` between the look of a release and its write.
RIVALS = {
    "paused": "UPDATE messages_in SET status = 'paused' WHERE id = 'm'",
    "freed": "UPDATE messages_in SET tries = 1 WHERE id = 'm'",
    "replaced": "UPDATE messages_in SET seq = 40 WHERE id = 'm'",
    "settled": "UPDATE messages_in SET status = 'completed' WHERE id = 'm'",
}


@pytest.mark.parametrize("name", RIVALS)
def test_a_message_that_changed_after_the_look_is_not_freed(
    host: HostMailbox, agent: AgentMailbox, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """mailbox MB-52: whatever changed it has decided."""
    agent.inbox.claim(send(host, "m").id)
    changed: list[Any] = []

    def change() -> None:
        sql(inbound(host), RIVALS[name])
        changed.extend(sql(inbound(host), "SELECT * FROM messages_in"))

    sweep = host.sweep
    before(monkeypatch, sweep, "_writing", change)
    assert sweep.release(reason="killed").released == 0
    assert sql(inbound(host), "SELECT * FROM messages_in") == changed


def test_a_message_that_got_new_tries_after_the_look_is_not_given_up(
    host: HostMailbox, agent: AgentMailbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    """mailbox MB-52, MB-34: another host has queued it again."""
    send(host, "m")
    sql(inbound(host), "UPDATE messages_in SET tries = 5")
    agent.inbox.claim("m")
    sweep = host.sweep
    before(
        monkeypatch, sweep, "_writing", lambda: sql(inbound(host), "UPDATE messages_in SET tries = 6, tries_base = 6")
    )
    assert sweep.release(reason="killed").exhausted == 0
    assert host.inbox.get("m").status == "pending"


def test_of_two_messages_without_a_number_the_claimed_one_is_freed(host: HostMailbox, agent: AgentMailbox) -> None:
    """mailbox MB-52: others wrote them."""
    host.status()
    claimed, other = put(host, "claimed", status="pending"), put(host, "other", status="pending")
    agent.inbox.claim(claimed)
    assert host.sweep.release(reason="killed").released == 1
    assert (host.inbox.get(claimed).tries, host.inbox.get(other).tries) == (1, 0)


def test_a_claim_of_no_message_is_not_counted_as_ignored(host: HostMailbox) -> None:
    """mailbox MB-50: it would settle nothing."""
    for name, status in (("claimed", "processing"), ("done", "completed")):
        row = [name, status, "2026-01-01 00:00:00"]
        sql(outbound(host), "INSERT INTO processing_ack (message_id, status, status_changed) VALUES (?, ?, ?)", row)
    assert host.sweep.sync().ignored == 1


def test_waiting_for_deliveries_does_not_end_with_what_cannot_be_sent_yet(
    host: HostMailbox, agent: AgentMailbox
) -> None:
    """mailbox MB-49, MB-81: an edit waits for its target, which another delivers."""
    target = reply(agent)
    host.outbox.take_due()
    agent.outbox.edit(target.seq or 0, text="better")
    assert not host.outbox.wait(timedelta(0))
    host.outbox.mark_delivered(target.id)
    assert host.outbox.wait(timedelta(0))


def test_a_delivered_message_without_a_number_is_passed_over(host: HostMailbox, agent: AgentMailbox) -> None:
    """mailbox MB-82: what stands behind it is taken."""
    columns = "id, timestamp, kind, content"
    sql(
        outbound(agent),
        f"INSERT INTO messages_out ({columns}) VALUES ('theirs', '2026-01-01 00:00:00', 'chat', '{{}}')",
    )
    host.outbox.mark_delivered("theirs")
    sent = reply(agent)
    assert [due.message.id for due in host.outbox.take_due()] == [sent.id]
    assert host.outbox.take_due() == []


def test_what_is_no_folder_of_attachments_is_not_tidied(
    host: HostMailbox, frozen_clock: FrozenClock, caplog: pytest.LogCaptureFixture
) -> None:
    """mailbox MB-61, MB-64: an old file or link that somebody put there."""
    file, link = host.folder / "inbox" / "file", host.folder / "inbox" / "link"
    file.write_bytes(b"x")
    link.symlink_to(file)
    for path in (file, link):
        os.utime(path, (0, 0), follow_symlinks=False)
    assert host.sweep.tidy() == 0
    assert caplog.records == []
    assert (file.exists(), link.is_symlink()) == (True, True)


def test_what_is_no_folder_of_a_session_is_not_listed(mailboxes: Mailboxes, host: HostMailbox) -> None:
    """mailbox MB-06, MB-02: files and links, and folders with other names."""
    (mailboxes.root / "file").write_bytes(b"x")
    (mailboxes.root / "group" / "file").write_bytes(b"x")
    for parent in (mailboxes.root, mailboxes.root / "group"):
        (parent / "link").symlink_to(host.folder.parent if parent == mailboxes.root else host.folder)
    for hidden in (mailboxes.root / ".group" / "session", mailboxes.root / "group" / ".session"):
        hidden.mkdir(parents=True)
        (hidden / "inbound.db").write_bytes(b"")
    assert [(info.group, info.session) for info in mailboxes.list()] == [("group", "session")]


def test_a_claim_of_another_life_is_not_given_back(
    mailboxes: Mailboxes, host: HostMailbox, agent: AgentMailbox
) -> None:
    """mailbox MB-43: neither by an agent without a life nor by one with."""
    agent.start()
    plain = mailboxes.agent("group", "session")
    agent.inbox.claim(send(host, "own").id)
    plain.inbox.claim(send(host, "other").id)
    plain.inbox.release("own")
    agent.inbox.release("other")
    assert {claim.message_id for claim in host.sweep.claims()} == {"own", "other"}
    agent.inbox.release("own")
    assert {claim.message_id for claim in host.sweep.claims()} == {"other"}


def test_a_message_waits_beside_an_empty_file(host: HostMailbox, agent: AgentMailbox) -> None:
    """mailbox MB-04: nobody has acknowledged it, and what was sent there is not found."""
    send(host)
    answer = reply(agent)
    outbound(host).write_bytes(b"")
    assert (host.inbox.count_due(), host.sweep.sync().completed, host.sweep.claims()) == (1, 0, [])
    assert host.outbox.list_waiting().items == ()
    with pytest.raises(NotFound):
        host.outbox.get(answer.id)
