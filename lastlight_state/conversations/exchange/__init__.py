"""The message exchange: messages are sent to inboxes, and each delivery is taken by one reader at a time.

The deliveries of an inbox have positions from 0 without gaps, in the order of commits. So a reader that continues after
the last position that it has seen misses nothing. If a reader takes a delivery but does not acknowledge it within its
lease, another reader can take it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager
from datetime import datetime, timedelta
from functools import partial
from typing import TypedDict

from lastlight_state.conversations import checks, words
from lastlight_state.conversations.arguments import NewMessage
from lastlight_state.conversations.exchange import statements, statements as sql
from lastlight_state.conversations.exchange.records import Delivery, Member, Sent
from lastlight_state.conversations.records import MessageSummary
from lastlight_state.conversations.shared import storing
from lastlight_state.conversations.shared.storing import KnownClasses
from lastlight_state.conversations.tables import DELIVERIES, MEMBERS
from lastlight_state.conversations.words import InboxState
from lastlight_state.db import valid
from lastlight_state.db.news.watch import (
    NOTHING_YET,
    Arrivals,
    TimeLimit,
    Watch,
    arrivals,
    refuse_in_transaction,
    watch_of,
)
from lastlight_state.db.repository import Repository
from lastlight_state.db.rows.records import Page
from lastlight_state.db.rows.writes import as_list
from lastlight_state.db.schema.declarations import limits_of
from lastlight_state.db.units.scope import Scope
from lastlight_state.db.units.unit import Unit
from lastlight_state.errors import ClaimLost

_DELIVERY, _MEMBER = limits_of(DELIVERIES), limits_of(MEMBERS)

#: The default lease of a reader on the deliveries that it takes.
_LEASE = timedelta(seconds=60)
_LEAST, _MOST = timedelta(milliseconds=1), timedelta(days=30)


class DeliveryKeys(TypedDict):
    """The keys of deliveries of an inbox, with their reader."""

    owner: str
    reader: str
    ords: str
    at: datetime


class Exchange(Repository):
    """``store.conversations.exchange``"""

    def send(self, message: NewMessage, *, to: str | Sequence[str]) -> Sent:
        """Store a message and deliver it to the inboxes of 1 to 1,000 owners, in one transaction.

        An inbox is created by its first delivery. If there is only one owner, it becomes the message's recipient. A
        message that is sent again is delivered only to owners that do not have it yet. Raises `AlreadyExists` for a
        different message of the same id.
        """
        given, now = statements.owners("to", to), self._now()
        body = statements.letter(message, now, recipient=given[0] if len(given) == 1 else None)
        known = self._remember(KnownClasses)

        def send(unit: Unit) -> Sent:
            return statements.deliver_message(unit, statements.store_message(unit, known, body), given, now)

        return storing.retry_storing(lambda: self._writing(send, repeatable=True))

    def publish(self, message: NewMessage, *, channel: str) -> Sent:
        """Store a message and deliver it to the current members of a channel, except its sender.

        Without members the message is stored, and ``delivered`` is empty. A message that is published again is
        delivered only to members that do not have it yet.
        """
        name, now = valid.identifier("channel", channel, _DELIVERY.channel), self._now()
        body = statements.letter(message, now, channel=name)
        known = self._remember(KnownClasses)

        def publish(unit: Unit) -> Sent:
            stored = statements.store_message(unit, known, body)
            return statements.deliver_message(unit, stored, statements.members(unit, name, but=stored["sender"]), now)

        return storing.retry_storing(lambda: self._writing(publish, repeatable=True))

    def inbox(
        self,
        owner: str,
        *,
        after_ord: int | None = None,
        sender: str | None = None,
        channel: str | None = None,
        state: InboxState = "open",
        limit: int = 50,
        page_token: str | None = None,
    ) -> Page[Delivery]:
        """Return a page of an inbox's unacknowledged deliveries by position; with ``state="all"``, of all deliveries.

        Changes nothing. Deliveries that a reader has taken are included. Read the messages with `messages.get_many`.
        """
        given = {
            "owner": valid.lookup_text("owner", owner),
            "after_ord": None if after_ord is None else valid.number("after_ord", after_ord),
            "sender": None if sender is None else valid.lookup_text("sender", sender),
            "channel": None if channel is None else valid.lookup_text("channel", channel),
            "open": True if valid.word("state", state, words.INBOX_STATES) == "open" else None,
        }
        return self._page(sql.INBOX, given, limit, page_token)

    def take(
        self, owner: str, *, reader: str, lease: timedelta = _LEASE, limit: int = 1, sender: str | None = None
    ) -> list[Delivery]:
        """Take the first deliveries of an inbox that are not acknowledged and not held, for the time of the lease.

        A delivery is held by one reader at a time; after the lease another reader may take it. Readers that take
        concurrently get different deliveries.
        """
        found = valid.identifier("reader", reader, _DELIVERY.taken_by)
        given, now = {"owner": valid.lookup_text("owner", owner), "reader": found}, self._now()
        free = sql.FREE if sender is None else sql.FREE_OF_SENDER
        sent_by = checks.name("sender", sender, _DELIVERY.sender)
        wanted = {"at": now, "limit": valid.page_limit(limit), "sender": sent_by}
        until = now + valid.duration("lease", lease, least=_LEAST, most=_MOST)

        def take(unit: Unit) -> list[Delivery]:
            ords = unit.values(free, {**given, **wanted})
            if not ords:
                return []
            taken, _ = unit.readable_rows(sql.TAKE, {**given, "until": until, "ords": _encode_ords(ords)})
            return sorted(taken, key=lambda one: one.ord)

        return self._writing(take)

    def ack(self, owner: str, ords: int | Collection[int], *, reader: str) -> int:
        """Acknowledge deliveries, all or none. Return how many of them were not acknowledged before.

        Each must be held by this reader or by no reader. Deliveries that this reader has acknowledged before are
        accepted. Raises `ClaimLost` for a delivery that another reader has taken or acknowledged, and `NotFound`.
        """
        given, found = self._delivery_keys(owner, ords, reader)

        def ack(unit: Unit) -> int:
            rows = {row.ord: row for row in unit.rows(sql.LOCK_THESE, given)}
            for one in found:
                if one not in rows:
                    raise valid.not_found(words.DELIVERY, (owner, one))
                _refuse_foreign(owner, rows[one], reader, given["at"])
            return unit.change(sql.ACK, given)

        return self._writing(ack, repeatable=True)

    def release(self, owner: str, ords: int | Collection[int], *, reader: str) -> int:
        """Release deliveries that the reader holds before their lease ends, and return how many were released."""
        given, _ = self._delivery_keys(owner, ords, reader)

        def release(unit: Unit) -> int:
            unit.rows(sql.LOCK_THESE, given)
            return unit.change(sql.RELEASE, given)

        return self._writing(release, repeatable=True)

    def wait(
        self,
        owner: str,
        after_ord: int | None = None,
        *,
        timeout: float,
        poll_interval: float = 0.5,
        limit: int = 50,
    ) -> Page[Delivery]:
        """Wait for deliveries to an inbox after a position, and return a page of them, acknowledged ones included.

        The page is empty if ``timeout`` seconds pass without a delivery. The inbox is polled every ``poll_interval``
        seconds, by one statement for all waiting callers of a store. No connection is held between polls. Raises
        `MisuseError` inside a transaction, and `BackendBusy` if a lock blocks every poll until the timeout.
        """
        seconds, interval = valid.seconds("timeout", timeout), valid.seconds("poll_interval", poll_interval)
        refuse_in_transaction(self._scope)
        limited, look = TimeLimit(seconds), partial(self.inbox, owner, after_ord=after_ord, state="all", limit=limit)
        found = limited.look(look)
        if found.items or found.damaged or not limited.seconds_left:
            return found
        with self._arrivals(owner, after_ord, limited.seconds_left, interval) as arrived:
            arrived.wait(arrived.seconds_left)
        return limited.look(look)

    def outbox(self, sender: str, *, limit: int = 50, page_token: str | None = None) -> Page[MessageSummary]:
        """Return a page of the messages that have this sender, the newest first, delivered or not."""
        return self._page(sql.OUTBOX, {"sender": valid.lookup_text("sender", sender)}, limit, page_token)

    def deliveries(self, message_id: str, *, limit: int = 50, page_token: str | None = None) -> Page[Delivery]:
        """Return a page of a message's deliveries, ordered by owner.

        Each has the readers that took and acknowledged it.
        """
        given = {"message_id": valid.lookup_text("message_id", message_id)}
        return self._page(sql.DELIVERED, given, limit, page_token)

    def join(self, channel: str, member: str) -> bool:
        """Add a member to a channel, who receives messages published from now on. Returns False if already a member."""
        values = {
            "channel": valid.identifier("channel", channel, _MEMBER.channel),
            "member": valid.identifier("member", member, _MEMBER.member),
            "joined_at": self._now(),
        }
        return self._once(lambda unit: unit.change(sql.JOIN, values), repeatable=True) > 0

    def leave(self, channel: str, member: str) -> bool:
        """Remove a member from a channel. Returns False if it is not a member."""
        given = {"channel": valid.lookup_text("channel", channel), "member": valid.lookup_text("member", member)}
        values = {**given, "left_at": self._now()}
        return self._once(lambda unit: unit.change(sql.LEAVE, values), repeatable=True) > 0

    def members(self, channel: str, *, limit: int = 50, page_token: str | None = None) -> Page[Member]:
        """Return a page of the present members of a channel, ordered by name."""
        given = {"channel": valid.lookup_text("channel", channel)}
        return self._page(sql.MEMBER_LIST, given, limit, page_token)

    def _delivery_keys(self, owner: str, ords: int | Collection[int], reader: str) -> tuple[DeliveryKeys, list[int]]:
        named = [ords] if isinstance(ords, int) else valid.several("ords", ords)
        valid.at_most("ords", named, valid.PAGE_LIMIT)
        found = [valid.number("ords", one) for one in dict.fromkeys(named)]
        given: DeliveryKeys = {
            "owner": valid.lookup_text("owner", owner),
            "reader": valid.identifier("reader", reader, _DELIVERY.taken_by),
            "ords": _encode_ords(found),
            "at": self._now(),
        }
        return given, found

    def _arrivals(
        self,
        owner: str,
        after_ord: int | None,
        seconds: float,
        interval: float,
        woken: Callable[[], object] | None = None,
    ) -> AbstractContextManager[Arrivals[str]]:
        known = NOTHING_YET if after_ord is None else after_ord
        return arrivals(_watch_for(self._scope), owner, seconds, interval, known=known, woken=woken)


def _refuse_foreign(owner: str, row: sql.HeldDelivery, reader: str, now: datetime) -> None:
    """Raise `ClaimLost` for a delivery that another reader has acknowledged, or has now."""
    if row.acked_at is not None:
        holder, status = row.acked_by, "acknowledged"
    elif row.taken_until is not None and row.taken_until > now:
        holder, status = row.taken_by, "taken"
    else:
        return
    if holder != reader:
        key = f"{owner}/{row.ord}"
        raise ClaimLost(
            key, kind=words.DELIVERY, presented=None, current_epoch=row.takes, held_by=holder, status=status
        )


def _encode_ords(ords: Collection[int]) -> str:
    return as_list([{"ord": one} for one in ords])


def _watch_for(scope: Scope) -> Watch[str]:
    """Return the watch through which callers of a store wait for new deliveries."""

    def read(keys: Collection[str]) -> dict[str, int]:
        values = {"owners": as_list([{"id": one} for one in sorted(keys)])}
        rows = scope.read(lambda unit: unit.rows(sql.HEADS, values))
        return dict(rows)

    return watch_of(scope, "exchange_inboxes", read)
