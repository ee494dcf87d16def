"""The references between sessions, message orders, messages and branches.

Sessions own message orders, orders hold messages, and sessions and branches point to messages. Each statement looks up
a few hundred keys at a time by an index.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TypeAlias

import sqlalchemy as sa

from lastlight_state.conversations.tables import BRANCHES, DELIVERIES, LINKS, PROGRESSIONS, SESSIONS
from lastlight_state.db.lists.filters import family
from lastlight_state.db.rows.statements import Family, Statement, among, bind, number, statement_of
from lastlight_state.db.units.unit import Unit

_s, _b, _p, _l = SESSIONS.c, BRANCHES.c, PROGRESSIONS.c, LINKS.c

#: Most links that one statement reads.
_READ = 2_000

#: Columns of sessions and branches that hold a message id, each with the column of its session's id.
POINTERS = ((_s.first_msg_id, _s.id), (_s.last_msg_id, _s.id), (_b.system_msg_id, _b.session_id))
#: All columns that refer to a message, deliveries in every state included; and all columns that refer to an order.
REFERRING = (_l.message_id, DELIVERIES.c.message_id, *(column for column, _ in POINTERS))
OWNING = (_s.progression_id, _b.progression_id)


#: A key, and the id of what was found for it.
FoundPair: TypeAlias = tuple[str, str]

#: The orders of sessions: their pools, and those of their branches.
ORDERS: Family[FoundPair] = family(
    lambda keys: sa.union(
        sa.select(_s.id.label("key"), _s.progression_id.label("order_id")).where(_s.id.in_(keys)),
        sa.select(_b.session_id, _b.progression_id).where(_b.session_id.in_(keys)),
    ),
    tuple,
)
#: The sessions that own orders.
OWNERS: Family[FoundPair] = family(
    lambda keys: sa.union(
        sa.select(_s.progression_id.label("key"), _s.id.label("owner")).where(_s.progression_id.in_(keys)),
        sa.select(_b.progression_id, _b.session_id).where(_b.progression_id.in_(keys)),
    ),
    tuple,
)
#: The messages that sessions and their branches point to.
POINTED: Family[tuple[str]] = family(
    lambda keys: sa.union(
        *(sa.select(column.label("key")).where(owner.in_(keys), column.is_not(None)) for column, owner in POINTERS)
    ),
    tuple,
)
LINKED: Statement[tuple[int, str]] = statement_of(
    sa.select(_l.ord, _l.message_id)
    .where(_l.progression_id == bind("order_id", _l.progression_id), _l.ord > bind("after", _l.ord))
    .order_by(_l.ord)
    .limit(number(_READ)),
    tuple,
)
#: The orders that hold messages, and the sessions that point to them.
HOLDERS: Family[FoundPair] = family(
    lambda keys: sa.select(_l.message_id.label("key"), _l.progression_id).where(_l.message_id.in_(keys)), tuple
)
POINTING: Family[FoundPair] = family(
    lambda keys: sa.union(
        *(sa.select(column.label("key"), owner.label("owner")).where(column.in_(keys)) for column, owner in POINTERS)
    ),
    tuple,
)
#: Those of these messages that anything refers to.
REFERRED: Family[tuple[str]] = family(
    lambda keys: sa.union(*(sa.select(column.label("key")).where(column.in_(keys)) for column in REFERRING)),
    tuple,
)

#: The conditions under which pruning, redaction and erasure leave a session alone, by the reason that they report.
PROTECTIONS: Mapping[str, sa.ColumnElement[bool]] = {
    "not_ended": among(_s.status, ("running", "pending")),
    "held": _s.hold_reason.is_not(None),
}


def links(unit: Unit, order: str) -> Iterator[tuple[int, str]]:
    """Yield the position and message of each link of an order, those included whose positions are below 0."""
    after = -(2**62)
    while found := unit.rows(LINKED, {"order_id": order, "after": after}):
        yield from found
        after = found[-1][0]
