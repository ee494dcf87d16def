"""Words of other programs that are not known: they are neither an end nor a claim, and hide nothing without a word."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from support.each import with_each
from support.mailbox.files import ids, inbound, outbound, reply, send, sql
from support.mailbox.pairs import mailbox_pair

from lastlight_state.errors import CorruptData, LostRace
from lastlight_state.files.mailbox import AgentMailbox, HostMailbox, NewDestination, Routing
from lastlight_state.testing import FrozenClock

NOON = datetime(2026, 2, 3, 12, tzinfo=UTC)
WORDS = ("script-skip:error", "skipped", "COMPLETED", "", "a'b")
ACK = "INSERT INTO processing_ack (message_id, status, status_changed) VALUES (?, ?, '2026-02-03 11:00:00')"


def problems(host: HostMailbox) -> list[tuple[str, str | None]]:
    """What `verify` names: files and keys."""
    return [(found.file, found.message_id) for found in host.verify()]


@with_each("word", WORDS)
def test_an_unknown_acknowledgement_is_named_and_fails_its_message_in_the_end(
    tmp_path: Path, frozen_clock: FrozenClock, word: str
) -> None:
    """mailbox MB-56: while its agent may run it is counted, named and no claim; then the message has failed."""
    host, agent = mailbox_pair(tmp_path, frozen_clock)
    message = send(host)
    sql(outbound(host), ACK, (message.id, word))
    assert (host.sweep.sync().unknown, host.sweep.sync().failed) == (1, 0)
    assert problems(host) == problems(agent) == [("outbound.db", message.id)]  # type: ignore[arg-type]
    assert (host.status().unknown_words, host.status().claimed, host.sweep.claims()) == (1, 0, [])
    assert host.sweep.release(reason="stopped").unknown == 1
    found = host.inbox.get(message.id)
    assert (found.status, found.outcome) == ("failed", "failed")
    assert found.error is not None
    assert repr(word) in found.error
    assert (problems(host), host.status().unknown_words) == ([], 0)
    host.inbox.retry(message.id)
    assert ids(agent.inbox.take()) == [message.id]


@pytest.mark.parametrize(("started", "status"), [(timedelta(hours=-2), "pending"), (timedelta(0), "failed")])
def test_a_sweep_fails_what_an_earlier_agent_acknowledged(
    host: HostMailbox, started: timedelta, status: str, frozen_clock: FrozenClock
) -> None:
    """mailbox MB-56: the agent that runs now may still mean something by its own."""
    frozen_clock.set(NOON)
    message = send(host)
    sql(outbound(host), ACK, (message.id, "skipped"))
    host.sweep.run(agent_started_at=NOON + started)
    assert host.inbox.get(message.id).status == status


def test_a_series_goes_on_after_an_unknown_acknowledgement(host: HostMailbox) -> None:
    """mailbox MB-39, MB-56"""
    message = send(host, recurrence="0 9 * * *")
    sql(outbound(host), ACK, (message.id, "skipped"))
    host.sweep.run(agent_started_at=None)
    assert [found.status for found in host.inbox.list()] == ["pending", "failed"]


def test_an_agent_may_settle_what_has_an_unknown_acknowledgement(host: HostMailbox, agent: AgentMailbox) -> None:
    """mailbox MB-43, MB-56"""
    message = send(host)
    sql(outbound(host), ACK, (message.id, "skipped"))
    agent.inbox.complete(message.id)
    assert host.sweep.sync().completed == 1


@with_each("word", [*WORDS, None, "processing"])
def test_a_message_with_an_unknown_status_is_named_and_can_be_settled(
    tmp_path: Path, frozen_clock: FrozenClock, word: str | None
) -> None:
    """mailbox MB-56: in the host's own file, by an acknowledgement or by hand; its series is not ended by it."""
    host, agent = mailbox_pair(tmp_path, frozen_clock)
    first, second = send(host, recurrence="0 9 * * *"), send(host)
    sql(inbound(host), "UPDATE messages_in SET status = ?", (word,))
    assert problems(host) == [("inbound.db", one) for one in sorted((first.id, second.id))]
    assert host.status().unknown_words == 2
    assert (host.sweep.advance().successors, host.inbox.get(second.id).status) == (0, word or "")
    agent.inbox.complete(second.id)
    assert agent.start().tidied == 0
    assert host.sweep.sync().completed == 1
    host.inbox.fail(first.id, error="stopped by hand")
    assert [found.status for found in host.inbox.list()] == ["pending", "completed", "failed"]
    with pytest.raises(LostRace):
        host.inbox.fail(second.id, error="again")


@with_each("word", WORDS)
def test_a_receipt_with_an_unknown_word_is_named_and_sent_again_when_asked(
    tmp_path: Path, frozen_clock: FrozenClock, word: str
) -> None:
    """mailbox MB-56: and an edit of it does not go out as if it had been delivered."""
    host, agent = mailbox_pair(tmp_path, frozen_clock)
    message = reply(agent)
    agent.outbox.edit(message.seq, text="no")  # type: ignore[arg-type]
    sql(inbound(host), "INSERT INTO delivered VALUES (?, NULL, ?, '2026-02-03', NULL, NULL)", (message.id, word))
    assert (problems(host), host.status().unknown_words) == ([("inbound.db", message.id)], 1)
    with pytest.raises(CorruptData, match="not a known word"):
        HostMailbox.open(host.folder, strict=True)
    assert host.outbox.take_due() == []
    assert [found.error for found in host.outbox.list_failed()] == ["target_failed"]
    host.outbox.requeue(message.id)
    assert [due.message.id for due in host.outbox.take_due()] == [message.id]


def test_a_destination_of_an_unknown_type_is_named(host: HostMailbox, agent: AgentMailbox) -> None:
    """mailbox MB-56: the agent sends there as to a channel."""
    host.routing.replace_destinations([NewDestination("ops", "channel", channel_type="slack", platform_id="C1")])
    sql(inbound(host), "UPDATE destinations SET type = 'group'")
    assert (problems(host), host.status().unknown_words) == ([("inbound.db", "ops")], 1)
    assert agent.outbox.send(kind="chat", content={}, routing="ops").routing == Routing("slack", "C1")


@with_each(("table", "key"), [("messages_in", "id"), ("delivered", "message_out_id")])
def test_unknown_words_are_found_by_an_index(tmp_path: Path, frozen_clock: FrozenClock, table: str, key: str) -> None:
    """mailbox MB-75, MB-56"""
    host, _ = mailbox_pair(tmp_path, frozen_clock)
    known = "'completed', 'failed', 'paused', 'pending'" if table == "messages_in" else "'delivered', 'failed'"
    query = f"SELECT {key} FROM {table} WHERE coalesce(status, '') NOT IN ({known}) ORDER BY +{key}"
    plan, *_ = sql(inbound(host), f"EXPLAIN QUERY PLAN {query}")
    assert f"idx_{table}_unknown" in plan[3]
