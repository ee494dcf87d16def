"""What is exactly at a bound is taken, and what stands there is told from what is past it."""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import pytest
from support.mailbox.files import PLACE, ids, inbound, outbound, reply, send, sql

from lastlight_state.backends import waiting as backends_waiting
from lastlight_state.db.news import watch
from lastlight_state.errors import InvalidValue
from lastlight_state.files.mailbox import (
    AgentMailbox,
    Attachment,
    HostMailbox,
    Mailboxes,
    NewDestination,
    NewMessage,
    models,
)
from lastlight_state.settings import Limits, Settings
from lastlight_state.testing import FrozenClock

SECOND, HOUR = timedelta(seconds=1), timedelta(hours=1)


def channels(*names: str) -> list[NewDestination]:
    return [NewDestination(name, "channel", channel_type="slack", platform_id="C") for name in names]


def test_what_is_exactly_at_a_bound_is_stored(host: HostMailbox, agent: AgentMailbox) -> None:
    """mailbox MB-13: characters of a kind, bytes of a provider's name, and the number of destinations."""
    kind = "\N{GRINNING FACE}" * 64
    assert host.inbox.send(kind=kind, content={}).kind == kind
    provider = "p" * 243
    agent.state.put_continuation(provider, "c-1")
    assert agent.state.continuation(provider) == "c-1"
    with pytest.raises(InvalidValue, match="provider"):
        agent.state.put_continuation(provider + "p", "c-1")
    bounded = HostMailbox.open(host.folder, settings=Settings(limits=Limits(destinations=2)))
    assert bounded.routing.replace_destinations(channels("a", "b"))


def test_files_at_the_bounds_are_read_and_those_past_them_are_named(host: HostMailbox, agent: AgentMailbox) -> None:
    """mailbox MB-65, MB-13: by their number and by their bytes."""
    agent.outbox.send("m", kind="chat", content={}, files=[Attachment("a", b"1234"), Attachment("b", b"12345")])
    bounded = HostMailbox.open(host.folder, settings=Settings(limits=Limits(attachment=4, attachments=2)))
    found = bounded.outbox.files("m")
    assert [(file.name, file.data, file.size) for file in found.files] == [("a", b"1234", 4)]
    assert found.skipped == (("'b'", "more than 4 bytes"),)
    sql(outbound(agent), """UPDATE messages_out SET content = '{"files": ["a", "b", "c"]}'""")
    assert bounded.outbox.files("m").skipped[1:] == (("1 more", "more than 2 files"),)


def test_no_number_is_given_past_the_greatest(host: HostMailbox) -> None:
    """mailbox MB-20: of a batch that would go past it nothing is stored."""
    sql(inbound(host), ODD_ROW, [models.GREATEST - 5])
    with pytest.raises(InvalidValue, match="seq"):
        host.inbox.send_many([NewMessage("chat", {}) for _ in range(3)])
    assert len(host.inbox.list().items) == 1
    assert [message.seq for message in host.inbox.send_many([NewMessage("chat", {}) for _ in range(2)])] == [
        models.GREATEST - 3,
        models.GREATEST - 1,
    ]


ODD_ROW = "INSERT INTO messages_in (id, seq, kind, timestamp, content) VALUES ('x', ?, 'chat', '2026-01-01', '{}')"


def test_a_page_that_holds_the_last_waiting_message_names_no_next_one(host: HostMailbox, agent: AgentMailbox) -> None:
    """mailbox MB-84"""
    sent = [reply(agent), reply(agent)]
    page = host.outbox.list_waiting(limit=2)
    assert (ids(page.items), page.next_page_token) == (ids(sent), None)


@pytest.mark.parametrize("side", ["inbox", "outbox"])
def test_waiting_looks_until_its_time_is_over(
    host: HostMailbox, agent: AgentMailbox, monkeypatch: pytest.MonkeyPatch, side: str
) -> None:
    """mailbox MB-49: after each rest, the last of which is as short as what is left."""
    waiting = agent.inbox.wait if side == "inbox" else host.outbox.wait
    arriving: Callable[[], object] = (lambda: send(host)) if side == "inbox" else (lambda: reply(agent))
    now, rests = [0.0], []
    arrives_after = [99]

    def rest(seconds: float) -> None:
        rests.append(seconds)
        now[0] += seconds or 1
        if len(rests) == arrives_after[0]:
            arriving()

    monkeypatch.setattr(backends_waiting, "pause", rest)
    monkeypatch.setattr(watch, "time", clock_of(now))
    assert not waiting(2.5 * SECOND)
    assert rests == [1, 1, 0.5]
    rests.clear()
    arrives_after[0] = 3
    assert waiting(2.5 * SECOND)
    assert rests == [1, 1, 0.5]
    millisecond = timedelta(milliseconds=1)
    assert waiting(timedelta(0), interval=millisecond)
    with pytest.raises(InvalidValue, match="interval"):
        waiting(timedelta(0), interval=millisecond / 2)


def clock_of(now: list[float]) -> SimpleNamespace:
    """A module ``time`` whose clock stands at ``now``."""
    return SimpleNamespace(monotonic=lambda: now[0])


def test_leftovers_go_after_more_than_an_hour(
    mailboxes: Mailboxes, host: HostMailbox, frozen_clock: FrozenClock
) -> None:
    """mailbox MB-61, MB-03: not at an hour to the millisecond; of files and of sessions."""
    moment = datetime(2026, 2, 3, 12, tzinfo=UTC)
    frozen_clock.set(moment + HOUR)
    made, folder = host.folder.parent / ".new-old", host.folder / "inbox" / "gone"
    for path in (made, folder):
        path.mkdir()
        os.utime(path, (moment.timestamp(), moment.timestamp()))
    assert host.sweep.tidy() == 0
    mailboxes.create("group", "next")
    assert made.exists()
    frozen_clock.advance(timedelta(milliseconds=1))
    assert host.sweep.tidy() == 1
    mailboxes.create("group", "later")
    assert not made.exists()


def test_what_is_due_at_this_millisecond_is_due(
    host: HostMailbox, agent: AgentMailbox, frozen_clock: FrozenClock
) -> None:
    """mailbox MB-40, MB-82: on both ways."""
    at = frozen_clock.now() + HOUR
    message = send(host, process_after=at)
    answer = agent.outbox.send(kind="chat", content={}, routing=PLACE)
    sql(outbound(agent), "UPDATE messages_out SET deliver_after = ?", [at.isoformat()])
    frozen_clock.set(at - timedelta(milliseconds=1))
    assert (ids(agent.inbox.peek()), host.outbox.take_due()) == ([], [])
    frozen_clock.set(at)
    assert ids(agent.inbox.peek()) == [message.id]
    assert [due.message.id for due in host.outbox.take_due()] == [answer.id]
