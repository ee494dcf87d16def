"""The exchange: a message to an inbox, a page of an inbox, and a delivery that is taken and acknowledged."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any

from benchmarks.databases import Side
from benchmarks.measure import Result, compare
from lastlight_state.conversations import NewMessage
from lastlight_state.ids import new_id

CONTENT = {"text": "The build is green again, and the colour is back. " * 20}
TEXT = '{"text": "' + CONTENT["text"] + '"}'
#: More than are taken below.
OPEN = 3_000

_COLUMNS = "owner, ord, message_id, sender, channel, delivered_at, taken_by, taken_until, takes, acked_at, acked_by"


def results(side: Side) -> Iterator[Result]:
    """What a sender does for each message, and its reader."""
    exchange = side.store.conversations.exchange
    yield compare(
        "send a message",
        side.name,
        lambda: exchange.send(NewMessage("user", CONTENT, sender="ana"), to="mine"),
        _raw_send(side, "by hand"),
        goal=None,
    )
    yield compare(
        "inbox of 20",
        side.name,
        lambda: exchange.inbox("mine", limit=20),
        side.read(
            f"SELECT {_COLUMNS} FROM exchange_deliveries WHERE owner = ? AND acked_at IS NULL ORDER BY ord LIMIT 20",
            lambda: ("mine",),
        ),
        goal=None,
    )
    for owner in ("taken", "taken by hand"):
        _fill(side, owner)

    def take() -> object:
        [found] = exchange.take("taken", reader="worker")
        return exchange.ack("taken", found.ord, reader="worker")

    yield compare(
        "take and acknowledge a message",
        side.name,
        take,
        _raw_take(side, "taken by hand"),
        goal=None,
    )


def _fill(side: Side, owner: str) -> None:
    with side.store.transaction() as tx:
        for _ in range(OPEN):
            tx.conversations.exchange.send(NewMessage("user", "x"), to=owner)
    if side.name == "postgresql":
        side.driver.execute("ANALYZE exchange_deliveries")


def _raw_send(side: Side, owner: str) -> Callable[[], object]:
    """The same work by hand: the message, the next position of the inbox, the delivery."""
    said: list[str] = []

    def message() -> tuple[Any, ...]:
        said[:] = [new_id()]
        return said[0], side.now(), "user", 0, TEXT, "ana", owner

    insert = (
        "INSERT INTO messages (id, created_at, role, lion_class, content, sender, recipient) "
        "VALUES (?, ?, ?, ?, ?, ?, ?)"
    )
    place = (
        "INSERT INTO exchange_inboxes (owner, next_ord, created_at) VALUES (?, 1, ?) "
        "ON CONFLICT (owner) DO UPDATE SET next_ord = exchange_inboxes.next_ord + 1"
    )
    deliver = (
        "INSERT INTO exchange_deliveries (owner, ord, message_id, sender, delivered_at) "
        "SELECT owner, next_ord - 1, ?, ?, ? FROM exchange_inboxes WHERE owner = ?"
    )
    return side.unit(
        (insert, message),
        (place, lambda: (owner, side.now())),
        (deliver, lambda: (said[0], "ana", side.now(), owner)),
    )


def _raw_take(side: Side, owner: str) -> Callable[[], object]:
    """The same work by hand: the first open delivery for a minute, then its end, each one statement in autocommit."""
    lock = " FOR UPDATE SKIP LOCKED" if side.name == "postgresql" else ""
    take = (
        "UPDATE exchange_deliveries SET taken_by = ?, taken_until = ?, takes = takes + 1 WHERE owner = ? AND ord = "
        "(SELECT ord FROM exchange_deliveries WHERE owner = ? AND acked_at IS NULL AND "
        f"(taken_until IS NULL OR taken_until <= ?) ORDER BY ord LIMIT 1{lock}) RETURNING {_COLUMNS}"
    )
    end = (
        "UPDATE exchange_deliveries SET acked_at = ?, acked_by = ? "
        "WHERE owner = ? AND ord = ? AND acked_at IS NULL AND taken_by = ? RETURNING ord"
    )
    ords = count()

    def taken() -> tuple[Any, ...]:
        now = datetime.now(UTC)
        until, at = (_stored(side, moment) for moment in (now + timedelta(minutes=1), now))
        return "worker", until, owner, owner, at

    statements = (
        side.read(take, taken),
        side.read(end, lambda: (side.now(), "worker", owner, next(ords), "worker")),
    )
    return lambda: [run() for run in statements]


def _stored(side: Side, moment: datetime) -> Any:
    return moment.isoformat(timespec="milliseconds")[:23] + "Z" if side.name == "sqlite" else moment
