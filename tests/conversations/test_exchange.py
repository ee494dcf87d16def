"""The exchange: what is sent is delivered once, taken by one reader at a time, and never lost."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest
from support.conversations.talk import said
from support.each import with_each
from support.workflows.steps import undone

from lastlight_state import AlreadyExists, AsyncStateStore, ClaimLost, InvalidValue, MisuseError, NotFound, StateStore
from lastlight_state.conversations import Delivery, NewMessage
from lastlight_state.testing import Database, FrozenClock, racing

#: How long a test waits for what must come.
LONG = 30


def letter(name: str, sender: str | None = "ana", **given: Any) -> NewMessage:
    return NewMessage("user", {"text": name}, id=name, sender=sender, **given)


def places(found: Any) -> list[tuple[int, str]]:
    return [(one.ord, one.message_id) for one in found]


def test_a_message_for_several_is_stored_once(every_backend: StateStore) -> None:
    """conversations CV-33: and delivered to each, at the next position of its inbox."""
    c = every_backend.conversations
    c.exchange.send(letter("first"), to="bo")
    sent = c.exchange.send(letter("plan"), to=["cy", "bo", "cy"])
    assert (sent.delivered, sent.skipped) == (("bo", "cy"), ())
    assert c.messages.count() == 2
    assert [(one.owner, one.ord) for one in c.exchange.deliveries("plan", limit=1)] == [("bo", 1)]
    assert [(one.owner, one.ord) for one in c.exchange.deliveries("plan")] == [("bo", 1), ("cy", 0)]
    assert (c.messages.get("first").recipient, c.messages.get("plan").recipient) == ("bo", None)


def test_a_message_that_is_sent_again_is_delivered_to_those_who_lack_it(every_backend: StateStore) -> None:
    """conversations CV-33: another one of its id is refused, and nothing is delivered."""
    c = every_backend.conversations
    c.exchange.send(letter("plan"), to="bo")
    again = c.exchange.send(letter("plan"), to=["bo", "cy"])
    assert (again.delivered, again.skipped) == (("cy",), ("bo",))
    with pytest.raises(AlreadyExists) as refused:
        c.exchange.send(NewMessage("user", {"text": "changed"}, id="plan", sender="ana"), to="dee")
    assert refused.value.details["fields"] == ("content",)
    assert [one.owner for one in c.exchange.deliveries("plan")] == ["bo", "cy"]
    c.messages.create(said("known")[0])
    assert c.exchange.send(said("known")[0], to="bo").delivered == ("bo",)
    assert [one.message_id for one in c.exchange.inbox("bo")] == ["plan", "known"]


def test_what_is_sent_again_without_its_sender_has_the_stored_one(every_backend: StateStore) -> None:
    """conversations CV-33: who published a message gets none of it, however it is repeated."""
    exchange = every_backend.conversations.exchange
    for member in ("ana", "bo"):
        exchange.join("news", member)
    exchange.publish(letter("a"), channel="news")
    exchange.join("news", "cy")
    assert exchange.publish(letter("a", None), channel="news").delivered == ("cy",)
    assert [one.message_id for one in exchange.take("cy", reader="r", sender="ana")] == ["a"]
    exchange.send(letter("b"), to="dee")  # whose inbox is there, and lacks the other
    assert exchange.send(letter("a", None), to="dee").delivered == ("dee",)
    assert [one.channel for one in exchange.inbox("dee", sender="ana")] == [None, "news"]


def test_a_message_for_somebody_may_name_a_channel(every_backend: StateStore) -> None:
    """conversations CV-33: by which it is found in the inbox; it is published nowhere."""
    exchange = every_backend.conversations.exchange
    exchange.join("news", "cy")
    exchange.send(letter("a", channel="news"), to="bo")
    assert [one.channel for one in exchange.inbox("bo", channel="news")] == ["news"]
    assert exchange.inbox("cy").items == ()


def test_what_is_rolled_back_was_not_sent(every_backend: StateStore) -> None:
    """conversations CV-33, CV-34: and leaves no gap."""
    exchange = every_backend.conversations.exchange
    with undone(every_backend) as tx:
        tx.conversations.exchange.send(letter("never"), to="bo")
    exchange.send(letter("a"), to="bo")
    assert places(exchange.inbox("bo")) == [(0, "a")]
    assert every_backend.conversations.messages.find("never") is None


def test_an_inbox_is_read_by_its_cursor_and_filters(every_backend: StateStore) -> None:
    """conversations CV-34: and reading changes nothing."""
    exchange = every_backend.conversations.exchange
    exchange.join("news", "bo")
    exchange.send(letter("a"), to="bo")
    exchange.publish(letter("b", "cy"), channel="news")
    exchange.send(letter("c"), to="bo")
    exchange.ack("bo", 0, reader="r")
    first = exchange.inbox("bo", limit=1)
    assert places(first) == [(1, "b")]
    assert places(exchange.inbox("bo", page_token=first.next_page_token)) == [(2, "c")]
    assert places(exchange.inbox("bo", after_ord=1, state="all")) == [(2, "c")]
    assert places(exchange.inbox("bo", state="all", sender="ana")) == [(0, "a"), (2, "c")]
    assert places(exchange.inbox("bo", channel="news")) == [(1, "b")]
    assert [one.takes for one in exchange.inbox("bo")] == [0, 0]
    assert exchange.inbox("nobody").items == ()


def test_a_channel_delivers_to_its_members_of_the_moment(every_backend: StateStore, frozen_clock: FrozenClock) -> None:
    """conversations CV-33, CV-35: not to the sender, and nothing from before and between."""
    c = every_backend.conversations
    assert c.exchange.publish(letter("early"), channel="news").delivered == ()
    assert c.messages.get("early").channel == "news"
    assert [c.exchange.join("news", name) for name in ("bo", "ana", "bo")] == [True, True, False]
    assert c.exchange.publish(letter("a"), channel="news").delivered == ("bo",)
    assert [c.exchange.leave("news", "bo"), c.exchange.leave("news", "bo")] == [True, False]
    assert c.exchange.publish(letter("gap"), channel="news").delivered == ()
    frozen_clock.advance(seconds=1)
    assert c.exchange.join("news", "bo")
    assert c.exchange.publish(letter("b"), channel="news").delivered == ("bo",)
    assert c.exchange.publish(letter("b"), channel="news").skipped == ("bo",)
    assert places(c.exchange.inbox("bo")) == [(0, "a"), (1, "b")]
    assert [one.member for one in c.exchange.members("news")] == ["ana", "bo"]
    assert c.exchange.members("news").items[1].joined_at == frozen_clock.now()


def test_a_delivery_is_with_one_reader_until_its_lease_ends(
    every_backend: StateStore, frozen_clock: FrozenClock
) -> None:
    """conversations CV-34: then it is handed out again, and the first reader's late word is refused."""
    exchange = every_backend.conversations.exchange
    for name in ("a", "b", "c"):
        exchange.send(letter(name, "cy" if name == "c" else "ana"), to="bo")
    assert places(exchange.take("bo", reader="r1", limit=2)) == [(0, "a"), (1, "b")]
    assert places(exchange.take("bo", reader="r2", sender="ana")) == []
    assert places(exchange.take("bo", reader="r2", sender="cy")) == [(2, "c")]
    with pytest.raises(ClaimLost):
        exchange.ack("bo", 0, reader="r2")
    frozen_clock.advance(seconds=60)
    [again] = exchange.take("bo", reader="r2", lease=timedelta(minutes=5))
    assert (again.ord, again.taken_by, again.takes) == (0, "r2", 2)
    with pytest.raises(ClaimLost) as late:
        exchange.ack("bo", [1, 0], reader="r1")
    assert (late.value.kind, late.value.held_by, late.value.details["delivery_id"]) == ("delivery", "r2", "bo/0")
    assert [one.acked_at for one in exchange.inbox("bo", state="all")] == [None, None, None]
    assert exchange.ack("bo", [1], reader="r1") == 1  # nobody has taken it since
    assert exchange.ack("bo", [2], reader="r3") == 1  # the lease of the second reader has ended, too


def test_what_is_done_stays_done(every_backend: StateStore) -> None:
    """conversations CV-34: said by whoever has it, or by anybody while nobody has it; twice is once."""
    exchange = every_backend.conversations.exchange
    for name in ("a", "b"):
        exchange.send(letter(name), to="bo")
    exchange.take("bo", reader="r1")
    assert [exchange.ack("bo", {0, 1}, reader="r1"), exchange.ack("bo", [0, 1], reader="r1")] == [2, 0]
    with pytest.raises(ClaimLost):
        exchange.ack("bo", 1, reader="r2")
    with pytest.raises(NotFound):
        exchange.ack("bo", [0, 2], reader="r1")
    assert exchange.take("bo", reader="r2", limit=5) == []
    assert [one.acked_by for one in exchange.deliveries("a")] == ["r1"]


def test_what_is_given_back_is_handed_out_at_once(every_backend: StateStore) -> None:
    """conversations CV-34: only what the reader has."""
    exchange = every_backend.conversations.exchange
    exchange.send(letter("a"), to="bo")
    exchange.take("bo", reader="r1")
    assert exchange.release("bo", [0, 7], reader="r2") == 0
    assert exchange.release("bo", 0, reader="r1") == 1
    assert places(exchange.take("bo", reader="r2")) == [(0, "a")]


def test_what_is_not_given_back_stays_as_it_is(every_backend: StateStore) -> None:
    """conversations CV-34: other deliveries of the reader, and those that are done."""
    exchange = every_backend.conversations.exchange
    for name in ("a", "b", "c"):
        exchange.send(letter(name), to=["bo", "cy"])
    for owner in ("bo", "cy"):
        exchange.take(owner, reader="r1", limit=3)
    exchange.ack("bo", 1, reader="r1")
    assert exchange.release("bo", [0, 1], reader="r1") == 1
    held = [[one.taken_by for one in exchange.inbox(owner, state="all")] for owner in ("bo", "cy")]
    assert held == [[None, "r1", "r1"], ["r1", "r1", "r1"]]


def test_readers_that_take_at_once_get_different_deliveries(every_backend: StateStore, database: Database) -> None:
    """conversations CV-34."""
    exchange = every_backend.conversations.exchange
    for n in range(20):
        exchange.send(letter(f"m{n}"), to="bo")
    other = database.open()

    def taken(store: StateStore, reader: str) -> list[Delivery]:
        found: list[Delivery] = []
        while some := store.conversations.exchange.take("bo", reader=reader, limit=3):
            found += some
        return found

    with ThreadPoolExecutor(4) as pool:
        stores = [every_backend, other, every_backend, other]
        found = [one for some in pool.map(taken, stores, "abcd") for one in some]
    # A reader that came while others held the last ones has nothing, and they are with the others.
    assert sorted(one.ord for one in found) == [*range(20)]


def test_sends_in_opposite_order_of_owners_both_arrive(every_backend: StateStore, database: Database) -> None:
    """conversations CV-16: to inboxes that are there, and to those that are not."""
    other = database.open()
    stores = [every_backend, other]

    def send(n: int) -> tuple[str, ...]:
        owners = ["x", f"new-{n // 2}", "y"]
        to = owners if n % 2 else owners[::-1]
        return stores[n % 2].conversations.exchange.send(letter(f"m{n}"), to=to).delivered

    with ThreadPoolExecutor(2) as pool:
        assert [len(one) for one in pool.map(send, range(20))] == [3] * 20
    found = every_backend.conversations.exchange.inbox("x", limit=50)
    assert [one.ord for one in found] == [*range(20)]
    if database.name == "postgresql":  # a deadlock would have been repeated
        assert [one.metrics.retries for one in stores] == [0, 0]


def test_a_call_takes_the_same_number_of_statements_for_any_number_of_owners(every_backend: StateStore) -> None:
    """conversations CV-33."""
    exchange = every_backend.conversations.exchange

    def statements(*owners: str) -> int:
        with racing(every_backend) as race:
            exchange.send(NewMessage("user", "hi"), to=owners)
        return len(race.statements)

    assert statements("a", "b") == statements(*(f"o{n}" for n in range(40))) <= 8


def test_waiting_ends_with_a_delivery_or_with_its_time(every_backend: StateStore, database: Database) -> None:
    """conversations CV-35, CV-30: also of one that another store sends."""
    exchange = every_backend.conversations.exchange
    assert exchange.wait("bo", timeout=0.01, poll_interval=0.01).items == ()
    other = database.open()
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(exchange.wait, "bo", timeout=LONG, poll_interval=0.01)
        other.conversations.exchange.send(letter("a"), to="bo")
        assert places(waiting.result(LONG)) == [(0, "a")]
    assert places(exchange.wait("bo", timeout=LONG)) == [(0, "a")]
    assert exchange.wait("bo", 0, timeout=0).items == ()
    with pytest.raises(MisuseError), every_backend.transaction() as tx:
        tx.conversations.exchange.wait("bo", timeout=1)


def test_an_outbox_has_what_a_sender_wrote(every_backend: StateStore, frozen_clock: FrozenClock) -> None:
    """conversations CV-35: the newest first, delivered or not."""
    exchange = every_backend.conversations.exchange
    for name, sender in (("a", "ana"), ("b", "bo"), ("c", "ana")):
        exchange.send(letter(name, sender), to="cy")
        frozen_clock.advance(seconds=1)
    exchange.publish(letter("d"), channel="empty")
    assert [one.id for one in exchange.outbox("ana")] == ["d", "c", "a"]


BAD: dict[str, Callable[[Any], object]] = {
    "nobody to send to": lambda e: e.send(letter("a"), to=[]),
    "a blank owner": lambda e: e.send(letter("a"), to=" "),
    "another recipient": lambda e: e.send(letter("a", recipient="cy"), to="bo"),
    "a recipient of several": lambda e: e.send(letter("a", recipient="bo"), to=["bo", "cy"]),
    "another channel": lambda e: e.publish(letter("a", channel="x"), channel="y"),
    "a state": lambda e: e.inbox("bo", state="done"),
    "a lease": lambda e: e.take("bo", reader="r", lease=timedelta(0)),
    "a limit": lambda e: e.take("bo", reader="r", limit=501),
    "an ord": lambda e: e.ack("bo", [True], reader="r"),
    "a reader": lambda e: e.take("bo", reader=""),
    "too many ords": lambda e: e.ack("bo", range(501), reader="r"),
}


@with_each("name", BAD)
def test_what_makes_no_sense_is_refused(store: StateStore, name: str) -> None:
    """conversations CV-33, CV-34: before anything is written."""
    with pytest.raises(InvalidValue):
        BAD[name](store.conversations.exchange)
    assert store.conversations.messages.count() == 0


async def _exchanged(opened: StateStore) -> Any:
    exchange = AsyncStateStore(opened).conversations.exchange
    waiting = asyncio.create_task(exchange.wait("bo", timeout=LONG, poll_interval=0.01))
    await exchange.join("news", "bo")
    await exchange.publish(letter("a"), channel="news")
    arrived = await waiting
    [taken] = await exchange.take("bo", reader="r")
    done = await exchange.ack("bo", taken.ord, reader="r")
    return arrived, done, await exchange.wait("bo", 0, timeout=0), await exchange.inbox("bo")


def test_the_same_from_coroutines(every_backend: StateStore) -> None:
    """conversations CV-33, CV-34, CV-35."""
    arrived, done, nothing, left = asyncio.run(_exchanged(every_backend))
    assert (places(arrived), done, nothing.items, left.items) == ([(0, "a")], 1, (), ())
