"""What conversation sessions share: branches that others forked, orders, and messages.

An order goes with its last owner. A message goes when a session that went referred to it, and no order, session or
branch does any more: a message that nobody ever referred to is not looked at.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import sqlalchemy as sa

from lastlight_state.conversations.tables import BRANCHES, LINKS, MESSAGES, PROGRESSIONS, SESSIONS
from lastlight_state.db.statements import Family, bind, number, prepared
from lastlight_state.db.unit import Unit

_s, _b, _p, _l, _m = SESSIONS.c, BRANCHES.c, PROGRESSIONS.c, LINKS.c, MESSAGES.c

#: How many keys one statement names, and how many links one reads.
_KEYS, _READ = 200, 2_000

_fork = BRANCHES.alias("fork")
#: The columns that point to a message, each with the session that it belongs to.
_POINTERS = ((_s.first_msg_id, _s.id), (_s.last_msg_id, _s.id), (_b.system_msg_id, _b.session_id))


def _family(make: Any) -> Family:
    return Family("key", make)


#: The other sessions that have forks of a session's branches.
WAITS = _family(
    lambda keys: (
        sa.select(_b.session_id.label("key"), _fork.c.session_id.label("other"))
        .select_from(BRANCHES.join(_fork, _fork.c.parent_branch_id == _b.id))
        .where(_b.session_id.in_(keys), _fork.c.session_id != _b.session_id)
        .distinct()
    )
)
#: The orders of sessions: their pools, and those of their branches.
ORDERS = _family(
    lambda keys: sa.union(
        sa.select(_s.id.label("key"), _s.progression_id.label("order_id")).where(_s.id.in_(keys)),
        sa.select(_b.session_id, _b.progression_id).where(_b.session_id.in_(keys)),
    )
)
LENGTHS = _family(
    lambda keys: sa.select(_p.id.label("key"), (_p.next_ord - _p.start_ord).label("rows")).where(_p.id.in_(keys))
)
#: The sessions that own orders.
OWNERS = _family(
    lambda keys: sa.union(
        sa.select(_s.progression_id.label("key"), _s.id.label("owner")).where(_s.progression_id.in_(keys)),
        sa.select(_b.progression_id, _b.session_id).where(_b.progression_id.in_(keys)),
    )
)
#: The messages that sessions and their branches point to.
POINTED = _family(
    lambda keys: sa.union(
        *(sa.select(column.label("key")).where(owner.in_(keys), column.is_not(None)) for column, owner in _POINTERS)
    )
)
LINKED = prepared(
    sa.select(_l.ord, _l.message_id)
    .where(_l.progression_id == bind("order_id", _l.progression_id), _l.ord > bind("after", _l.ord))
    .order_by(_l.ord)
    .limit(number(_READ))
)
#: The orders that hold messages, and the sessions that point to them.
HOLDERS = _family(lambda keys: sa.select(_l.message_id.label("key"), _l.progression_id).where(_l.message_id.in_(keys)))
POINTING = _family(
    lambda keys: sa.union(
        *(sa.select(column.label("key"), owner.label("owner")).where(column.in_(keys)) for column, owner in _POINTERS)
    )
)
#: Those of these messages that something refers to.
USED = _family(
    lambda keys: sa.union(
        sa.select(_l.message_id.label("key")).where(_l.message_id.in_(keys)),
        *(sa.select(column).where(column.in_(keys)) for column, _ in _POINTERS),
    )
)


def _locking(column: Any, among: Any) -> Family:
    return _family(lambda keys: sa.select(column).where(among.in_(keys)).order_by(column).with_for_update())


def _removal(column: Any) -> Family:
    return _family(lambda keys: sa.delete(column.table).where(column.in_(keys)))


LOCK_BRANCHES, LOCK_ORDERS, LOCK_MESSAGES = (
    _locking(_b.id, _b.session_id),
    _locking(_p.id, _p.id),
    _locking(_m.id, _m.id),
)
REMOVE_LINKS, REMOVE_ORDERS, REMOVE_MESSAGES = _removal(_l.progression_id), _removal(_p.id), _removal(_m.id)


class Held(NamedTuple):
    """The orders of some sessions, and the messages that they point to."""

    orders: set[str]
    messages: set[str]


class Threads:
    """What sessions share, for a prune (`kind.Shared`)."""

    tables = ("progression_links", "progressions", "messages")

    def waits(self, unit: Unit, keys: Sequence[str]) -> dict[str, set[str]]:
        """The sessions that have forks of each of these."""
        found: dict[str, set[str]] = {}
        for row in _rows(unit, WAITS, keys):
            found.setdefault(row["key"], set()).add(row["other"])
        return found

    def lock(self, unit: Unit, keys: Sequence[str]) -> None:
        """Keep others from forking the branches of these sessions."""
        list(_rows(unit, LOCK_BRANCHES, keys))

    def sizes(self, unit: Unit, keys: Sequence[str]) -> dict[str, int]:
        """The rows of each session's orders, and as many messages as the longest of them has."""
        owned: dict[str, list[str]] = {key: [] for key in keys}
        for row in _rows(unit, ORDERS, keys):
            owned[row["key"]].append(row["order_id"])
        names = {order for orders in owned.values() for order in orders}
        lengths = {row["key"]: row["rows"] for row in _rows(unit, LENGTHS, names)}
        return {
            key: sum(1 + lengths[order] for order in orders) + max((lengths[order] for order in orders), default=0)
            for key, orders in owned.items()
        }

    def count(self, unit: Unit, keys: Sequence[str]) -> Counter[str]:
        """What goes with all these sessions: the same as `release` removes after the last of them."""
        going = set(keys)
        held = self.held(unit, keys)
        orders = held.orders - {row["key"] for row in _rows(unit, OWNERS, held.orders) if row["owner"] not in going}
        counts = Counter({"progressions": len(orders)})
        messages = held.messages
        for order in sorted(orders):
            links = [row["message_id"] for row in _links(unit, order)]
            counts["progression_links"] += len(links)
            messages.update(links)
        staying = {row["key"] for row in _rows(unit, HOLDERS, messages) if row["progression_id"] not in orders}
        staying |= {row["key"] for row in _rows(unit, POINTING, messages) if row["owner"] not in going}
        counts["messages"] = len(messages) - len(staying)
        return +counts

    def held(self, unit: Unit, keys: Sequence[str]) -> Held:
        """The orders of these sessions, and the messages that they point to."""
        orders = {row["order_id"] for row in _rows(unit, ORDERS, keys)}
        return Held(orders, {row["key"] for row in _rows(unit, POINTED, keys)})

    def release(self, unit: Unit, held: Held) -> Counter[str]:
        """Remove the orders that have no owner left, and the messages that nothing refers to any more."""
        list(_rows(unit, LOCK_ORDERS, held.orders))
        orders = held.orders - {row["key"] for row in _rows(unit, OWNERS, held.orders)}
        messages = held.messages | {row["message_id"] for order in orders for row in _links(unit, order)}
        counts = Counter({"progression_links": _removed(unit, REMOVE_LINKS, orders)})
        counts["progressions"] = _removed(unit, REMOVE_ORDERS, orders)
        list(_rows(unit, LOCK_MESSAGES, messages))
        used = {row["key"] for row in _rows(unit, USED, messages)}
        counts["messages"] = _removed(unit, REMOVE_MESSAGES, messages - used)
        return +counts


def _chunks(keys: Iterable[str]) -> Iterator[list[str]]:
    ordered = sorted(keys)
    return (ordered[at : at + _KEYS] for at in range(0, len(ordered), _KEYS))


def _rows(unit: Unit, family: Family, keys: Iterable[str]) -> Iterator[dict[str, Any]]:
    for chunk in _chunks(keys):
        yield from unit.rows(*family.of(chunk))


def _removed(unit: Unit, family: Family, keys: Iterable[str]) -> int:
    return sum(unit.change(*family.of(chunk)) for chunk in _chunks(keys))


def _links(unit: Unit, order: str) -> Iterator[dict[str, Any]]:
    """The links of an order, those included whose positions are below 0."""
    after = -(2**62)
    while found := unit.rows(LINKED, {"order_id": order, "after": after}):
        yield from found
        after = found[-1]["ord"]
