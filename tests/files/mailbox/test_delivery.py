"""Delivery of what the agent sends: leases, receipts, attempts."""

from __future__ import annotations

from datetime import timedelta

import pytest
from support.mailbox.files import PLACE, ids, inbound, outbound, reply, send, sql

from lastlight_state.errors import AlreadyAnswered, AlreadyExists, InvalidValue, LostRace, NotFound
from lastlight_state.files.mailbox import (
    AgentMailbox,
    Deliver,
    DueMessage,
    HostMailbox,
    Mailboxes,
    NewDestination,
    Routing,
    Undeliverable,
)
from lastlight_state.testing import FrozenClock

MINUTE = timedelta(minutes=1)


def taken(host: HostMailbox) -> list[str]:
    return [due.message.id for due in host.outbox.take_due()]


def test_a_message_is_taken_by_one_drain(host: HostMailbox, agent: AgentMailbox, mailboxes: Mailboxes) -> None:
    """mailbox MB-82: the other gets what is left, in the order of writing."""
    sent = [reply(agent) for _ in range(5)]
    other = mailboxes.host("group", "session")
    due = host.outbox.take_due(limit=3)
    assert ([one.message.id for one in due], due[0].message.content) == (ids(sent[:3]), {"text": "yes"})
    assert taken(other) == ids(sent[3:])
    assert taken(host) == []


def test_at_most_a_hundred_messages_are_taken_at_once(host: HostMailbox) -> None:
    """mailbox MB-82."""
    assert host.outbox.take_due(limit=100) == []
    for limit in (0, 101):
        with pytest.raises(InvalidValue, match="limit"):
            host.outbox.take_due(limit=limit)


def test_an_attempt_without_an_answer_is_in_doubt(
    host: HostMailbox, agent: AgentMailbox, frozen_clock: FrozenClock
) -> None:
    """mailbox case 35: it is offered again after its lease, with the attempts so far."""
    reply(agent)
    [first] = host.outbox.take_due()
    frozen_clock.advance(2 * MINUTE)
    [second] = host.outbox.take_due()
    assert [(due.attempt, due.in_doubt) for due in (first, second)] == [(1, False), (2, True)]


def test_the_third_failure_ends_it(
    host: HostMailbox, agent: AgentMailbox, mailboxes: Mailboxes, frozen_clock: FrozenClock
) -> None:
    """mailbox MB-84: attempts are counted in the file, so a restart forgets none."""
    message = reply(agent)
    for restarted in (host, mailboxes.host("group", "session"), mailboxes.host("group", "session")):
        assert taken(restarted) == [message.id]
        restarted.outbox.mark_failed(message.id, error="refused")
        assert taken(restarted) == []
        frozen_clock.advance(MINUTE)
    [found] = host.outbox.list_failed()
    assert (found.message_out_id, found.status, found.attempts, found.error) == (message.id, "failed", 3, "refused")
    host.outbox.requeue(message.id)
    assert taken(host) == [message.id]
    with pytest.raises(LostRace):
        host.outbox.requeue(message.id)


def test_what_is_settled_is_not_read_again(host: HostMailbox, agent: AgentMailbox) -> None:
    """mailbox MB-82: a host reads from behind the last message before which none is open."""
    sent = [reply(agent) for _ in range(4)]
    for message in (sent[0], sent[1], sent[3]):
        host.outbox.mark_delivered(message.id)
    assert taken(host) == [sent[2].id]
    assert sql(inbound(host), "SELECT value FROM mailbox_meta WHERE key = 'settled_seq'") == [(str(sent[1].seq),)]


def test_the_delay_before_the_next_attempt_doubles(
    host: HostMailbox, agent: AgentMailbox, frozen_clock: FrozenClock
) -> None:
    """mailbox MB-84: 5 seconds, then 10."""
    message = reply(agent)
    for seconds in (5, 10):
        assert taken(host) == [message.id]
        host.outbox.mark_failed(message.id, error="busy")
        frozen_clock.advance(timedelta(seconds=seconds, milliseconds=-1))
        assert taken(host) == []
        frozen_clock.advance(timedelta(milliseconds=1))
    assert taken(host) == [message.id]


def test_the_first_outcome_stays(host: HostMailbox, agent: AgentMailbox) -> None:
    """mailbox MB-83: the error carries it."""
    sent, lost = reply(agent), reply(agent)
    host.outbox.mark_delivered(sent.id, platform_message_id="p-1")
    assert host.outbox.mark_delivered(sent.id, platform_message_id="p-2").platform_message_id == "p-1"
    with pytest.raises(AlreadyAnswered) as error:
        host.outbox.mark_failed(sent.id, error="late")
    assert error.value.winner.platform_message_id == "p-1"
    host.outbox.mark_failed(lost.id, error="gone", permanent=True)
    with pytest.raises(AlreadyAnswered):
        host.outbox.mark_delivered(lost.id)
    with pytest.raises(NotFound):
        host.outbox.mark_delivered("unknown")


def test_a_failure_after_the_lease_does_not_disturb_the_next_attempt(
    host: HostMailbox, agent: AgentMailbox, frozen_clock: FrozenClock
) -> None:
    """mailbox MB-84: whoever has the message now decides."""
    message = reply(agent)
    [first] = host.outbox.take_due()
    frozen_clock.advance(2 * MINUTE)
    host.outbox.take_due()
    with pytest.raises(LostRace):
        host.outbox.mark_failed(message.id, error="late", token=first.token)
    assert host.outbox.mark_delivered(message.id, token=first.token).status == "delivered"


@pytest.mark.logs("could not be delivered")
def test_nothing_is_marked_delivered_that_was_not(host: HostMailbox, agent: AgentMailbox) -> None:
    """mailbox MB-85: each failure has its reason, and a later message is still sent."""
    nowhere = agent.outbox.send(kind="chat", content={"text": "lost"})
    broken, refused, shaky, sound = (reply(agent, text=word) for word in ("broken", "refused", "shaky", "sound"))
    sql(outbound(agent), "UPDATE messages_out SET content = '{' WHERE id = ?", [broken.id])
    asked = []

    def adapter(due: DueMessage) -> str | None:
        asked.append(due.message.id)
        if due.message.id == refused.id:
            raise Undeliverable("no adapter for slack")
        if due.message.id == shaky.id:
            raise ConnectionError("reset")
        return "p-1"

    report = host.outbox.drain(adapter)
    assert (report.delivered, report.retried, report.failed) == (1, 1, 3)
    assert asked == [refused.id, shaky.id, sound.id]
    outcomes = [agent.outbox.delivery(message.id) for message in (nowhere, broken, refused, shaky, sound)]
    assert [found.status for found in outcomes] == ["failed", "failed", "failed", "pending", "delivered"]
    assert outcomes[2].error == "no adapter for slack"


@pytest.mark.logs("was sent after it had been given up")
def test_a_message_that_is_given_up_while_it_is_sent_stops_no_other(host: HostMailbox, agent: AgentMailbox) -> None:
    """mailbox MB-85: the first outcome stays."""
    sent = [reply(agent) for _ in range(2)]

    def adapter(due: DueMessage) -> str:
        if due.message.id == sent[0].id:
            host.outbox.mark_failed(due.message.id, error="x", permanent=True)
        return "p-1"

    assert host.outbox.drain(adapter).delivered == 2
    assert [agent.outbox.delivery(message.id).status for message in sent] == ["failed", "delivered"]


def test_a_sending_that_fails_after_another_settled_it_counts_as_that_one_did(
    host: HostMailbox, agent: AgentMailbox, mailboxes: Mailboxes, frozen_clock: FrozenClock
) -> None:
    """mailbox MB-85, MB-84: delivered by another it is delivered, and one that another has taken is tried there."""
    delivered, taken_over = reply(agent), reply(agent)
    other = mailboxes.host("group", "session")

    def adapter(due: DueMessage) -> str:
        if due.message.id == delivered.id:
            other.outbox.mark_delivered(due.message.id, platform_message_id="p-1")
        else:
            frozen_clock.advance(2 * MINUTE)
            assert taken(other) == [taken_over.id]
        raise Undeliverable("reset")

    report = host.outbox.drain(adapter)
    assert (report.delivered, report.retried, report.failed) == (1, 1, 0)
    assert host.outbox.list_failed().items == ()
    assert other.outbox.mark_delivered(taken_over.id).status == "delivered"


def test_the_last_message_that_was_settled_is_sent_again_when_it_is_queued_again(
    host: HostMailbox, agent: AgentMailbox
) -> None:
    """mailbox MB-84: also where a host has gone on behind it."""
    lost, later = reply(agent), reply(agent)
    host.outbox.mark_failed(lost.id, error="gone", permanent=True)
    assert taken(host) == [later.id]
    host.outbox.requeue(lost.id)
    assert taken(host) == [lost.id]


def test_what_was_queued_again_hides_no_earlier_message(host: HostMailbox, agent: AgentMailbox) -> None:
    """mailbox MB-84, MB-82: a host reads on from where it stood."""
    first, second, lost = (reply(agent) for _ in range(3))
    host.outbox.mark_failed(lost.id, error="gone", permanent=True)
    host.outbox.requeue(lost.id)
    assert taken(host) == [first.id, second.id, lost.id]


def test_a_message_to_the_host_itself_needs_no_place(host: HostMailbox, agent: AgentMailbox) -> None:
    """mailbox MB-85: of the kind ``system``."""
    agent.outbox.send(kind="system", content={"action": "restart"})
    report = host.outbox.drain(lambda _due: None)
    assert (report.delivered, report.failed) == (1, 0)


def test_delivery_waits_for_its_time(host: HostMailbox, agent: AgentMailbox, frozen_clock: FrozenClock) -> None:
    """mailbox case 38: in either form; messages of one second go out in the order of writing."""
    now = frozen_clock.now()
    late = reply(agent, deliver=Deliver(after=now + 60 * MINUTE))
    sent = [reply(agent, deliver=Deliver(after=now - 60 * MINUTE)), reply(agent), reply(agent)]
    sql(outbound(agent), "UPDATE messages_out SET deliver_after = '2001-01-01T00:00:00Z' WHERE id = ?", [sent[1].id])
    assert taken(host) == ids(sent)
    frozen_clock.advance(61 * MINUTE)
    assert late.id in taken(host)


def test_an_edit_goes_out_after_its_target(host: HostMailbox, agent: AgentMailbox) -> None:
    """mailbox MB-81: with the platform's id; it fails with a target that failed."""
    target, lost = reply(agent), reply(agent)
    edit = agent.outbox.edit(target.seq or 0, text="better")
    agent.outbox.react(lost.seq or 0, emoji="+1")
    assert edit.routing == PLACE
    assert taken(host) == ids([target, lost])
    host.outbox.mark_delivered(target.id, platform_message_id="p-7")
    host.outbox.mark_failed(lost.id, error="gone", permanent=True)
    [due] = host.outbox.take_due()
    assert (due.message.id, due.message.content["messageId"]) == (edit.id, "p-7")
    assert [found.error for found in host.outbox.list_failed()].count("target_failed") == 1


def test_an_edit_whose_target_is_gone_fails(host: HostMailbox, agent: AgentMailbox) -> None:
    """mailbox MB-81"""
    target = reply(agent)
    edit = agent.outbox.edit(target.seq or 0, text="better")
    sql(outbound(agent), "DELETE FROM messages_out WHERE id = ?", [target.id])
    assert taken(host) == []
    assert [(found.message_out_id, found.error) for found in host.outbox.list_failed()] == [(edit.id, "target_failed")]


def test_a_reaction_to_an_inbound_message_names_it_as_the_platform_does(host: HostMailbox, agent: AgentMailbox) -> None:
    """mailbox MB-81: the group that the original adds to the id is taken off."""
    send(host, "1700.5:group")
    agent.outbox.react(2, emoji="+1")
    [due] = host.outbox.take_due()
    assert due.message.content == {"operation": "reaction", "emoji": "+1", "messageId": "1700.5"}


def test_a_message_goes_where_it_is_told(host: HostMailbox, agent: AgentMailbox) -> None:
    """mailbox MB-80, MB-91, case 84: to a place, a destination that is looked up now, or the default."""
    host.routing.put_default(PLACE)
    host.routing.replace_destinations([NewDestination("ops", "channel", channel_type="slack", platform_id="C9")])
    assert agent.outbox.send(kind="chat", content={}).routing == PLACE
    assert agent.outbox.send(kind="chat", content={}, routing="ops").routing == Routing("slack", "C9")
    allowed = [PLACE, Routing("slack", "C9", "T7"), Routing("slack", "C8")]
    assert [host.routing.allows(place) for place in allowed] == [True, True, False]
    host.routing.replace_destinations([])
    with pytest.raises(NotFound):
        agent.outbox.send("unsent", kind="chat", content={}, routing="ops")
    assert agent.outbox.find("unsent") is None


def test_an_id_is_sent_once(agent: AgentMailbox) -> None:
    """mailbox MB-80"""
    reply(agent, "one")
    with pytest.raises(AlreadyExists):
        reply(agent, "one")


def test_no_call_of_the_host_writes_the_agents_file(host: HostMailbox, agent: AgentMailbox) -> None:
    """mailbox MB-86"""
    message, sent = send(host), reply(agent)
    agent.inbox.take()
    before = outbound(host).read_bytes()
    host.outbox.drain(lambda _due: "p-1")
    host.sweep.run(agent_started_at=None)
    host.outbox.files(sent.id)
    host.inbox.fail(message.id, error="no")
    host.inbox.resolve_seq(sent.seq or 0)
    host.status()
    assert outbound(host).read_bytes() == before


def test_what_happens_is_counted(host: HostMailbox, agent: AgentMailbox, frozen_clock: FrozenClock) -> None:
    """mailbox MB-104, MB-23: sends, takes, tries, sends in doubt, odd times, and numbers without the other file."""
    send(host)
    sql(inbound(host), "UPDATE messages_in SET process_after = 'soon'")
    agent.inbox.take()
    sent = reply(agent)
    host.outbox.take_due()
    host.outbox.mark_failed(sent.id, error="busy")
    frozen_clock.advance(timedelta(hours=1))
    host.outbox.take_due()
    frozen_clock.advance(timedelta(hours=1))
    host.outbox.take_due()
    outbound(host).unlink()
    send(host)
    counted = {name: count for name, count in vars(host.metrics).items() if name.startswith("mailbox_")}
    assert counted == {
        "mailbox_sent": 3,
        "mailbox_taken": 4,
        "mailbox_retried": 1,
        "mailbox_in_doubt": 1,
        "mailbox_unreadable_times": 1,
        "mailbox_lone_numbers": 1,
        "mailbox_copies": 0,
    }
    assert agent.metrics is host.metrics
