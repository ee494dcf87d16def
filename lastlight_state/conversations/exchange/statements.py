"""The statements of the exchange."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert

from lastlight_state.backends.sql.json import member_of
from lastlight_state.conversations import checks, words
from lastlight_state.conversations.arguments import NewMessage
from lastlight_state.conversations.drafts import MessageDraft
from lastlight_state.conversations.exchange.records import Delivery, Member, Sent
from lastlight_state.conversations.records import MessageSummary
from lastlight_state.conversations.shared import storing
from lastlight_state.conversations.shared.storing import SUMMARY, KnownClasses
from lastlight_state.conversations.tables import DELIVERIES, INBOXES, MEMBERS, MESSAGES
from lastlight_state.db import valid
from lastlight_state.db.lists.listing import Listing
from lastlight_state.db.rows.statements import Row, Statement, bind, every_column_of, number, statement_of
from lastlight_state.db.rows.writes import as_list, elements_table
from lastlight_state.db.schema.declarations import limits_of
from lastlight_state.db.schema.indexes import AmongFew
from lastlight_state.db.units.unit import Unit
from lastlight_state.errors import InvalidValue


class HeldDelivery(NamedTuple):
    """The holder of a delivery."""

    ord: int
    taken_by: str | None
    taken_until: datetime | None
    takes: int
    acked_at: datetime | None
    acked_by: str | None


_i, _d, _c, _m = INBOXES.c, DELIVERIES.c, MEMBERS.c, MESSAGES.c

_DELIVERY = every_column_of(Delivery, DELIVERIES)
_owners, _ords = elements_table("owners"), elements_table("ords")
_AMONG_OWNERS = AmongFew(_i.owner, sa.select(member_of(_owners.c.value, "id")))
_THESE = (
    _d.owner == bind("owner", _d.owner),
    AmongFew(_d.ord, sa.select(sa.cast(member_of(_ords.c.value, "ord"), _d.ord.type))),
)
_at = bind("at", _d.delivered_at)

_owner = sa.cast(member_of(_owners.c.value, "id"), _i.owner.type)
_lacking = (
    sa.select(_owner, number(1), bind("at", _i.created_at))
    .select_from(_owners)
    .where(~sa.exists().where(_d.owner == _owner, _d.message_id == bind("message_id", _d.message_id)))
    .order_by(_owner)
)
_placed = insert(INBOXES).from_select(["owner", "next_ord", "created_at"], _lacking, include_defaults=False)
#: Takes the next position of each inbox that lacks the message, and begins inboxes that are not there. Inboxes are
#: locked in the order of their owners, so that two units that send to the same ones do not deadlock.
#: Returns each inbox, and the position that a delivery gets there.
PLACE: Statement[tuple[str, int]] = statement_of(
    _placed.on_conflict_do_update(index_elements=[_i.owner], set_={"next_ord": _i.next_ord + number(1)}).returning(
        _i.owner, (_i.next_ord - number(1)).label("ord")
    ),
    tuple,
)
DELIVER = statement_of(sa.insert(DELIVERIES).values({column.name: bind(column.name, column) for column in _d}))

#: Inboxes, each with its last position.
HEADS: Statement[tuple[str, int]] = statement_of(
    sa.select(_i.owner, (_i.next_ord - number(1)).label("last_ord")).where(_AMONG_OWNERS), tuple
)

_FILTERS: dict[str, sa.ColumnElement[bool]] = {name: _d[name] == bind(name, _d[name]) for name in ("owner", "sender")}
INBOX = Listing(
    "exchange_inbox",
    _DELIVERY,
    row=Delivery,
    order=(_d.ord,),
    filters={
        **_FILTERS,
        "channel": _d.channel == bind("channel", _d.channel),
        "after_ord": _d.ord > bind("after_ord", _d.ord),
        "open": _d.acked_at.is_(None),
    },
    descending=False,
)
DELIVERED = Listing(
    "exchange_deliveries",
    _DELIVERY,
    row=Delivery,
    order=(_d.owner,),
    filters={"message_id": _d.message_id == bind("message_id", _d.message_id)},
    descending=False,
)
OUTBOX = Listing(
    "exchange_outbox",
    SUMMARY,
    row=MessageSummary,
    order=(_m.created_at, _m.id),
    filters={"sender": _m.sender == bind("sender", _m.sender)},
)

_FREE: Any = (
    sa.select(_d.ord)
    .where(
        _FILTERS["owner"],
        _d.acked_at.is_(None),
        sa.or_(_d.taken_until.is_(None), _d.taken_until <= _at),
    )
    .order_by(_d.ord)
    .limit(sa.bindparam("limit", type_=sa.Integer))
    .with_for_update(skip_locked=True)
)
#: The first deliveries that nobody has, without those that somebody is taking now: of all senders, or of one.
FREE, FREE_OF_SENDER = statement_of(_FREE), statement_of(_FREE.where(_FILTERS["sender"]))
TAKE = statement_of(
    sa.update(DELIVERIES)
    .where(*_THESE)
    .values(
        taken_by=bind("reader", _d.taken_by),
        taken_until=bind("until", _d.taken_until),
        takes=_d.takes + number(1),
    )
    .returning(*_DELIVERY),
    Delivery,
)
LOCK_THESE = statement_of(
    sa.select(_d.ord, _d.taken_by, _d.taken_until, _d.takes, _d.acked_at, _d.acked_by)
    .where(*_THESE)
    .order_by(_d.ord)
    .with_for_update(),
    HeldDelivery,
)
ACK = statement_of(
    sa.update(DELIVERIES)
    .where(*_THESE, _d.acked_at.is_(None))
    .values(acked_at=_at, acked_by=bind("reader", _d.acked_by))
)
RELEASE = statement_of(
    sa.update(DELIVERIES)
    .where(*_THESE, _d.acked_at.is_(None), _d.taken_by == bind("reader", _d.taken_by))
    .values(taken_by=sa.null(), taken_until=sa.null())
)

_joined = insert(MEMBERS).values({name: bind(name, _c[name]) for name in ("channel", "member", "joined_at")})
JOIN = statement_of(
    _joined.on_conflict_do_update(
        index_elements=[_c.channel, _c.member],
        set_={"joined_at": _joined.excluded.joined_at, "left_at": sa.null()},
        where=_c.left_at.is_not(None),
    )
)
_CHANNEL = _c.channel == bind("channel", _c.channel)
LEAVE = statement_of(
    sa.update(MEMBERS)
    .where(_CHANNEL, _c.member == bind("member", _c.member), _c.left_at.is_(None))
    .values(left_at=bind("left_at", _c.left_at))
)
CURRENT = statement_of(sa.select(_c.member).where(_CHANNEL, _c.left_at.is_(None)))
MEMBER_LIST = Listing(
    "exchange_members",
    every_column_of(Member, MEMBERS, hidden={"left_at"}),
    row=Member,
    order=(_c.member,),
    filters={"channel": _CHANNEL},
    always=(_c.left_at.is_(None),),
    descending=False,
)


# Sending: a message is stored once, and a delivery is added at the end of each owner's inbox.
#
# The inbox's row is locked until the commit, so positions have no gaps and follow the order of commits.

_LIMITS = limits_of(DELIVERIES)


def owners(where: str, given: Any) -> list[str]:
    """Check one owner or several.

    Return them without duplicates, in the order in which their inboxes must be locked.
    """
    named = [given] if isinstance(given, str) else checks.batch(where, given, words.BATCH)
    if not named:
        raise InvalidValue(where, "expected at least one owner")
    return sorted_names(valid.identifier(where, one, _LIMITS.owner) for one in named)


def sorted_names(names: Any) -> list[str]:
    """Return the names without duplicates, in the database's sort order."""
    return sorted(set(names), key=str.encode)


def letter(
    message: NewMessage, now: datetime, *, recipient: str | None = None, channel: str | None = None
) -> MessageDraft:
    """Check a message to send, and return its columns with the given recipient and channel.

    Raises `InvalidValue` if the message itself names another recipient or channel.
    """
    body = storing.draft("message", message, now)
    if body["recipient"] not in (None, recipient):
        raise InvalidValue("message.recipient", "must be None, or the only owner that it is sent to")
    if channel is not None and body["channel"] not in (None, channel):
        raise InvalidValue("message.channel", "must be None, or the channel that it is published on")
    return {**body, "recipient": recipient, "channel": channel if channel is not None else body["channel"]}


def store_message(unit: Unit, known: KnownClasses, body: MessageDraft) -> MessageDraft:
    """Store a message unless it is stored already. Returns its columns, with the stored sender and channel.

    Raises `AlreadyExists` for a different message of the same id; recipients are not compared.
    """
    there = storing.ensure(unit, known, body, but=("recipient",))
    return {**body, "sender": there.sender, "channel": there.channel}


def deliver_message(unit: Unit, body: MessageDraft, to: Sequence[str], now: datetime) -> Sent:
    """Add a delivery of a stored message to the inboxes of those owners that do not have it yet."""
    values = {"owners": as_list([{"id": owner} for owner in to]), "message_id": body["id"], "at": now}
    placed = dict(unit.rows(PLACE, values)) if to else {}
    rows = [delivery(owner, placed[owner], body, now) for owner in to if owner in placed]
    if len(rows) == 1:
        unit.change(DELIVER, rows[0])
    elif rows:
        unit.insert(DELIVERIES, DELIVER, rows)
    skipped = tuple(owner for owner in to if owner not in placed)
    return Sent.of({"message_id": body["id"], "delivered": tuple(row["owner"] for row in rows), "skipped": skipped})


def members(unit: Unit, channel: str, *, but: str | None) -> list[str]:
    """Return the members of a channel, without the sender."""
    return sorted_names(member for member in unit.values(CURRENT, {"channel": channel}) if member != but)


def delivery(owner: str, position: int, body: MessageDraft, now: datetime) -> Row:
    """Return the parameters of an open delivery."""
    return {
        "owner": owner,
        "ord": position,
        "message_id": body["id"],
        "sender": body["sender"],
        "channel": body["channel"],
        "delivered_at": now,
        "taken_by": None,
        "taken_until": None,
        "takes": 0,
        "acked_at": None,
        "acked_by": None,
    }
