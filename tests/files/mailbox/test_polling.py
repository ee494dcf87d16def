"""Polling, claiming and acknowledging."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime, timedelta

import pytest
from support.jsonl.lines import counted
from support.mailbox.files import ids, inbound, outbound, reply, send, sql

from lastlight_state.errors import ClaimLost, InvalidValue, LostRace, NotFound
from lastlight_state.files.mailbox import AgentMailbox, HostMailbox, Mailboxes, NewMessage, When
from lastlight_state.testing import FrozenClock


def test_context_never_hides_work(host: HostMailbox, agent: AgentMailbox) -> None:
    """mailbox MB-41, case 1: an old message that wakes is taken, with the newest context."""
    first = send(host)
    context = host.inbox.send_many([NewMessage("chat", {}, when=When(trigger=False)) for _ in range(50)])
    assert ids(agent.inbox.take(limit=10)) == [first.id, *ids(context[-9:])]


def test_kinds_that_are_skipped_take_no_place(host: HostMailbox, agent: AgentMailbox) -> None:
    """mailbox MB-40, case 2"""
    chat = send(host)
    host.inbox.send_many([NewMessage("system", {}) for _ in range(20)])
    assert ids(agent.inbox.take(limit=10)) == [chat.id]


def test_messages_that_are_held_take_no_place(host: HostMailbox, agent: AgentMailbox) -> None:
    """mailbox case 3: before any sync, the other five come at once."""
    sent = host.inbox.send_many([NewMessage("chat", {}) for _ in range(15)])
    agent.inbox.claim(*ids(sent[5:]))
    assert ids(agent.inbox.take(limit=10)) == ids(sent[:5])
    assert ids(agent.inbox.take(limit=10)) == []


def test_context_alone_wakes_nobody(host: HostMailbox, agent: AgentMailbox) -> None:
    """mailbox MB-41: it waits for a message that does."""
    send(host, trigger=False)
    assert ids(agent.inbox.peek()) == []
    assert host.inbox.count_due() == 0


def test_messages_without_a_number_come_first(host: HostMailbox, agent: AgentMailbox) -> None:
    """mailbox MB-41: as others store them, by time and id, work and context alike."""
    numbered = send(host)
    for name, day, trigger in (("b", 2, 1), ("a", 2, 1), ("c", 1, 1), ("d", 1, 0)):
        insert = "INSERT INTO messages_in (id, kind, timestamp, trigger, content) VALUES (?, 'chat', ?, ?, '{}')"
        sql(inbound(host), insert, [name, f"2026-01-0{day} 00:00:00", trigger])
    assert ids(agent.inbox.peek()) == ["c", "d", "a", "b", numbered.id]
    assert ids(agent.inbox.peek(limit=2)) == ["c", "a"]


def test_a_claim_is_won_once(host: HostMailbox, agent: AgentMailbox, mailboxes: Mailboxes) -> None:
    """mailbox MB-42: what is held or settled is left out, and an unknown id is refused before any claim."""
    first, second = send(host), send(host)
    helper = mailboxes.agent("group", "session")
    assert agent.inbox.claim(first.id) == (first.id,)
    assert helper.inbox.claim(first.id, second.id) == (second.id,)
    with pytest.raises(NotFound):
        helper.inbox.claim("unknown")
    assert agent.inbox.claim() == ()


def test_settling_keeps_the_first_answer(host: HostMailbox, agent: AgentMailbox) -> None:
    """mailbox MB-43: again is nothing, the opposite is lost, and no ids are no transaction."""
    first, second = send(host), send(host)
    agent.inbox.fail(first.id, error="broken")
    with pytest.raises(LostRace):
        agent.inbox.complete(first.id)
    agent.inbox.complete(second.id)
    agent.inbox.complete(second.id)
    agent.inbox.complete()
    with pytest.raises(LostRace):
        agent.inbox.fail(second.id, error="late")


def test_a_released_message_is_taken_again_at_once(host: HostMailbox, agent: AgentMailbox) -> None:
    """mailbox MB-43: it counts no try, and a claim of another life of the agent stays."""
    message = send(host)
    agent.start()
    assert ids(agent.inbox.take()) == [message.id]
    stranger = AgentMailbox.open(agent.folder)
    stranger.inbox.release(message.id)
    assert ids(agent.inbox.take()) == []
    agent.inbox.release(message.id)
    assert ids(agent.inbox.take()) == [message.id]


def test_a_new_life_frees_the_claims_of_the_last(host: HostMailbox, agent: AgentMailbox) -> None:
    """mailbox MB-45: opening frees nothing; what was completed stays hidden."""
    done, held = send(host), send(host)
    agent.start()
    agent.inbox.take()
    agent.inbox.complete(done.id)
    sibling = AgentMailbox.open(agent.folder, instance=agent.instance)
    assert ids(sibling.inbox.peek()) == []
    assert sibling.start().freed == 1
    assert ids(sibling.inbox.take()) == [held.id]


def test_a_replaced_agent_writes_nothing(host: HostMailbox, agent: AgentMailbox, mailboxes: Mailboxes) -> None:
    """mailbox MB-45: its sends and acknowledgements are `ClaimLost`, also one that is a single statement."""
    message = send(host)
    agent.start()
    agent.inbox.take()
    mailboxes.agent("group", "session").start()
    for call in (
        lambda: reply(agent),
        lambda: agent.inbox.complete(message.id),
        lambda: agent.state.put("k", "v"),
        lambda: agent.state._once(lambda _: None),
    ):
        with pytest.raises(ClaimLost) as lost:
            call()
        assert (lost.value.presented, lost.value.current_epoch) == (1, 2)
    assert sql(outbound(agent), "SELECT count(*) FROM messages_out") == [(0,)]


def test_messages_for_a_fresh_agent_come_on_its_first_poll(host: HostMailbox, agent: AgentMailbox) -> None:
    """mailbox case 48"""
    message = send(host, on_wake=True)
    assert ids(agent.inbox.take()) == []
    agent.start()
    assert ids(agent.inbox.take()) == [message.id]
    agent.inbox.release(message.id)
    assert ids(agent.inbox.take()) == []


@pytest.mark.parametrize(
    ("text", "due", "named"),
    [
        ("2026-02-03T17:00:00+05:00", True, False),
        ("2026-02-03T12:00:00Z", True, False),
        ("2026-02-03 12:00:00", True, False),
        ("2026-02-03 13:00:00", True, False),
        ("2026-02-03T14:00:00.000Z", False, False),
        ("2026-02-30 12:00:00", True, True),
        ("0001-01-01 00:00:00+14:00", True, True),
        ("garbage", True, True),
        ("", True, True),
        ("20260203", True, True),
    ],
)
def test_times_of_others_are_read_as_instants(
    host: HostMailbox, agent: AgentMailbox, frozen_clock: FrozenClock, text: str, *, due: bool, named: bool
) -> None:
    """mailbox MB-11: what is no time counts as due, and is named."""
    frozen_clock.set(datetime(2026, 2, 3, 13, tzinfo=UTC))
    message = send(host)
    sql(inbound(host), "UPDATE messages_in SET process_after = ?", [text])
    batch = agent.inbox.peek()
    assert ids(batch) == ([message.id] if due else [])
    assert batch.unreadable_times == ((message.id,) if named else ())


def test_naive_times_are_refused(host: HostMailbox) -> None:
    """mailbox MB-30: a time without a zone would be a guess."""
    with pytest.raises(InvalidValue):
        send(host, process_after=datetime(2026, 1, 1))  # noqa: DTZ001 - that is the point


def test_content_of_others_that_is_no_json_is_marked(host: HostMailbox, agent: AgentMailbox) -> None:
    """mailbox MB-14: the batch is whole."""
    first, second = send(host), send(host)
    sql(inbound(host), "UPDATE messages_in SET content = '{broken' WHERE id = ?", [first.id])
    found = agent.inbox.take().messages
    assert [(message.malformed, message.raw) for message in found] == [(True, "{broken"), (False, None)]
    assert ids(found) == [first.id, second.id]


@pytest.mark.logs("passed over a row that cannot be read")
def test_a_damaged_row_hides_no_other(host: HostMailbox, agent: AgentMailbox) -> None:
    """mailbox MB-40: bytes where a text should be harm that message alone."""
    first, second = send(host), send(host)
    sql(inbound(host), "UPDATE messages_in SET kind = x'ff00' WHERE id = ?", [first.id])
    assert ids(agent.inbox.take()) == [second.id]


def test_an_answer_is_found_by_its_question(host: HostMailbox, agent: AgentMailbox) -> None:
    """mailbox MB-47, case 62: spacing and wildcards mean nothing, and a handled answer does not hide the next."""
    host.inbox.send("other", kind="system", content={"questionId": "qx1"})
    first = host.inbox.send("first", kind="system", content={"questionId": "q_1"})
    second = host.inbox.send("second", kind="system", content={"payload": {"questionId": "q_1"}})
    sql(inbound(host), "UPDATE messages_in SET content = '{\"questionId\" :  \"q_1\"}' WHERE id = 'first'")
    found = agent.inbox.find_response("q_1")
    assert found is not None
    assert found.id == first.id
    agent.inbox.complete(first.id)
    found = agent.inbox.find_response("q_1")
    assert found is not None
    assert found.id == second.id
    assert agent.inbox.find_response("q%1") is None
    ahead = When(process_after=datetime(2099, 1, 1, tzinfo=UTC))
    host.inbox.send(kind="system", content={"questionId": "q_2"}, when=ahead)
    assert agent.inbox.find_response("q_2") is None


def test_a_reply_and_what_it_answers_are_one_commit(host: HostMailbox, agent: AgentMailbox) -> None:
    """mailbox MB-48: neither is there when the block fails."""
    message = send(host)
    agent.inbox.take()
    with suppress(ZeroDivisionError), agent.transaction() as together:
        reply(together)
        together.inbox.complete(message.id)
        _ = 1 / 0
    assert agent.outbox.list().items == ()
    with agent.transaction() as together:
        reply(together)
        together.inbox.complete(message.id)
    assert host.sweep.sync().completed == 1
    assert len(agent.outbox.list()) == 1


def test_waiting_ends_when_there_is_a_message(host: HostMailbox, agent: AgentMailbox) -> None:
    """mailbox MB-49"""
    assert not agent.inbox.wait(timedelta(0))
    send(host)
    assert agent.inbox.wait(timedelta(seconds=30))


def test_waiting_rests_between_two_looks(agent: AgentMailbox, monkeypatch: pytest.MonkeyPatch) -> None:
    """mailbox MB-49: for the interval, so that an idle agent does not read the file without a pause."""
    looks = counted(monkeypatch, type(agent.inbox), "peek")
    assert not agent.inbox.wait(timedelta(milliseconds=100), interval=timedelta(milliseconds=80))
    assert len(looks) <= 4


def test_acknowledgements_follow_the_live_work(host: HostMailbox, agent: AgentMailbox) -> None:
    """mailbox MB-46: those of settled messages are removed by the next completion, or the next start."""
    sent = [send(host) for _ in range(3)]
    for message in sent:
        agent.inbox.complete(message.id)
        host.sweep.sync()
    assert sql(outbound(agent), "SELECT message_id FROM processing_ack") == [(sent[-1].id,)]
    assert agent.start().tidied == 1
    assert sql(outbound(agent), "SELECT message_id FROM processing_ack") == []


def test_an_old_acknowledgement_does_not_swallow_a_message_of_its_id(host: HostMailbox, agent: AgentMailbox) -> None:
    """mailbox MB-44"""
    send(host, "again")
    agent.inbox.complete("again")
    sql(inbound(host), "DELETE FROM messages_in")
    send(host, "again")
    assert ids(agent.inbox.take()) == ["again"]


def test_an_answer_that_waits_is_found_before_what_wakes_nobody(host: HostMailbox, agent: AgentMailbox) -> None:
    """mailbox MB-47: what comes behind it hides it not."""
    answer = host.inbox.send("answer", kind="chat", content={"questionId": "q"})
    host.inbox.send_many([NewMessage("chat", {"questionId": "other"}, when=When(trigger=False)) for _ in range(3)])
    found = agent.inbox.find_response("q")
    assert found is not None
    assert found.id == answer.id


def test_a_message_without_a_time_has_no_unreadable_one(host: HostMailbox, agent: AgentMailbox) -> None:
    """mailbox MB-11"""
    send(host, "plain")
    send(host, "odd")
    sql(inbound(host), "UPDATE messages_in SET process_after = 'soon' WHERE id = 'odd'")
    assert agent.inbox.peek().unreadable_times == ("odd",)


@pytest.mark.parametrize("is_started", [True, False])
def test_a_claim_of_another_is_no_claim_of_this_agent(
    mailboxes: Mailboxes, host: HostMailbox, frozen_clock: FrozenClock, is_started: bool
) -> None:
    """mailbox MB-43, MB-44: after the host has freed it, what this one says of the message counts."""
    agent = mailboxes.agent("group", "session")
    if is_started:
        agent.start()
    message = send(host)
    mailboxes.agent("group", "session").inbox.claim(message.id)
    frozen_clock.advance(timedelta(seconds=1))
    assert host.sweep.release(reason="killed").released == 1
    agent.inbox.fail(message.id, error="broken")
    assert host.sweep.sync().failed == 1


def test_an_acknowledgement_of_an_earlier_message_with_the_id_settles_nothing(
    host: HostMailbox, agent: AgentMailbox
) -> None:
    """mailbox MB-44, MB-46: and the next completion removes it."""
    agent.inbox.complete(send(host, "again").id)
    sql(inbound(host), "DELETE FROM messages_in")
    send(host, "again")
    assert host.sweep.sync().completed == 0
    agent.inbox.complete(send(host, "other").id)
    assert sql(outbound(host), "SELECT message_id FROM processing_ack") == [("other",)]


def test_a_completion_of_the_original_before_a_release_settles_nothing(host: HostMailbox, agent: AgentMailbox) -> None:
    """mailbox MB-44, MB-50: it names no try, so its time decides; a later one counts."""
    message = send(host)
    sql(
        outbound(host),
        "INSERT INTO processing_ack VALUES (?, 'processing', '2026-01-01', NULL, NULL, NULL, NULL)",
        [message.id],
    )
    assert host.sweep.release(reason="gone").released == 1
    sql(outbound(host), "UPDATE processing_ack SET status = 'completed', status_changed = '2026-01-01 00:00:00'")
    assert host.sweep.sync().completed == 0
    sql(outbound(host), "UPDATE processing_ack SET status_changed = '2999-01-01 00:00:00'")
    assert host.sweep.sync().completed == 1
