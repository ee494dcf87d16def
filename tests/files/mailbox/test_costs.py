"""What a call of a mailbox costs, in counts that repeat: openings, statements and calls of Python."""

from __future__ import annotations

import pytest
from support.mailbox.files import inbound, outbound, reply, send, sql
from support.mailbox.openings import Costs, costs

from lastlight_state.errors import CorruptData
from lastlight_state.files.mailbox import AgentMailbox, HostMailbox, Mailboxes


def acknowledged(host: HostMailbox, agent: AgentMailbox) -> Costs:
    """The costs of an acknowledgement."""
    message = send(host)
    agent.inbox.take()
    return costs(lambda: agent.inbox.complete(message.id))


def test_an_acknowledgement_costs_the_same_after_any_number_of_earlier_ones(
    host: HostMailbox, agent: AgentMailbox
) -> None:
    """mailbox MB-112: whether the host has seen them or not."""
    agent.start()
    found = [acknowledged(host, agent) for _ in range(60)]
    assert found[20][:2] == found[-1][:2]
    assert abs(found[20].calls - found[-1].calls) < 20  # as many as are looked at each time
    assert found[-1].openings == 2
    assert found[-1].statements <= 15
    assert found[-1].calls <= 300  # 250 on Python 3.11, where each call of SQLite's own cache counts
    host.sweep.sync()
    late = [acknowledged(host, agent) for _ in range(20)]
    assert max(one.statements for one in late) <= 15
    assert sql(outbound(agent), "SELECT count(*) FROM processing_ack")[0][0] <= 21


def test_acknowledgements_that_stay_keep_no_other_one(host: HostMailbox, agent: AgentMailbox) -> None:
    """mailbox MB-75: each completion looks at others than the one before."""
    agent.start()
    kept = [send(host, f"a-{number:02}") for number in range(20)]
    agent.inbox.take(limit=100)
    for message in kept:
        agent.inbox.fail(message.id, error="again")
    for number in range(20):
        agent.inbox.complete(send(host, f"b-{number:02}").id)
    sql(inbound(host), "UPDATE messages_in SET status = 'completed' WHERE id LIKE 'b-%'")
    for number in range(10):
        agent.inbox.complete(send(host, f"c-{number:02}").id)
    assert sql(outbound(agent), "SELECT count(*) FROM processing_ack WHERE message_id LIKE 'b-%'") == [(0,)]
    assert sql(outbound(agent), "SELECT count(*) FROM processing_ack WHERE message_id LIKE 'a-%'") == [(20,)]


def test_an_agent_that_was_not_started_clears_what_it_finds(
    host: HostMailbox, agent: AgentMailbox, mailboxes: Mailboxes
) -> None:
    """mailbox MB-75: with its first completion, many at once."""
    for number in range(30):
        agent.inbox.complete(send(host, f"a-{number:02}").id)
    sql(inbound(host), "UPDATE messages_in SET status = 'completed'")
    mailboxes.agent("group", "session").inbox.complete(send(host, "b").id)
    assert sql(outbound(agent), "SELECT message_id FROM processing_ack") == [("b",)]


@pytest.mark.parametrize("damaged", [6, 30])
def test_damaged_acknowledgements_keep_no_other_one(host: HostMailbox, agent: AgentMailbox, *, damaged: int) -> None:
    """mailbox MB-75: fewer or more than a completion looks at."""
    agent.start()
    for number in range(damaged):
        agent.inbox.complete(send(host, f"a-{number}").id)
    sql(outbound(agent), "UPDATE processing_ack SET status_changed = x'ff'")
    for number in range(30):
        agent.inbox.complete(send(host, f"b-{number:02}").id)
    sql(inbound(host), "UPDATE messages_in SET status = 'completed'")
    for number in range(15):
        agent.inbox.complete(send(host, f"c-{number:02}").id)
    assert sql(outbound(agent), "SELECT 1 FROM processing_ack WHERE message_id LIKE 'b-%'") == []


def test_a_message_costs_few_statements(host: HostMailbox, agent: AgentMailbox) -> None:
    """mailbox MB-112: sending, taking and answering one, each with one opening of either file."""
    agent.start()
    reply(agent)
    send(host)
    found = [costs(lambda: send(host)), costs(agent.inbox.take), costs(lambda: reply(agent))]
    assert [one.openings for one in found] == [2, 2, 2]
    assert max(one.statements for one in found) <= 20


def test_a_file_with_a_name_of_thousands_of_letters_is_refused(host: HostMailbox, agent: AgentMailbox) -> None:
    """mailbox MB-66: what is remembered of a file has a bound."""
    sql(outbound(agent), f'CREATE TABLE "{"x" * 5000}" (y)')
    with pytest.raises(CorruptData, match="long name"):
        host.outbox.list_waiting()
