"""What an agent keeps over restarts, and where it may send."""

from __future__ import annotations

import pytest
from support.mailbox.files import outbound, sql

from lastlight_state.errors import InvalidValue, NotFound
from lastlight_state.files.mailbox import AgentMailbox, HostMailbox, Mailboxes, NewDestination, Routing

OPS = NewDestination("ops", "channel", channel_type="slack", platform_id="C9")


def test_values_survive_restarts(agent: AgentMailbox, mailboxes: Mailboxes) -> None:
    """mailbox MB-92"""
    agent.state.put("a", "1")
    agent.state.put("a", "2")
    again = mailboxes.agent("group", "session").state
    assert (again.get("a"), again.find("b"), [entry.key for entry in again.list()]) == ("2", None, ["a"])
    assert (again.clear("a"), again.clear("a")) == (True, False)
    with pytest.raises(NotFound):
        again.get("a")


def test_a_conversation_is_kept_for_each_provider(agent: AgentMailbox) -> None:
    """mailbox MB-92: whatever the case of its name."""
    agent.state.put_continuation("Claude", "c-1")
    assert agent.state.continuation("claude") == "c-1"
    assert agent.state.get("continuation:claude") == "c-1"
    assert agent.state.clear_continuation("CLAUDE")
    assert agent.state.continuation("claude") is None


@pytest.mark.parametrize(("own", "found"), [(None, "old"), ("new", "new")])
def test_a_conversation_of_the_original_is_taken_over_once(agent: AgentMailbox, own: str | None, found: str) -> None:
    """mailbox MB-92: into an empty slot, and forgotten otherwise."""
    legacy = (
        "INSERT INTO session_state (key, value, updated_at) VALUES ('sdk_session_id', 'old', '2026-01-01 00:00:00')"
    )
    sql(outbound(agent), legacy)
    if own is not None:
        agent.state.put_continuation("claude", own)
    assert agent.state.continuation("claude") == found
    assert agent.state.find("sdk_session_id") is None
    assert agent.state.continuation("other") is None


def test_destinations_are_replaced_whole(host: HostMailbox, agent: AgentMailbox) -> None:
    """mailbox MB-90: an equal set writes nothing, and a refused one leaves the old."""
    peer = NewDestination("peer", "agent", agent_group_id="g-2")
    assert host.routing.replace_destinations([OPS, peer])
    assert not host.routing.replace_destinations([peer, OPS])
    refused = [[OPS, OPS], [NewDestination("x", "channel")], [NewDestination("x", "agent")], [NewDestination("x", "y")]]
    for entries in refused:
        with pytest.raises(InvalidValue):
            host.routing.replace_destinations(entries)
    assert [found.name for found in agent.routing.list_destinations()] == ["ops", "peer"]
    assert agent.routing.resolve("ops").display_name == "ops"
    assert agent.outbox.send(kind="chat", content={}, routing="peer").routing == Routing("agent", "g-2")
    assert host.routing.replace_destinations([])
    assert host.routing.list_destinations() == []


def test_a_default_is_one_row(host: HostMailbox, agent: AgentMailbox) -> None:
    """mailbox MB-91: set to nothing, there is none."""
    host.routing.put_default(Routing("slack", "C1"))
    host.routing.put_default(Routing("slack", "C2", "T"))
    assert agent.routing.find_default() == host.routing.find_default() == Routing("slack", "C2", "T")
    host.routing.put_default(None)
    assert agent.routing.find_default() is None
    assert not host.routing.allows(Routing())
