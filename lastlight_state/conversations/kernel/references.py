"""References in conversations: sessions own message orders, orders hold messages, sessions and branches point to them.

Each statement looks up a few hundred keys at a time by an index.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TypedDict

import sqlalchemy as sa

from lastlight_state.conversations.projections import LinkRow
from lastlight_state.conversations.tables import BRANCHES, DELIVERIES, LINKS, PROGRESSIONS, SESSIONS
from lastlight_state.db.lists.filters import IdRow, KeyRow, family
from lastlight_state.db.rows.statements import among, bind, number, prepared
from lastlight_state.db.units.unit import Unit

_s, _b, _p, _l = SESSIONS.c, BRANCHES.c, PROGRESSIONS.c, LINKS.c

#: Most links that one statement reads.
_READ = 2_000

#: Columns of sessions and branches that hold a message id, each with the column of its session's id.
POINTERS = ((_s.first_msg_id, _s.id), (_s.last_msg_id, _s.id), (_b.system_msg_id, _b.session_id))
#: All columns that refer to a message, deliveries in every state included; and all columns that refer to an order.
REFERRING = (_l.message_id, DELIVERIES.c.message_id, *(column for column, _ in POINTERS))
OWNING = (_s.progression_id, _b.progression_id)


class OrderOf(KeyRow):
    """An order of a session."""

    order_id: str


class OwnerOf(KeyRow):
    """The session that has an order, or points to a message."""

    owner: str


class HolderOf(KeyRow):
    """An order that holds a message."""

    progression_id: str


class HeldKey(KeyRow):
    """What bears the person's name, and whether it is left alone."""

    held: bool


class AgentSessionRef(TypedDict):
    """The agent session that stands behind a chat or a session."""

    agent_session_id: str | None


class ChatOf(KeyRow, AgentSessionRef):
    """A chat of the person."""


class SessionOf(HeldKey, AgentSessionRef):
    """A session of the person."""


class LockedPlace(IdRow, AgentSessionRef):
    """A chat that is locked."""


class LockedSession(LockedPlace):
    """A session that is locked, and whether it is left alone."""

    held: bool


#: The message orders of the given sessions: their pools, and the orders of their branches.
ORDERS = family(
    lambda keys: sa.union(
        sa.select(_s.id.label("key"), _s.progression_id.label("order_id")).where(_s.id.in_(keys)),
        sa.select(_b.session_id, _b.progression_id).where(_b.session_id.in_(keys)),
    ),
    OrderOf,
)
#: The sessions that own the given orders, as their pool or through a branch.
OWNERS = family(
    lambda keys: sa.union(
        sa.select(_s.progression_id.label("key"), _s.id.label("owner")).where(_s.progression_id.in_(keys)),
        sa.select(_b.progression_id, _b.session_id).where(_b.progression_id.in_(keys)),
    ),
    OwnerOf,
)
#: The messages that the given sessions and their branches point to.
POINTED = family(
    lambda keys: sa.union(
        *(sa.select(column.label("key")).where(owner.in_(keys), column.is_not(None)) for column, owner in POINTERS)
    ),
    KeyRow,
)
LINKED = prepared(
    sa.select(_l.ord, _l.message_id)
    .where(_l.progression_id == bind("order_id", _l.progression_id), _l.ord > bind("after", _l.ord))
    .order_by(_l.ord)
    .limit(number(_READ)),
    LinkRow,
)
#: The orders that hold the given messages, and the sessions that point to them.
HOLDERS = family(
    lambda keys: sa.select(_l.message_id.label("key"), _l.progression_id).where(_l.message_id.in_(keys)), HolderOf
)
POINTING = family(
    lambda keys: sa.union(
        *(sa.select(column.label("key"), owner.label("owner")).where(column.in_(keys)) for column, owner in POINTERS)
    ),
    OwnerOf,
)
#: The given messages that any row refers to.
REFERRED = family(
    lambda keys: sa.union(*(sa.select(column.label("key")).where(column.in_(keys)) for column in REFERRING)),
    KeyRow,
)

#: The conditions under which pruning, redaction and erasure leave a session alone, by the reason that they report.
PROTECTIONS: Mapping[str, sa.ColumnElement[bool]] = {
    "not_ended": among(_s.status, ("running", "pending")),
    "held": _s.hold_reason.is_not(None),
}


def links(unit: Unit, order: str) -> Iterator[LinkRow]:
    """Yield all links of a message order by position, negative positions included. Reads batches of `_READ` rows."""
    after = -(2**62)
    while found := unit.rows(LINKED, {"order_id": order, "after": after}):
        yield from found
        after = found[-1]["ord"]
