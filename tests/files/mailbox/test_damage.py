"""Rows that others stored, or that lie about a clock: each harms itself alone."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from support.between import before
from support.mailbox.files import ids, inbound, outbound, reply, send, sql

from lastlight_state.errors import InvalidValue
from lastlight_state.files.mailbox import AgentMailbox, HostMailbox, When, WhenChange
from lastlight_state.testing import FrozenClock


def test_a_message_that_cannot_be_read_fails_and_takes_no_place(host: HostMailbox, agent: AgentMailbox) -> None:
    """mailbox MB-40, MB-50: its host is told, wakes nobody for it, and settles what is beside it."""
    for _ in range(2):
        send(host)
    damaged, good = ids(agent.inbox.peek())
    sql(inbound(host), "UPDATE messages_in SET content = x'ff', recurrence = '@daily' WHERE id = ?", [damaged])
    assert ids(agent.inbox.take(limit=1)) == [good]
    agent.inbox.complete(good)
    assert host.inbox.count_due() == 0
    report = host.sweep.sync()
    assert (report.completed, report.failed, report.unreadable_series) == (1, 1, (damaged,))
    assert {one.id: one.error for one in host.inbox.list(status="failed").items} == {
        damaged: "the message cannot be read"
    }


def test_a_reply_that_cannot_be_read_is_undeliverable(host: HostMailbox, agent: AgentMailbox) -> None:
    """mailbox MB-85: a host that waits for what is due does not turn in circles over it."""
    bad, good = reply(agent), reply(agent)
    sql(outbound(agent), "UPDATE messages_out SET content = x'ff' WHERE id = ?", [bad.id])
    assert [due.message.id for due in host.outbox.take_due()] == [good.id]
    assert not host.outbox.wait(timedelta(0))
    assert [failed.error for failed in host.outbox.list_failed().items] == ["the message cannot be read"]


def test_a_tool_may_declare_any_timeout(host: HostMailbox, agent: AgentMailbox, frozen_clock: FrozenClock) -> None:
    """mailbox MB-51, MB-53: one beyond all bounds stops no sweep."""
    agent.tool_started("Bash")
    for millis in (2**63 - 1, -(2**63)):
        sql(outbound(agent), "UPDATE container_state SET tool_declared_timeout_ms = ?", [millis])
        assert host.sweep.run(agent_started_at=frozen_clock.now()).errors == ()


def test_a_lease_from_the_future_does_not_hold(
    host: HostMailbox, agent: AgentMailbox, frozen_clock: FrozenClock
) -> None:
    """mailbox MB-82: it was given before the clock was set back."""
    reply(agent)
    assert [due.attempt for due in host.outbox.take_due(lease=timedelta(days=1))] == [1]
    assert host.outbox.take_due() == []
    frozen_clock.advance(-timedelta(minutes=1))
    assert [due.in_doubt for due in host.outbox.take_due()] == [True]


def test_lists_hold_what_has_no_number_and_no_time(host: HostMailbox, agent: AgentMailbox) -> None:
    """mailbox MB-20, MB-36: on the page after one with numbers or times, too."""
    for name in "ab":
        send(host, name)
        reply(agent, name)
        host.tasks.create(f"later-{name}", prompt="x", when=When(process_after=host.inbox.get(name).timestamp))
        host.tasks.create(f"soon-{name}", prompt="x", when=When())
    sql(inbound(host), "UPDATE messages_in SET seq = NULL WHERE kind = 'chat'")
    sql(outbound(host), "UPDATE messages_out SET seq = NULL WHERE id = 'a'")
    tasks = ["soon-a", "soon-b", "later-a", "later-b"]
    assert walked(host.tasks.list) == tasks
    assert sorted(walked(host.inbox.list)) == sorted([*tasks, "a", "b"])
    assert walked(agent.outbox.list) == ["b", "a"]


def test_what_failed_and_has_no_number_is_queued_again(host: HostMailbox, agent: AgentMailbox) -> None:
    """mailbox MB-84."""
    failed, later = reply(agent, "a"), reply(agent, "b")
    sql(outbound(host), "UPDATE messages_out SET seq = NULL WHERE id = ?", [failed.id])
    host.outbox.mark_failed(failed.id, error="gone", permanent=True)
    host.outbox.mark_delivered(later.id)
    host.outbox.requeue(failed.id)
    assert host.outbox.list_failed().items == ()


def walked(listing: Any) -> list[str]:
    """The ids on all pages of one item."""
    found, page = [], listing(limit=1)
    while page.next_page_token:
        found += ids(page.items)
        page = listing(limit=1, page_token=page.next_page_token)
    return found + ids(page.items)


def test_a_zone_is_known_before_it_is_stored(host: HostMailbox) -> None:
    """mailbox MB-38: also that of a task which does not recur yet."""
    host.tasks.create("once", prompt="x", when=When())
    with pytest.raises(InvalidValue):
        host.tasks.update("once", when=WhenChange(timezone="Nowhere/Town"))


def test_an_id_that_is_used_again_meanwhile_is_not_settled(
    host: HostMailbox, agent: AgentMailbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    """mailbox MB-44: the acknowledgement that was seen is of the message that is gone."""
    send(host, "again")
    agent.inbox.take()
    agent.inbox.complete("again")

    def replaced() -> None:
        sql(inbound(host), "DELETE FROM messages_in")
        send(host, "again")

    sweep = host.sweep
    happened = before(monkeypatch, sweep, "_writing", replaced)
    assert sweep.sync().completed == 0
    assert happened == ["_writing"]
    assert host.inbox.get("again").status == "pending"


@pytest.mark.parametrize("word", ["completed", "failed"])
def test_a_message_that_is_settled_after_the_look_is_not_settled_again(
    host: HostMailbox, agent: AgentMailbox, monkeypatch: pytest.MonkeyPatch, word: str
) -> None:
    """mailbox MB-44: the sweep counts what it has settled itself."""
    message = send(host)
    agent.inbox.take()
    agent.inbox.complete(message.id)
    settled = "UPDATE messages_in SET status = ?"
    sweep = host.sweep
    happened = before(monkeypatch, sweep, "_writing", lambda: sql(inbound(host), settled, [word]))
    assert sweep.sync().completed == 0
    assert happened == ["_writing"]
    assert host.inbox.get(message.id).status == word


@pytest.mark.logs("going on without the other side's file")
def test_acknowledgements_stay_while_the_hosts_file_cannot_be_read(host: HostMailbox, agent: AgentMailbox) -> None:
    """mailbox MB-46: whether they are needed still cannot be told."""
    message = send(host)
    agent.inbox.complete(message.id)
    host.sweep.sync()
    inbound(host).write_bytes(b"this is no database" * 100)
    assert agent.start().tidied == 0
    assert sql(outbound(agent), "SELECT message_id FROM processing_ack") == [(message.id,)]
