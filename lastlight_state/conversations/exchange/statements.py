"""The statements of the exchange."""

from __future__ import annotations

from datetime import datetime
from typing import Any, TypedDict

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert

from lastlight_state.backends.sql.json import member_of
from lastlight_state.conversations.kernel.storing import SUMMARY
from lastlight_state.conversations.rows import ExchangeDeliveryRow
from lastlight_state.conversations.shown import MemberRow, MessageSummaryRow
from lastlight_state.conversations.tables import DELIVERIES, INBOXES, MEMBERS, MESSAGES
from lastlight_state.db.indexes import AmongFew
from lastlight_state.db.listed import listed
from lastlight_state.db.listing import Listing
from lastlight_state.db.statements import bind, number, prepared


class PlacedRow(TypedDict):
    """An inbox, and the position that a delivery gets there."""

    owner: str
    ord: int


class InboxHead(TypedDict):
    """An inbox, and its last position."""

    owner: str
    last_ord: int


class FreeRow(TypedDict):
    """The position of a delivery that may be taken."""

    ord: int


class HeldDelivery(TypedDict):
    """Who has a delivery."""

    ord: int
    taken_by: str | None
    taken_until: datetime | None
    takes: int
    acked_at: datetime | None
    acked_by: str | None


class CurrentMember(TypedDict):
    """A member of a channel."""

    member: str


_i, _d, _c, _m = INBOXES.c, DELIVERIES.c, MEMBERS.c, MESSAGES.c

_owners, _ords = listed("owners"), listed("ords")
_AMONG_OWNERS = AmongFew(_i.owner, sa.select(member_of(_owners.c.value, "id")))
_THESE = (
    _d.owner == bind("owner", _d.owner),
    AmongFew(_d.ord, sa.select(sa.cast(member_of(_ords.c.value, "ord"), _d.ord.type))),
)
_at = bind("at", _d.delivered_at)

#: The row that is there already. As a column it would put the table into the subquery once more.
_this_inbox = sa.literal_column(f"{INBOXES.name}.owner", _i.owner.type)
_placed = insert(INBOXES).from_select(
    ["owner", "next_ord", "created_at"],
    sa.select(member_of(_owners.c.value, "id"), number(1), bind("at", _i.created_at))
    .select_from(_owners)
    .where(sa.true()),  # without it, SQLite takes ON CONFLICT for the condition of a join
)
#: Takes the next position of each inbox that lacks the message, and begins inboxes that are not there. Inboxes are
#: locked in the order in which their owners are given, so that two units that send to the same ones do not deadlock.
PLACE = prepared(
    _placed.on_conflict_do_update(
        index_elements=[_i.owner],
        set_={"next_ord": _i.next_ord + number(1)},
        where=~sa.exists().where(_d.owner == _this_inbox, _d.message_id == bind("message_id", _d.message_id)),
    ).returning(_i.owner, (_i.next_ord - number(1)).label("ord")),
    PlacedRow,
)
DELIVER = prepared(sa.insert(DELIVERIES).values({column.name: bind(column.name, column) for column in _d}))

HEADS = prepared(sa.select(_i.owner, (_i.next_ord - number(1)).label("last_ord")).where(_AMONG_OWNERS), InboxHead)

_FILTERS: dict[str, sa.ColumnElement[bool]] = {name: _d[name] == bind(name, _d[name]) for name in ("owner", "sender")}
INBOX = Listing(
    "exchange_inbox",
    tuple(_d),
    row=ExchangeDeliveryRow,
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
    tuple(_d),
    row=ExchangeDeliveryRow,
    order=(_d.owner,),
    filters={"message_id": _d.message_id == bind("message_id", _d.message_id)},
    descending=False,
)
OUTBOX = Listing(
    "exchange_outbox",
    SUMMARY,
    row=MessageSummaryRow,
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
FREE, FREE_OF_SENDER = prepared(_FREE, FreeRow), prepared(_FREE.where(_FILTERS["sender"]), FreeRow)
TAKE = prepared(
    sa.update(DELIVERIES)
    .where(*_THESE)
    .values(
        taken_by=bind("reader", _d.taken_by),
        taken_until=bind("until", _d.taken_until),
        takes=_d.takes + number(1),
    )
    .returning(*_d),
    ExchangeDeliveryRow,
)
LOCK_THESE = prepared(
    sa.select(_d.ord, _d.taken_by, _d.taken_until, _d.takes, _d.acked_at, _d.acked_by)
    .where(*_THESE)
    .order_by(_d.ord)
    .with_for_update(),
    HeldDelivery,
)
ACK = prepared(
    sa.update(DELIVERIES)
    .where(*_THESE, _d.acked_at.is_(None))
    .values(acked_at=_at, acked_by=bind("reader", _d.acked_by))
)
RELEASE = prepared(
    sa.update(DELIVERIES)
    .where(*_THESE, _d.acked_at.is_(None), _d.taken_by == bind("reader", _d.taken_by))
    .values(taken_by=sa.null(), taken_until=sa.null())
)

_joined = insert(MEMBERS).values({name: bind(name, _c[name]) for name in ("channel", "member", "joined_at")})
JOIN = prepared(
    _joined.on_conflict_do_update(
        index_elements=[_c.channel, _c.member],
        set_={"joined_at": _joined.excluded.joined_at, "left_at": sa.null()},
        where=_c.left_at.is_not(None),
    )
)
_CHANNEL = _c.channel == bind("channel", _c.channel)
LEAVE = prepared(
    sa.update(MEMBERS)
    .where(_CHANNEL, _c.member == bind("member", _c.member), _c.left_at.is_(None))
    .values(left_at=bind("left_at", _c.left_at))
)
CURRENT = prepared(sa.select(_c.member).where(_CHANNEL, _c.left_at.is_(None)), CurrentMember)
MEMBER_LIST = Listing(
    "exchange_members",
    (_c.channel, _c.member, _c.joined_at),
    row=MemberRow,
    order=(_c.member,),
    filters={"channel": _CHANNEL},
    always=(_c.left_at.is_(None),),
    descending=False,
)
